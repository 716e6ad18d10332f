"""Deep search: find a thing by several facts about it, over many searches and pages, and answer from there."""
