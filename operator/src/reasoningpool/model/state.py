"""Fixed per-request state of linear-attention, Mamba and short-convolution layers.

Shapes as in vLLM's `MambaStateShapeCalculator` (`model_executor/layers/mamba/mamba_utils.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.errors import GeometryError, SizingError

_CONV_BYTES: Final = 2  # convolution state is kept in the model's 16-bit type
_MAX_HEADS: Final = 4_096
_MAX_WIDTH: Final = 10**6
_STATE_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2, "auto": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateGeometry:
    """State of one layer: a window of convolution inputs and a recurrent matrix per head.

    `channels` pass the convolution; those of the B and C `groups` (Mamba-2) come on top. `keys` names the
    configuration entries, for messages.
    """

    channels: int
    conv_kernel: int
    heads: int  # 0: no recurrent state (short convolution)
    head_elements: int
    ssm_bytes: int
    groups: int = 0
    group_channels: int = 0
    speculative_window: bool = True  # drafted tokens lengthen the convolution window
    heads_key: str = "mamba_n_heads"
    checkpoint_blocks: int = 0  # beside the running state where prefixes are cached: one for Mamba-2 (since 0.32)

    def bytes_per_layer(self, tensor_parallel: int, *, speculative_tokens: int = 0, cpu: bool = False) -> int:
        """State bytes of one layer on one rank.

        `channels / tp * (kernel - 1 + drafted) * 2 + heads / tp * elements * ssm_bytes`. Groups that do not divide
        over the ranks are repeated so that each rank has those of its heads. Qwen3-Next at TP 1: 1,097,728.
        """
        if self.heads % tensor_parallel or self.channels % tensor_parallel:
            message = (
                f"perReplica is {tensor_parallel}, which does not divide the model's {self.heads} state heads "
                f"({self.heads_key}) or its {self.channels} convolution channels"
            )
            raise SizingError(message, attribute="tensor_parallel_size")
        groups = self.groups if self.groups % tensor_parallel == 0 else tensor_parallel
        channels = (self.channels + groups * self.group_channels) // tensor_parallel
        window = self.conv_kernel - 1 + (speculative_tokens if self.speculative_window else 0)
        ssm_bytes = 4 if cpu else self.ssm_bytes  # vLLM's CPU platform keeps the recurrent state in 32 bit
        return channels * window * _CONV_BYTES + self.heads // tensor_parallel * self.head_elements * ssm_bytes


class Mixer(Enum):
    """The kinds of layers with a fixed state."""

    DELTA_NET = auto()
    SHORT_CONVOLUTION = auto()
    MAMBA1 = auto()
    MAMBA2 = auto()


def read_state(reader: ConfigReader, hidden: int) -> StateGeometry:
    """The state of a model's recurrent layers. Raises `GeometryError` when the configuration does not tell."""
    match read_mixer(reader):
        case Mixer.DELTA_NET:
            return _delta_net(reader)
        case Mixer.SHORT_CONVOLUTION:
            return _short_convolution(reader, hidden)
        case Mixer.MAMBA1:
            return _mamba1(reader, hidden)
        case Mixer.MAMBA2:
            return _mamba2(reader, hidden)


def read_mixer(reader: ConfigReader) -> Mixer:
    """The kind of a model's recurrent layers. Raises `GeometryError` when the configuration does not tell."""
    if reader.present("linear_num_value_heads") or reader.present("linear_num_key_heads"):
        return Mixer.DELTA_NET
    if reader.present("conv_L_cache"):
        return Mixer.SHORT_CONVOLUTION
    if reader.text("model_type") == "jamba" or reader.present("mamba_dt_rank"):
        return Mixer.MAMBA1
    if reader.present("mamba_d_state") or reader.present("ssm_state_size"):
        return Mixer.MAMBA2
    message = (
        "the model has layers with a fixed state, but neither linear_num_key_heads (gated delta net), "
        "mamba_d_state or ssm_state_size (Mamba) nor conv_L_cache (short convolution) says how large"
    )
    raise GeometryError(message, field="linear_num_key_heads")


def _ssm_bytes(reader: ConfigReader, default: str = "auto") -> int:
    name = reader.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default=default)
    if name not in _STATE_BYTES:
        message = f"mamba_ssm_dtype is {name[:40]!r}; supported: {', '.join(sorted(_STATE_BYTES))}"
        raise GeometryError(message, field="mamba_ssm_dtype")
    return _STATE_BYTES[name]


def _delta_net(reader: ConfigReader) -> StateGeometry:
    key_heads = reader.integer("linear_num_key_heads", high=_MAX_HEADS)
    value_heads = reader.integer("linear_num_value_heads", high=_MAX_HEADS)
    key_dim = reader.integer("linear_key_head_dim", high=_MAX_HEADS)
    value_dim = reader.integer("linear_value_head_dim", high=_MAX_HEADS)
    return StateGeometry(
        channels=2 * key_heads * key_dim + value_heads * value_dim,
        conv_kernel=reader.integer("linear_conv_kernel_dim", high=64, default=4),
        heads=value_heads,
        head_elements=key_dim * value_dim,
        ssm_bytes=_ssm_bytes(reader),
        heads_key="linear_num_value_heads",
    )


def _short_convolution(reader: ConfigReader, hidden: int) -> StateGeometry:
    return StateGeometry(
        channels=reader.integer("conv_dim", high=_MAX_WIDTH, default=hidden),
        conv_kernel=reader.integer("conv_L_cache", high=64),
        heads=0,
        head_elements=0,
        ssm_bytes=2,
        speculative_window=False,
        heads_key="conv_dim",
    )


def _mamba1(reader: ConfigReader, hidden: int) -> StateGeometry:
    inner = mamba_inner(reader, hidden)
    return StateGeometry(
        channels=inner,
        conv_kernel=reader.integer("mamba_d_conv", high=64, default=4),
        heads=inner,
        head_elements=reader.integer("mamba_d_state", high=_MAX_HEADS),
        ssm_bytes=_ssm_bytes(reader),
        speculative_window=False,
        heads_key="mamba_expand",
    )


def _mamba2(reader: ConfigReader, hidden: int) -> StateGeometry:
    shape = read_mamba2(reader, hidden)
    # Nemotron-H is the family whose default is 32 bit.
    default = "float32" if reader.text("model_type") == "nemotron_h" else "auto"
    return StateGeometry(
        channels=shape.inner,
        conv_kernel=shape.kernel,
        heads=shape.heads,
        head_elements=shape.head_dim * shape.state,
        ssm_bytes=_ssm_bytes(reader, default),
        groups=shape.groups,
        group_channels=2 * shape.state,
        checkpoint_blocks=1,
        heads_key=shape.heads_key,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Shape:
    """Dimensions of a Mamba-2 mixer."""

    inner: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    heads_key: str


def mamba_inner(reader: ConfigReader, hidden: int) -> int:
    """Inner width of a Mamba mixer: stated, or `mamba_expand` times the hidden size."""
    stated = reader.optional("mamba_d_ssm", low=1, high=_MAX_WIDTH)
    if stated is not None:
        return stated
    return int(reader.number("mamba_expand", low=0.1, high=64, default=2) * hidden)


def read_mamba2(reader: ConfigReader, hidden: int) -> Mamba2Shape:
    """Dimensions under any family's names."""
    heads_key = next((k for k in ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads") if reader.present(k)), None)
    heads = reader.integer("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", high=_MAX_HEADS)
    nemotron = reader.present("mamba_num_heads") and reader.present("mamba_head_dim")
    if nemotron:
        head_dim = reader.integer("mamba_head_dim", high=_MAX_HEADS)
        inner = heads * head_dim
    else:
        inner = mamba_inner(reader, hidden)
        stated = reader.values.get("mamba_d_head", reader.values.get("mamba_headdim"))
        if stated in (None, "auto"):
            head_dim = max(1, inner // heads)
        else:
            head_dim = reader.integer("mamba_d_head", "mamba_headdim", high=_MAX_HEADS)
        if heads * head_dim != inner:
            message = f"mamba_d_head is {head_dim}, but {heads} heads of it are not the inner width {inner}"
            raise GeometryError(message, field="mamba_d_head")
    groups = reader.integer("mamba_n_groups", "n_groups", "mamba_ngroups", high=_MAX_HEADS, default=1)
    return Mamba2Shape(
        inner=inner,
        heads=heads,
        head_dim=head_dim,
        state=reader.integer("mamba_d_state", "ssm_state_size", high=_MAX_HEADS),
        groups=groups,
        kernel=reader.integer("mamba_d_conv", "conv_kernel", high=64, default=4),
        heads_key=heads_key or "mamba_n_heads",
    )
