"""Encoders of other modalities beside the language model: what their weights take.

Vision and audio towers stay 16 bit in quantized checkpoints, and vLLM cuts their linear layers over the ranks as it
does the language model's. Parameters follow from the dimensions: `depth` layers of attention and feed-forward, the
patch embedding, positions, and the projector into the language model's hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.errors import GeometryError

_BYTES: Final = 2
# Values that pass a vision tower per patch: two of its feed-forward's width (before and after the activation) and six
# of its hidden size (queries, keys, values, attention's result, the residual and its norm). kv201: 65,536 patches of
# Qwen3.5's tower are 1.9 GiB so, and the start-up lost 1.9 GiB.
_INNER_COPIES: Final = 2
_HIDDEN_COPIES: Final = 6
# Tokens of the largest image, where a family's processor allows more than a few hundred: a processor's default of
# 16,777,216 pixels over 32 x 32 (Qwen3-VL and 3.5), 12,845,056 over 28 x 28 (Qwen2-VL and 2.5-VL).
_LARGEST_IMAGE: Final = (
    ("qwen3", 16_384),
    ("qwen2", 16_384),
    ("glm4v", 6_084),
    ("pixtral", 3_025),
    ("mistral3", 3_025),
)
_OTHER_IMAGE: Final = 576
_GATED: Final = ("qwen2_5_vl", "pixtral", "mistral3", "gemma4")
_VISION_KEYS: Final = ("vision_config", "vision_tower_config")
_AUDIO_KEYS: Final = ("audio_config", "audio_encoder_config")


TOWER_KEYS: Final = (*_VISION_KEYS, *_AUDIO_KEYS)


class Modality(StrEnum):
    """What a model can be given."""

    TEXT = "Text"
    IMAGE = "Image"
    AUDIO = "Audio"


def tower_bytes(config: Mapping[str, Any], hidden: int) -> dict[Modality, int]:
    """Bytes of each tower over all GPUs of a replica; empty for models of text alone.

    Qwen3.5-9B: 0.85 GiB. Raises `GeometryError` for a tower whose dimensions are not told.
    """
    found = {}
    for modality, keys, count in (
        (Modality.IMAGE, _VISION_KEYS, _vision_parameters),
        (Modality.AUDIO, _AUDIO_KEYS, _audio_parameters),
    ):
        inner = next((config[key] for key in keys if isinstance(config.get(key), Mapping) and config[key]), None)
        if inner is not None:
            kind = str(inner.get("model_type") or config.get("model_type") or "")
            found[modality] = _BYTES * count(ConfigReader(inner), kind, hidden)
    return found


def image_tokens(config: Mapping[str, Any]) -> int:
    """Tokens of the largest image the model takes, 0 without a vision tower."""
    tower = next((config[key] for key in _VISION_KEYS if isinstance(config.get(key), Mapping) and config[key]), None)
    if tower is None:
        return 0
    kind = str(tower.get("model_type") or config.get("model_type") or "")
    return next((tokens for start, tokens in _LARGEST_IMAGE if kind.startswith(start)), _OTHER_IMAGE)


def image_peak_bytes(config: Mapping[str, Any]) -> int:
    """What the tower's widest layer takes for one image token (`spatial_merge_size` squared patches), uncut."""
    tower = next((config[key] for key in _VISION_KEYS if isinstance(config.get(key), Mapping) and config[key]), None)
    if tower is None:
        return 0
    reader = ConfigReader(tower)
    hidden = _width(reader, "embed_dim", "hidden_size", "vt_hidden_size", "width")
    usual = int(hidden * reader.number("mlp_ratio", low=0.1, high=100, default=4))
    inner = reader.integer("intermediate_size", "vt_intermediate_size", default=usual)
    merge = reader.optional("spatial_merge_size", low=1, high=100) or 1
    return merge * merge * _BYTES * (_INNER_COPIES * inner + _HIDDEN_COPIES * hidden)


def _vision_parameters(tower: ConfigReader, kind: str, text: int) -> int:
    hidden = _width(tower, "embed_dim", "hidden_size", "vt_hidden_size", "width")
    depth = _width(tower, "depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
    usual = int(hidden * tower.number("mlp_ratio", low=0.1, high=100, default=4))
    inner = tower.integer("intermediate_size", "vt_intermediate_size", default=usual)
    gated = kind.startswith(_GATED)
    layer = 4 * hidden * hidden + (3 if gated else 2) * hidden * inner + 9 * hidden + inner
    patch = tower.optional("patch_size", "patch_temporal_size", low=1) or 14
    pixels = patch * patch * (tower.optional("in_channels", "in_chans", "num_channels", low=1) or 3)
    frames = tower.optional("temporal_patch_size", low=1) or 1
    places = tower.optional("num_position_embeddings", low=1)
    if places is None:
        image = tower.optional("image_size", low=1)
        places = (image // patch) ** 2 if image is not None else 0
    return depth * layer + pixels * frames * hidden + places * hidden + _projector(tower, hidden, kind, text)


def _projector(tower: ConfigReader, hidden: int, kind: str, text: int) -> int:
    """The way into the language model: two layers over patches merged by `spatial_merge_size`, or one."""
    merge = tower.optional("spatial_merge_size", low=1)
    if merge is None:
        return hidden * text + (hidden * text if "siglip" not in kind and not kind.startswith("gemma") else 0)
    wide = hidden * merge * merge
    out = tower.optional("out_hidden_size", low=1) or text
    further = tower.values.get("deepstack_visual_indexes")
    mergers = 1 + (len(further) if isinstance(further, (list, tuple)) else 0)
    return mergers * (wide * wide + wide * out + wide + out)


def _audio_parameters(tower: ConfigReader, _kind: str, text: int) -> int:
    """Whisper-like encoders: attention, a feed-forward, two convolutions and a projector."""
    hidden = _width(tower, "d_model", "hidden_size")
    depth = _width(tower, "encoder_layers", "num_hidden_layers", "conf_num_hidden_layers")
    inner = tower.integer("encoder_ffn_dim", "intermediate_size", default=4 * hidden)
    mel = tower.optional("num_mel_bins", "input_feat_size", low=1) or 128
    layer = 4 * hidden * hidden + 2 * hidden * inner + 9 * hidden + inner
    return depth * layer + 3 * hidden * (mel + hidden) + hidden * text


def _width(tower: ConfigReader, *keys: str) -> int:
    if not any(tower.present(key) for key in keys):
        message = (
            f"the model has a tower for images or sound, and its configuration has no {' or '.join(keys)}; complete "
            "it, or serve text alone (model.modalities: [Text])"
        )
        raise GeometryError(message, field=keys[0])
    return tower.integer(*keys, high=10**6)
