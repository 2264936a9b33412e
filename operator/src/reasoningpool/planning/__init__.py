"""What to do about a pool: pure planning over a snapshot."""
