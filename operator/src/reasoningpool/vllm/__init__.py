"""What the operator knows about vLLM's command line: its flags, and which of them a user may set."""

from reasoningpool.vllm.extra_arguments import check_extra_arguments
from reasoningpool.vllm.shown_values import argument_name, shows_value

__all__ = ["argument_name", "check_extra_arguments", "shows_value"]
