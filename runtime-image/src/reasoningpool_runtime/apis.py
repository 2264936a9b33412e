"""The four request APIs that generate text, and where they differ."""

from __future__ import annotations

from enum import Enum


class Api(Enum):
    """A governed path of vLLM; the value labels metrics."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"

    @property
    def max_tokens_field(self) -> str:
        """The field that the runtime writes the total cap to."""
        return {Api.CHAT: "max_completion_tokens", Api.RESPONSES: "max_output_tokens"}.get(self, "max_tokens")

    @property
    def max_tokens_fields(self) -> tuple[str, ...]:
        """Fields that ask for a total cap; vLLM prefers the first."""
        return ("max_completion_tokens", "max_tokens") if self is Api.CHAT else (self.max_tokens_field,)

    @property
    def has_chat_template(self) -> bool:
        return self is not Api.COMPLETIONS

    @property
    def has_budget_field(self) -> bool:
        """Whether vLLM takes `thinking_token_budget` in the body. Messages' own field takes 1,024 and more only."""
        return self in {Api.CHAT, Api.COMPLETIONS}


GOVERNED = {
    "/v1/chat/completions": Api.CHAT,
    "/v1/completions": Api.COMPLETIONS,
    "/v1/responses": Api.RESPONSES,
    "/v1/messages": Api.MESSAGES,
}

# Paths that generate as well but know no budgets; some are there only with certain flags of vLLM (0.33).
UNGOVERNED = frozenset(
    {
        "/v1/chat/completions/batch",
        "/invocations",
        "/inference/v1/generate",
        "/cohere/v2/chat",
    }
)
