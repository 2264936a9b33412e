"""Weight matrices of mixers that keep a fixed state: gated delta nets, Mamba, short convolutions."""

from __future__ import annotations

from dataclasses import replace

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.errors import GeometryError
from reasoningpool.model.integers import ceil_div
from reasoningpool.model.matrices import Matrix, Split, linear, small
from reasoningpool.model.state import Mixer, mamba_inner, read_mamba2, read_mixer, read_state


def state_matrices(reader: ConfigReader, hidden: int) -> tuple[Matrix, ...]:
    """The matrices of one mixer."""
    match read_mixer(reader):
        case Mixer.DELTA_NET:
            return _delta_net(reader, hidden)
        case Mixer.SHORT_CONVOLUTION:
            return _short_convolution(reader, hidden)
        case Mixer.MAMBA1:
            return _mamba1(reader, hidden)
        case Mixer.MAMBA2:
            return _mamba2(reader, hidden)


def _small(name: str, rows: int, columns: int = 1, *, split: Split = Split.ROWS) -> Matrix:
    """Like `small`, but cut over the ranks: most of a mixer's are."""
    return small(name, rows, columns, split=split)


def _delta_net(reader: ConfigReader, hidden: int) -> tuple[Matrix, ...]:
    """Qwen3-Next and Qwen3.5. The gate projections (b, a) stay 16 bit in the published checkpoints."""
    keys = reader.integer("linear_num_key_heads", high=10**4) * reader.integer("linear_key_head_dim", high=10**4)
    value_heads = reader.integer("linear_num_value_heads", high=10**4)
    value_dim = reader.integer("linear_value_head_dim", high=10**4)
    values = value_heads * value_dim
    kernel = reader.integer("linear_conv_kernel_dim", high=64, default=4)
    return (
        linear("linear_attn.in_proj_qkvz", 2 * keys + 2 * values, hidden, Split.ROWS),
        linear("linear_attn.out_proj", hidden, values, Split.COLUMNS),
        _small("linear_attn.in_proj_ba", 2 * value_heads, hidden),
        _small("linear_attn.conv1d", 2 * keys + values, kernel),
        _small("linear_attn.A_log", 2 * value_heads),  # with dt_bias
        _small("linear_attn.norm", value_dim, split=Split.NONE),
    )


def _mamba2(reader: ConfigReader, hidden: int) -> tuple[Matrix, ...]:
    shape = read_mamba2(reader, hidden)
    grouped = 2 * shape.groups * shape.state  # B and C, repeated where there are more ranks than groups
    bias = reader.flag("mamba_conv_bias", default=True) and reader.flag("use_conv_bias", default=True)
    normed = reader.flag("mamba_rms_norm", default=reader.text("model_type") != "falcon_h1")
    taps = shape.kernel + (1 if bias else 0)
    inputs = linear("mixer.in_proj", 2 * shape.inner + shape.heads, hidden, Split.ROWS, tensor="mixer.in_proj")
    return (
        inputs,
        replace(inputs, rows=grouped, units=shape.groups),
        linear("mixer.out_proj", hidden, shape.inner, Split.COLUMNS),
        _small("mixer.conv1d", shape.inner, taps),
        replace(_small("mixer.conv1d", grouped, taps), units=shape.groups),
        _small("mixer.A", 3 * shape.heads),  # with D and dt_bias
        *(_small("mixer.norm", shape.inner),) * normed,
    )


def _mamba1(reader: ConfigReader, hidden: int) -> tuple[Matrix, ...]:
    inner = mamba_inner(reader, hidden)
    state = reader.integer("mamba_d_state", high=4_096)
    stated = reader.values.get("mamba_dt_rank")
    rank = ceil_div(hidden, 16) if stated in (None, "auto") else reader.integer("mamba_dt_rank", high=10**5)
    kernel = reader.integer("mamba_d_conv", high=64, default=4)
    bias = reader.flag("mamba_conv_bias", default=True)
    return (
        linear("mamba.in_proj", 2 * inner, hidden, Split.ROWS),
        linear("mamba.out_proj", hidden, inner, Split.COLUMNS),
        _small("mamba.x_proj", rank + 2 * state, inner, split=Split.COLUMNS),
        _small("mamba.dt_proj", inner, rank + 1),
        _small("mamba.conv1d", inner, kernel + (1 if bias else 0)),
        _small("mamba.A", inner, state + 1),  # with D
        _small("mamba.norms", rank + 2 * state, split=Split.NONE),
    )


def _short_convolution(reader: ConfigReader, hidden: int) -> tuple[Matrix, ...]:
    state = read_state(reader, hidden)
    if state.channels != hidden:
        message = f"conv_dim is {state.channels}, which is not the hidden size {hidden}"
        raise GeometryError(message, field="conv_dim")
    return (
        linear("conv.in_proj", 3 * hidden, hidden, Split.ROWS),
        linear("conv.out_proj", hidden, hidden, Split.COLUMNS),
        _small("conv.conv", hidden, state.conv_kernel),
    )
