"""Reading what planning asks for beyond watched objects: logs, events, engine metrics."""
