"""Weights and work space of encoders beside the language model."""

from __future__ import annotations

from typing import Any

import pytest

from reasoningpool.model.errors import GeometryError
from reasoningpool.model.towers import Modality, image_tokens, tower_bytes

QWEN35 = {
    "hidden_size": 1152, "depth": 27, "intermediate_size": 4304, "out_hidden_size": 4096, "patch_size": 16,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
}  # fmt: skip
QWEN25_VL = {
    "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "patch_size": 14, "image_size": 896,
}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "tower", "hidden", "billions"),
    [
        ("qwen3_5", QWEN35, 4096, 0.456),
        ("qwen2_5_vl", QWEN25_VL, 3584, 0.676),
        ("gemma3", SIGLIP, 3840, 0.42),
    ],
)
def test_parameters_of_a_vision_tower_are_the_published_ones(
    family: str, tower: dict[str, Any], hidden: int, billions: float
) -> None:
    found = tower_bytes({"model_type": family, "vision_config": tower}, hidden)
    assert found[Modality.IMAGE] / 2e9 == pytest.approx(billions, rel=0.01)


def test_a_model_of_text_alone_has_no_tower() -> None:
    assert tower_bytes({"model_type": "qwen3"}, 4096) == {}
    assert image_tokens({"model_type": "qwen3"}) == 0


def test_a_tower_without_dimensions_is_refused_with_what_to_do() -> None:
    with pytest.raises(GeometryError, match=r"model\.modalities: \[Text\]"):
        tower_bytes({"model_type": "x", "vision_config": {"depth": 3}}, 4096)
