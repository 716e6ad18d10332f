"""Evidence anchors: per task a few snippets that support its answer, for SSPO's teacher (arXiv 2608.12764)."""
