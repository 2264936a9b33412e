"""Run vLLM's own KV cache planner over many models. Run by `engine.kv_planner` under the engine's Python.

Standard input: a JSON list of cases (see `engine.kv_planner.Case`). The file named on the command line receives a JSON
list of objects in the same order: `{"plan": {...}}` or `{"error": "..."}`.

The models are vLLM's own classes with the dimensions of their configurations, made on torch's `meta` device, so that
nothing is allocated: one rank of a tensor- and pipeline-parallel group whose other ranks do not exist (torch's `fake`
process group). What the CPU build decides otherwise than a GPU does is put back: block sizes and packing of the GPU
attention backends, asynchronous scheduling, prefix caching, the type of the recurrent state.
"""

# mypy: disable-error-code="import-not-found, misc, no-untyped-call"

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR"}

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.config.vllm import get_layers_from_vllm_config
from vllm.distributed import parallel_state
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry
from vllm.platforms import current_platform
from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import Platform
from vllm.transformers_utils.config import _CONFIG_REGISTRY
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import AttentionSpec
from vllm.v1.worker.utils import customize_attention_spec


def as_on_gpu(kernel_block: int) -> None:
    """Give the CPU backends the block sizes and the packing of the GPU backends."""
    for backend in (CPUAttentionBackend, CPUMLABackend):
        backend.get_supported_kernel_block_sizes = staticmethod(lambda _spec=None: [MultipleOf(kernel_block)])
        backend.supports_block_size = classmethod(
            lambda cls, block: block is None or block % cls.get_supported_kernel_block_sizes()[0].base == 0
        )
        backend.supports_kv_cache_dtype = classmethod(lambda _cls, _dtype: True)
        backend.supported_kv_cache_layouts = classmethod(lambda _cls: None)
    CPUAttentionBackend.customize_spec = classmethod(lambda _cls, spec: packed(spec))

    def backend_of(_cls: Any, /, *_: Any, attn_selector_config: Any, **__: Any) -> str:
        chosen = AttentionBackendEnum.CPU_MLA if attn_selector_config.use_mla else AttentionBackendEnum.CPU_ATTN
        return str(chosen.get_path())

    CpuPlatform.get_attn_backend_cls = classmethod(backend_of)
    MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)  # it would wait for the other ranks
    CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _self: False


def packed(spec: AttentionSpec) -> AttentionSpec:
    """What the GPU backend of the KV type makes of a layer's cache."""
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
    from vllm.v1.attention.backends.turboquant_attn import TurboQuantAttentionBackend

    mode = spec.kv_quant_mode
    if mode.is_per_token_head:
        return TritonAttentionBackend.customize_spec(spec)
    if mode.is_turboquant:
        return TurboQuantAttentionBackend.customize_spec(spec)
    if mode.is_nvfp4 and spec.state_content_bytes is None:  # the FlashInfer backend, which needs flashinfer to import
        from vllm.utils.torch_utils import nvfp4_kv_cache_full_dim

        width = nvfp4_kv_cache_full_dim(spec.head_size)
        return replace(spec, num_head_slots=2 * spec.num_kv_heads, state_content_bytes=width)
    return spec


@contextlib.contextmanager
def ranks(tensor_parallel: int, pipeline_parallel: int, stage: int) -> Iterator[None]:
    """This process as the first rank of a pipeline stage, in a group whose other ranks do not exist."""
    new_group = dist.new_group

    world = tensor_parallel * pipeline_parallel
    dist.init_process_group("fake", store=FakeStore(), rank=stage * tensor_parallel, world_size=world)
    dist.new_group = lambda members=None, **_: new_group(members, backend="fake")
    try:
        parallel_state.init_distributed_environment(
            world_size=world, rank=stage * tensor_parallel, local_rank=0, backend="fake"
        )
        parallel_state.initialize_model_parallel(tensor_parallel, pipeline_parallel)
        yield
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()
        dist.new_group = new_group
        if dist.is_initialized():
            dist.destroy_process_group()


def load_in_this_process() -> None:
    """Look at model classes here: vLLM takes a process of its own for each, 8 s at a time."""
    registry._LazyRegisteredModel.inspect_model_cls = lambda self: registry._ModelInfo.from_model_cls(
        self.load_model_cls()
    )


def values_of_meta_tensors() -> None:
    """Zeros for models that look at values while they are made (ALiBi slopes, learned activations)."""
    tolist, item, cpu = torch.Tensor.tolist, torch.Tensor.item, torch.Tensor.cpu
    torch.Tensor.cpu = lambda self, *_, **__: self if self.is_meta else cpu(self)
    torch.Tensor.tolist = lambda self: [0.0] * self.numel() if self.is_meta and self.ndim == 1 else tolist(self)
    torch.Tensor.item = lambda self: 0.0 if self.is_meta else item(self)


def register(config: dict[str, Any]) -> None:
    """A configuration class for a family whose own comes with its checkpoints: the file's keys as attributes."""
    kind = config.get("model_type", "")
    if kind and kind not in CONFIG_MAPPING and kind not in _CONFIG_REGISTRY:
        AutoConfig.register(kind, type(f"{kind}Config", (PretrainedConfig,), {"model_type": kind}))


def model_directory(config: dict[str, Any]) -> Path:
    register(config)
    path = Path(tempfile.mkdtemp(prefix="kv-plan-"))
    (path / "config.json").write_text(json.dumps(config))
    return path


def engine_config(case: dict[str, Any]) -> Any:
    speculative = case["speculative"]
    if speculative is not None and "config" in speculative:
        draft = model_directory(speculative["config"])
        speculative = {k: v for k, v in speculative.items() if k != "config"} | {"model": str(draft)}
    arguments = EngineArgs(
        model=str(model_directory(case["config"])),
        load_format="dummy",
        dtype="bfloat16",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=case["max_model_len"],
        max_num_batched_tokens=case["batched_tokens"],
        max_num_seqs=case["max_num_seqs"],
        kv_cache_dtype=case["dtype"],
        enable_prefix_caching=case["prefix_caching"],
        enable_chunked_prefill=True,
        disable_hybrid_kv_cache_manager=not case["hybrid_manager"],
        tensor_parallel_size=case["tensor_parallel"],
        pipeline_parallel_size=case["pipeline_parallel"],
        decode_context_parallel_size=case["context_parallel"],
        distributed_executor_backend="mp",
        speculative_config=speculative,
    )
    config = arguments.create_engine_config()
    # The CPU platform changes these; a GPU keeps them.
    config.scheduler_config.async_scheduling = True
    config.scheduler_config.max_num_batched_tokens = case["batched_tokens"]
    config.cache_config.enable_prefix_caching = case["prefix_caching"]
    if case["ssm_dtype"] is not None:
        config.cache_config.mamba_ssm_cache_dtype = case["ssm_dtype"]
    config.cache_config.block_size = case["block_size"]
    config.cache_config.user_specified_block_size = True
    return config


def stage_specs(case: dict[str, Any], config: Any, stage: int) -> tuple[dict[str, Any], int]:
    """The cache specification of every layer of a pipeline stage, and the parameters of one rank of it."""
    context = config.compilation_config.static_forward_context
    context.clear()
    with (
        set_current_vllm_config(config),
        ranks(case["tensor_parallel"], case["pipeline_parallel"], stage),
        set_default_torch_dtype(torch.bfloat16),
        torch.device("meta"),
    ):
        model = initialize_model(config)
        drafted = config.speculative_config
        if drafted is not None and stage == case["pipeline_parallel"] - 1:
            own = copy.copy(config)
            if drafted.method == "draft_model":
                own.model_config = drafted.draft_model_config
            prefix = "draft_model" if drafted.method == "draft_model" else ""
            initialize_model(own, model_config=drafted.draft_model_config, prefix=prefix)
        Platform.update_block_size_for_backend.__func__(type(current_platform), config)
        specs = {}
        for name, layer in get_layers_from_vllm_config(config, AttentionLayerBase).items():
            if getattr(layer, "kv_sharing_target_layer_name", None) is not None:
                continue  # as the model runner does
            spec = layer.get_kv_cache_spec(config)
            if isinstance(spec, AttentionSpec):
                spec = customize_attention_spec(layer.get_attn_backend(), spec)
            if spec is not None:
                specs[name] = spec
    return specs, sum(parameter.numel() for parameter in model.parameters())


RUNNER = VllmConfig.use_v2_model_runner


def capacity(case: dict[str, Any], config: Any, workers: list[dict[str, Any]]) -> tuple[Any, Any, int, float]:
    """The plans of the workers and of the scheduler, and what they hold, for the length in `config`."""
    available = [case["pool_bytes"]] * len(workers)
    made = kv_cache_utils.get_kv_cache_configs(config, copy.deepcopy(workers), available)
    scheduler = kv_cache_utils.generate_scheduler_kv_cache_config(made)
    return made, scheduler, *kv_cache_utils.get_kv_cache_capacity(config, scheduler)


def plan(case: dict[str, Any]) -> dict[str, Any]:
    VllmConfig.use_v2_model_runner = RUNNER
    as_on_gpu(case["kernel_block"])
    config = engine_config(case)
    workers, parameters = [], []
    for stage in range(case["pipeline_parallel"]):
        specs, held = stage_specs(case, config, stage)
        parameters.append(held)
        workers += [specs] * case["tensor_parallel"]
    VllmConfig.use_v2_model_runner = property(lambda _self: True)  # the GPU's, which keeps a batch more in the pipeline
    config.cache_config.kv_cache_layout = "LBNHC"  # what FlashAttention and Triton prefer
    more = []
    for length in case["more_lengths"]:
        config.model_config.max_model_len = length
        more.append(capacity(case, config, workers)[2])
    config.model_config.max_model_len = case["max_model_len"]
    made, scheduler, tokens, concurrency = capacity(case, config, workers)
    groups = [
        {
            "kind": type(group.kv_cache_spec).__name__,
            "layers": len(group.layer_names),
            "block_size": group.kv_cache_spec.block_size,
            "blocks": math.ceil(
                group.kv_cache_spec.max_memory_usage_bytes(config) / group.kv_cache_spec.page_size_bytes
            ),
        }
        for group in scheduler.kv_cache_groups
    ]
    return {
        "groups": groups,
        "num_blocks": scheduler.num_blocks,
        "bytes_per_block": max(kv_cache_utils._pool_bytes_per_block(config, worker.kv_cache_groups) for worker in made),
        "tokens": tokens,
        "more_tokens": more,
        "concurrency": concurrency,
        "parameters": parameters,
    }


def answer(case: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"plan": plan(case)}
    except Exception as error:  # noqa: BLE001 - the test tells which case failed and how
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("output", type=Path)
    output: Path = options.parse_args().output
    load_in_this_process()
    values_of_meta_tensors()
    output.write_text(json.dumps([answer(case) for case in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
