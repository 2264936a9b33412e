"""What the memory model stands on for a given start-up, and how much wider its promise is where that is little.

The start-ups that calibrate are sorted by engine generation, kind of device and features of the model. A plan of a
class with fewer than three of them is promised less: the class may hold something the model has not seen. How much is
the size of the errors of such rows before their own class was among the evidence, the median of 2.8 (kv201, the first
with a vision tower), 2.3 (kv209, Model Runner V2), 4.6 (kv215, experts on 0.26), 0.6 (kv046) and 0.6 (kv062) percent of
the GPU; docs/sizing.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reasoningpool.model.geometry import Geometry
from reasoningpool.model.quantization import WeightFormat
from reasoningpool.sizing import constants as c
from reasoningpool.sizing.types import AcceleratorFacts, EngineVersion

WITHOUT_NVLINK: Final = ((7, 5), (8, 6), (8, 9), (12, 0), (12, 1))  # workstation, consumer and inference cards
_UNIFIED: Final = ((12, 1),)
_FOUR_BITS: Final = (WeightFormat.INT4, WeightFormat.INT4_EXPERTS, WeightFormat.BNB4, WeightFormat.NVFP4)
# Share of the GPU's memory that the promise is lower for a class with so many start-ups.
_WIDER: Final = {0: 0.023, 1: 0.012, 2: 0.008}

_V0, _V1, _COUNTED, _SECOND = "before 0.8", "0.8 to 0.20", "since 0.21", "with Model Runner V2"
_ONE, _JOINED, _PCIE = "one data-centre GPU", "several with NVLink", "several without NVLink"
_PCIE_ONE, _SHARED = "one other GPU", "memory shared with the CPU"
_DENSE, _EXPERTS, _STATE, _TOWERS, _BITS, _SLIDING = (
    "dense", "experts", "fixed state", "vision or audio towers", "4-bit weights", "sliding windows",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StartUp:
    """A start-up whose printed KV memory calibrates."""

    id: str
    engine: str
    device: str
    features: frozenset[str]


def _row(identifier: str, engine: str, device: str, *features: str) -> StartUp:
    return StartUp(identifier, engine, device, frozenset(features))


START_UPS: Final = (
    _row("kv004", _V0, _PCIE, _DENSE),
    _row("kv041", _V1, _ONE, _EXPERTS, _SLIDING),
    _row("kv042", _COUNTED, _ONE, _EXPERTS, _SLIDING, _TOWERS),
    _row("kv044", _V1, _ONE, _EXPERTS, _SLIDING),
    _row("kv046", _V1, _JOINED, _DENSE),
    _row("kv050", _V1, _ONE, _DENSE),
    _row("kv051", _V1, _ONE, _DENSE),
    _row("kv062", _V1, _JOINED, _EXPERTS, _STATE),
    _row("kv066", _V1, _ONE, _DENSE),
    _row("kv092", _V0, _ONE, _DENSE, _BITS),
    _row("kv093", _V0, _ONE, _DENSE, _BITS),
    _row("kv201", _V1, _PCIE_ONE, _DENSE, _STATE, _TOWERS),
    _row("kv204", _COUNTED, _SHARED, _DENSE, _STATE, _TOWERS, _BITS),
    _row("kv209", _SECOND, _PCIE_ONE, _DENSE),
    _row("kv215", _COUNTED, _JOINED, _EXPERTS, _STATE, _TOWERS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What stands behind a plan's memory figures."""

    engine: str
    device: str
    scarcest: str  # the feature of the model with the fewest start-ups on this engine generation
    on_engine: tuple[str, ...]  # ids of start-ups with that feature on this generation
    on_device: tuple[str, ...]  # ids of start-ups of this kind of device

    @property
    def wider_shares(self) -> tuple[float, float]:
        """Shares of the GPU's memory by which the promise is lower, for the model on the engine and for the device."""
        return _WIDER.get(len(self.on_engine), 0.0), _WIDER.get(len(self.on_device), 0.0)

    def words(self) -> str:
        """One line for people."""

        def named(ids: tuple[str, ...]) -> str:
            return f"{len(ids)} ({', '.join(ids)})" if ids else "none"

        return (
            f"start-ups behind it: {self.scarcest} on engines {self.engine} {named(self.on_engine)}, "
            f"{self.device} {named(self.on_device)}; the fewer, the larger the reserve"
        )


def evidence(
    geometry: Geometry,
    accelerator: AcceleratorFacts,
    *,
    ranks: int,
    version: EngineVersion | None,
    second_runner: bool,
    towers: bool,
) -> Evidence:
    """The start-ups that are like this one. An unknown version is the newest."""
    engine, device = _engine(version, second_runner=second_runner), _device(accelerator, ranks)
    found = {
        feature: tuple(row.id for row in START_UPS if row.engine == engine and feature in row.features)
        for feature in _features(geometry, towers=towers)
    }
    scarcest = min(found, key=lambda feature: len(found[feature]))
    return Evidence(
        engine=engine,
        device=device,
        scarcest=scarcest,
        on_engine=found[scarcest],
        on_device=tuple(row.id for row in START_UPS if row.device == device),
    )


def _engine(version: EngineVersion | None, *, second_runner: bool) -> str:
    if version is not None and version < c.FIRST_COMPILED:
        return _V0
    if second_runner:
        return _SECOND
    return _V1 if version is not None and version < c.FIRST_GRAPHS_COUNTED else _COUNTED


def _device(accelerator: AcceleratorFacts, ranks: int) -> str:
    capability = accelerator.compute_capability
    if capability in _UNIFIED:
        return _SHARED
    if ranks > 1:
        return _PCIE if capability in WITHOUT_NVLINK else _JOINED
    return _PCIE_ONE if capability in WITHOUT_NVLINK else _ONE


def _features(geometry: Geometry, *, towers: bool) -> tuple[str, ...]:
    found = [_EXPERTS if geometry.weights.experts_total else _DENSE]
    found += [_STATE] * geometry.is_hybrid + [_TOWERS] * towers + [_SLIDING] * bool(geometry.sliding_layers)
    return (*found, *[_BITS] * (geometry.weight_format in _FOUR_BITS))
