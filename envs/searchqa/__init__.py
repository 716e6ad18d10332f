"""Search-QA: answer a question by searching; generated encyclopedia in the box, the seven published sets by folder."""
