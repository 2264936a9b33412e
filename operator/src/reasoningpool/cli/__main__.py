"""`python -m reasoningpool.cli`."""

from reasoningpool.cli import main

main()
