"""The calculation in words: its steps, suggestions where it does not fit, and wasted memory."""
