"""The `plan` command: capacity planning for a request rate."""
