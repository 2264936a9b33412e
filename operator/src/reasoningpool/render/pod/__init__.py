"""The pod template of an engine, one module per section."""
