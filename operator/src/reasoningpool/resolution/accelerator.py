"""Which devices a tier runs on."""

from __future__ import annotations

from reasoningpool.api.conditions import Reason
from reasoningpool.api.findings import Findings
from reasoningpool.api.scalars import parse_quantity
from reasoningpool.api.spec_engine import AcceleratorSpec, CustomAccelerator
from reasoningpool.catalog import accelerators, suggest_accelerators
from reasoningpool.catalog.types import AcceleratorEntry
from reasoningpool.resolution import defaults
from reasoningpool.resolution.types import EffectiveAccelerator
from reasoningpool.sizing.types import AcceleratorFacts


def resolve_accelerator(spec: AcceleratorSpec, path: str, findings: Findings) -> EffectiveAccelerator | None:
    """The accelerator from the catalog or from the spec, None where its name is unknown."""
    per_replica = spec.per_replica or 1
    if spec.custom is not None:
        return _custom(spec.custom, spec, per_replica)
    assert spec.product is not None  # the schema's rule: exactly one of the two
    entry = accelerators().get(spec.product)
    if entry is None:
        findings.error(f"{path}.product", _unknown(spec.product), Reason.UNKNOWN_ACCELERATOR)
        return None
    if entry.resource_name is None and per_replica != 1:
        findings.error(f"{path}.perReplica", "must be 1 on CPU")
    return _from_catalog(entry, spec, per_replica)


def _unknown(product: str) -> str:
    near = suggest_accelerators(product)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    known = ", ".join(accelerators())
    return f"{product!r} is not in the catalog{hint} Known: {known}. Describe others in accelerator.custom"


def _from_catalog(entry: AcceleratorEntry, spec: AcceleratorSpec, per_replica: int) -> EffectiveAccelerator:
    labels = {entry.node_label_key: entry.node_label_values} if entry.node_label_key else {}
    default = defaults.gpu_tolerations(entry.resource_name) if entry.resource_name else ()
    return EffectiveAccelerator(
        facts=entry.facts,
        per_replica=per_replica,
        resource_name=entry.resource_name,
        node_labels=labels,
        tolerations=default if spec.tolerations is None else spec.tolerations,
    )


def _custom(custom: CustomAccelerator, spec: AcceleratorSpec, per_replica: int) -> EffectiveAccelerator:
    major, minor = custom.compute_capability.split(".")
    bandwidth = None if custom.memory_bandwidth is None else float(parse_quantity(custom.memory_bandwidth))
    resource = custom.resource_name or defaults.GPU_RESOURCE
    return EffectiveAccelerator(
        facts=AcceleratorFacts(
            product="custom",
            memory_bytes=parse_quantity(custom.memory),
            compute_capability=(int(major), int(minor)),
            memory_bandwidth_bytes_per_s=bandwidth,
        ),
        per_replica=per_replica,
        resource_name=resource,
        node_labels={key: (value,) for key, value in (custom.node_selector or {}).items()},
        tolerations=defaults.gpu_tolerations(resource) if spec.tolerations is None else spec.tolerations,
    )
