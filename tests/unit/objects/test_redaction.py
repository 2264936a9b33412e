"""Secrets in quoted words are masked, and the words that explain a failure are not."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoningpool.objects.redaction import redacted

HUB = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"
RANDOM = base64.b64encode(hashlib.sha512(b"a").digest()).decode()
URLSAFE = base64.urlsafe_b64encode(hashlib.sha512(b"b").digest()).decode().rstrip("=")
HEX = hashlib.sha256(b"c").hexdigest()
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJlX29mX2l0"


@pytest.mark.parametrize(
    ("text", "shown", "secret"),
    [
        (f"Invalid user token: {HUB}", "Invalid user token: [redacted]", HUB),
        (f"HF_TOKEN={HUB} is expired", "HF_TOKEN=[redacted] is expired", HUB),
        (f"got {HUB}.", "got [redacted].", HUB),
        (f"export OPENAI_KEY='sk-{URLSAFE}'", "OPENAI_KEY='[redacted]'", URLSAFE),
        ("password=hunter2;user=me", "password=[redacted];user=me", "hunter2"),
        ('{"password": "hunter2", "user": "me"}', '{"password": "[redacted]", "user": "me"}', "hunter2"),
        ("PGPASSWORD = hunter2", "[redacted]", "hunter2"),
        ("https://x.example/a?key=abcdef&v=1", "?key=[redacted]&v=1", "abcdef"),
        ("https://s3.example/m?X-Amz-Signature=0ab3&part=2", "Signature=[redacted]&part=2", "0ab3"),
        ("pip: https://me:hunter2@pypi.example/simple failed", "https://[redacted]@pypi.example/simple", "hunter2"),
        ("https://me:p@ss:w0rd@host/x", "https://[redacted]@host/x", "ss:w0rd"),
        (f"git clone https://{HUB}@huggingface.co/a/b", "https://[redacted]@huggingface.co/a/b", HUB),
        ("redis://:hunter2@cache:6379", "redis://[redacted]@cache:6379", "hunter2"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [redacted]", "abc.def-ghi"),
        (
            "headers={'Authorization': 'Basic bWU6aHVudGVyMg=='}",
            "'Authorization': 'Basic [redacted]'",
            "bWU6aHVudGVyMg",
        ),
        ("curl -H 'authorization: s3cr3t'", "authorization: [redacted]", "s3cr3t"),
        ("vllm serve --api-key s3cr3t --port 8000", "--api-key [redacted] --port 8000", "s3cr3t"),
        ("namespace(api_key=['s3cr3t'])", "namespace(api_key=['[redacted]'])", "s3cr3t"),
        ("aws_secret_access_key=wJalrXUtnFEMI", "access_key=[redacted]", "wJalrXUtnFEMI"),
        (f"jwt {JWT}", "jwt [redacted]", "c2lnbmF0dXJl"),
        (f"payload {RANDOM} end", "payload [redacted] end", RANDOM[:30]),
        (f"payload {URLSAFE} end", "payload [redacted] end", URLSAFE[:30]),
        (f"nonce {HEX}", "nonce [redacted]", HEX),
        ("AKIAIOSFODNN7EXAMPLE in us-east-1", "[redacted] in us-east-1", "AKIAIOSFODNN7EXAMPLE"),
    ],
)
def test_secrets_are_masked(text: str, shown: str, secret: str) -> None:
    assert shown in redacted(text)
    assert secret not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: To serve at least one request with the model's max seq len (262144), 8.58 GiB KV cache",
        "max_num_batched_tokens=8192, max_tokens: 4096, thinking_token_budget=1024",
        "KeyError: \"Reasoning parser 'typo' not found. Available parsers: deepseek_r1, qwen3\"",
        "Missing key: model.layers.0.self_attn.q_proj.weight_scale in checkpoint",
        "/usr/local/lib/python3.12/dist-packages/vllm/entrypoints/openai/api_server.py:1234",
        "/cache/huggingface/hub/models--Qwen--Qwen3-235B-A22B-Instruct-2507-FP8/snapshots",
        f'failed to pull image "vllm/vllm-openai@sha256:{HEX}": not found',
        "vllm: error: unrecognized arguments: --enable-reasoning --reasoning-parser=qwen3",
        "token=None, hf_token=True, key=0, api_key=***",
        "https://huggingface.co/Qwen/Qwen3-32B-FP8/resolve/main/config.json",
        "http://[::1]:8000/metrics and user@host",
        'pods "p-reasoning-0" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 8',
        "0/5 nodes are available: 5 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are available",
        'PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
    ],
)
def test_words_that_explain_are_left_alone(text: str) -> None:
    assert redacted(text) == text


WORDS = st.sampled_from(
    ["token=", "key", "://", "@", "hf_", HUB, "bearer ", "Authorization: ", RANDOM, HEX, "[redacted]", "--api-key "]
)


@given(st.lists(WORDS | st.text(max_size=12), max_size=12).map("".join))
def test_masking_again_changes_nothing(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once


@given(st.text(max_size=40), st.text(max_size=40))
def test_hub_token_is_masked_wherever_it_stands(before: str, after: str) -> None:
    assert HUB not in redacted(f"{before} {HUB}{after}")
