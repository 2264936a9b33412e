"""What the operator knows about vLLM's command line: its flags, and which of them a user may set."""

from reasoningpool.vllm.extra_arguments import check_extra_arguments

__all__ = ["check_extra_arguments"]
