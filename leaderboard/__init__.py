"""The board: entries that anyone can verify by replaying every action (docs/leaderboard.md)."""
