import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool_runtime import contract
from reasoningpool_runtime.contract import ConfigError, Effort, RuntimeConfig, Thinking

EFFORTS = (
    Effort(name="low", thinking_tokens=0, answer_tokens=512),
    Effort(name="high", thinking_tokens=4096, answer_tokens=1024, expected_output_tokens=(100, 900)),
)
CONFIG = RuntimeConfig(
    tier="reasoning",
    efforts=EFFORTS,
    default_effort="high",
    prompt_tokens=8192,
    thinking=Thinking(off={"think": False}),
)


def change(**fields: object) -> str:
    return json.dumps({**json.loads(contract.dumps(CONFIG)), **fields})


def test_a_configuration_survives_writing_and_reading() -> None:
    assert contract.loads(contract.dumps(CONFIG)) == (CONFIG, ())


@given(
    thinking=st.integers(0, 10**6),
    answer=st.integers(1, 10**6),
    prompt=st.none() | st.integers(1, 10**7),
    show=st.booleans(),
    keep=st.sampled_from(contract.KeepThinking),
    closure=st.sampled_from(contract.Closure),
    policy=st.sampled_from(contract.OverBudget),
)
def test_every_configuration_survives_writing_and_reading(
    thinking: int, answer: int, prompt: int | None, *, show: bool, keep: object, closure: object, policy: object
) -> None:
    config = replace(
        CONFIG,
        efforts=(Effort(name="high", thinking_tokens=thinking, answer_tokens=answer),),
        prompt_tokens=prompt,
        thinking=Thinking(show=show, keep=keep, closure=closure),
        over_budget=policy,
    )
    assert contract.loads(contract.dumps(config)) == (config, ())


def test_fields_are_camel_case_in_the_file() -> None:
    raw = json.loads(contract.dumps(CONFIG))
    assert raw["efforts"][0]["thinkingTokens"] == 0
    assert raw["traceLog"]["samplePermille"] == 10


def test_unknown_fields_are_reported_and_left_alone() -> None:
    unknown = contract.loads(change(colour="blue", thinking={"colour": "red"}))[1]
    assert set(unknown) == {"colour", "thinking.colour"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "the file must be an object, not a list"),
        ("[" * 100_000, "not JSON"),
        (change(tier=None), "tier must be a string, not null"),
        (change(efforts=[{"name": "low"}]), r"efforts\[0\].thinkingTokens is missing"),
        (change(efforts=[]), "efforts must not be empty"),
        (change(defaultEffort="max"), "defaultEffort is 'max', which is none of low, high"),
        (change(promptTokens=True), "promptTokens must be an integer"),
        (change(promptTokens=0), "promptTokens must be at least 1"),
        (change(overBudget="Ignore"), "overBudget must be one of Clamp, Refuse"),
        (change(thinking={"on": 3}), "thinking.on must be an object"),
        (change(traceLog={"samplePermille": 51}), "traceLog: samplePermille must lie between 0 and 50"),
        (change(version=2), "version is 2; this runtime reads version 1"),
    ],
)
def test_malformed_configurations_are_refused_with_the_path(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        contract.loads(text)


def test_the_contract_needs_the_standard_library_only() -> None:
    """The operator carries a copy of it."""
    source = contract.__loader__.get_source(contract.__name__)  # type: ignore[union-attr]
    assert "reasoningpool_runtime" not in source.replace(contract.MIDDLEWARE, "")
    assert not {"pydantic", "prometheus_client", "starlette"} & set(source.split())
