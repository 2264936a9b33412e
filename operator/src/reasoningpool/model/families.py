"""What the families' modules have beside what their configurations' keys say: norms, biases, gates.

The families whose KV and weights are known: compared with vLLM's own model class and KV planner
(`tests/data/architectures.json`, `tests/engine/test_kv_planner.py`), or with published parameter counts where vLLM runs
them by another library's classes. A family that is not here is refused, not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from reasoningpool.model.config_reader import ConfigReader


class QueryKeyNorm(Enum):
    """Norms of queries and keys."""

    NONE = auto()  # or without weights (Llama 4)
    BY_KEY = auto()  # one head's width where the configuration says so (`use_qk_norm`)
    HEAD = auto()  # one head's width each, whole on every rank
    HEAD_WITH_BIAS = auto()
    HEADS = auto()  # all heads, cut over the ranks
    WHOLE = auto()  # all heads, whole on every rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a layer has beside its matrices."""

    norms: int = 2  # of the hidden size, in each layer
    norm_width: int = 1  # 2: with a bias
    query_key_norm: QueryKeyNorm = QueryKeyNorm.BY_KEY
    attention_bias: bool = False  # of queries, keys and values, where no key says
    output_bias: bool = False  # of the attention's output, where there is a bias
    feed_forward_bias: bool = False
    router_bias: bool = False  # a correction per expert, where no key says
    head_bias: bool = False  # of the output head
    output_gate: bool = False  # a matrix beside the queries' that gates the attention's output
    sinks: bool = False  # a value per attention head
    activation_scalars: int = 0  # learned by the feed-forward's activation, whole on every rank
    tied: bool = False  # embedding and output head are one table, where no key says


PLAIN: Final = Family()
_HEAD: Final = Family(query_key_norm=QueryKeyNorm.HEAD)
_FOUR: Final = Family(norms=4, tied=True)
_FOUR_HEAD: Final = Family(norms=4, query_key_norm=QueryKeyNorm.HEAD, tied=True)
_ONE: Final = Family(norms=1)
_BIASED: Final = Family(norm_width=2, attention_bias=True, output_bias=True, feed_forward_bias=True)
FAMILIES: Final[dict[str, Family]] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "ministral3", "phi3", "internlm2", "internlm3", "exaone"), PLAIN),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa", "minicpm", "dbrx"), PLAIN),
    **dict.fromkeys(("granite", "granitemoe", "granitemoeshared", "granitemoehybrid", "solar"), PLAIN),
    **dict.fromkeys(("jamba", "falcon_h1", "bamba", "seed_oss", "telechat3"), PLAIN),
    **dict.fromkeys(("chatglm", "minimax_m2", "ernie4_5", "bailing_moe", "smollm3", "iquestcoder"), PLAIN),
    "afmoe": Family(norms=4, query_key_norm=QueryKeyNorm.HEAD, router_bias=True, output_gate=True),
    "apertus": Family(query_key_norm=QueryKeyNorm.HEAD, activation_scalars=2),
    "axk1": Family(norms=3, router_bias=True),
    "bailing_moe_v2": Family(query_key_norm=QueryKeyNorm.HEAD_WITH_BIAS),
    **dict.fromkeys(("cohere", "cohere2", "cohere2_moe"), Family(norms=1, tied=True)),
    "ernie4_5_moe": Family(router_bias=True),
    "exaone4": _HEAD,
    "exaone_moe": Family(query_key_norm=QueryKeyNorm.HEAD, router_bias=True),
    "falcon": Family(norms=1, norm_width=2, tied=True),
    "gemma": Family(tied=True),
    "gemma2": _FOUR,
    **dict.fromkeys(("gemma3", "gemma3_text", "gemma3n_text", "gemma4", "gemma4_text"), _FOUR_HEAD),
    "glm4_moe": Family(router_bias=True),
    "glm4_moe_lite": Family(router_bias=True),
    "glm4": Family(norms=4, attention_bias=True),
    "gpt_oss": Family(attention_bias=True, output_bias=True, sinks=True),
    "gptj": Family(norms=1, norm_width=2, feed_forward_bias=True, head_bias=True),
    **dict.fromkeys(("granite_swa", "granitemoe_swa"), Family(sinks=True)),
    "hyperclovax": PLAIN,
    "lfm2": _HEAD,
    "lfm2_moe": Family(query_key_norm=QueryKeyNorm.HEAD, router_bias=True),
    "llama4_text": Family(query_key_norm=QueryKeyNorm.NONE),
    "nemotron_h": Family(norms=1, router_bias=True),
    "opt": Family(norm_width=2, attention_bias=True, output_bias=True, feed_forward_bias=True, tied=True),
    **dict.fromkeys(("gpt2", "gpt_neox", "starcoder2", "phi"), _BIASED),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "mimo"), Family(attention_bias=True)),
    **dict.fromkeys(("qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"), _HEAD),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), _HEAD),
    "olmoe": Family(query_key_norm=QueryKeyNorm.WHOLE),
    **dict.fromkeys(("orion", "nemotron"), Family(norm_width=2)),
    "PanguEmbedded": Family(output_bias=True),
    "pangu_ultra_moe": PLAIN,
    "phimoe": Family(norm_width=2, output_bias=True, head_bias=True),
    "sarvam_moe": Family(query_key_norm=QueryKeyNorm.HEAD_WITH_BIAS),
    "stablelm": Family(norm_width=2),
    "teleflm": PLAIN,
    "zamba2": _ONE,
}


def family_of(reader: ConfigReader) -> Family:
    """The family's traits; those of a plain decoder where it is not known."""
    return FAMILIES.get(reader.text("model_type"), PLAIN)
