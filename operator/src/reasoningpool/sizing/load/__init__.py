"""The load on an engine: tokens in flight, concurrency, preemptions and the operating point."""
