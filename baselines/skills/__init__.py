"""Skills: short lessons written from an episode (analysis, parse), and a bank of ready ones."""
