"""Flags of `vllm serve` that `engine.extraArgs` may give: with a warning, or freely; and the values they must not have.

A warning says what the sizing, the probes or the API key cannot see of the flag. A flag is free only if it was
judged to touch none of memory, parallelism, ports, health and lifecycle, or to use less than is planned for.
"""

from __future__ import annotations

from typing import Final

from reasoningpool.vllm.argument_policy import OWNED

_ADAPTERS: Final = "adapters take memory the sizing does not count: state engine.kvCacheMemory or a lower maxNumSeqs"
_GRAPHS: Final = "CUDA graphs then take other memory than the sizing counts"
_KERNELS: Final = "other kernels and buffers may take more memory than the sizing counts"
_BATCHES: Final = "batches are then run in another way than the sizing's activation peak assumes"
_EXPERTS: Final = "experts are then spread in another way than the sizing assumes, with buffers and copies of their own"
_LAYOUT: Final = "the KV cache may then have other blocks than the sizing assumes"
_MEDIA: Final = "media processing takes memory that the sizing does not count"
_SHARED_MEMORY: Final = "it takes /dev/shm: raise podOverrides.sharedMemory"
_HOST: Final = "it takes host memory that the pod's request does not count: raise it in podOverrides"
_OUTPUTS: Final = "it keeps more per token than the sizing's activation peak counts"
_MODEL: Final = "it changes how the model is built, which the sizing cannot see"
_CODE: Final = "code that is not vLLM's takes a part in the engine: what it does to memory and requests is not known"
_TRANSFER: Final = "its buffers, ports and shutdown are outside the plan"
_PORT: Final = "it opens a port that the API key does not protect"
_CONTROL: Final = "it opens endpoints that disturb running requests or read what they should not"
_SLEEP: Final = "an engine that sleeps serves nothing, while its probes still pass"
_FAILS: Final = "it lets the engine stop, or stay, in cases where the probes expect the opposite"
_CLIENTS: Final = "a request can then make the engine fail or take more than was planned for"

# Let through: what the user should know, said once per reason.
WARNED: Final = {
    "--enable-lora": _ADAPTERS,
    "--max-loras": _ADAPTERS,
    "--max-lora-rank": _ADAPTERS,
    "--max-cpu-loras": _ADAPTERS,
    "--max-lora-cls-labels": _ADAPTERS,
    "--lora-dtype": _ADAPTERS,
    "--lora-modules": _ADAPTERS,
    "--lora-target-modules": _ADAPTERS,
    "--default-mm-loras": _ADAPTERS,
    "--fully-sharded-loras": _ADAPTERS,
    "--enable-tower-connector-lora": _ADAPTERS,
    "--enable-moe-shared-loras": _ADAPTERS,
    "--enable-mixed-moe-lora-format": _ADAPTERS,
    "--specialize-active-lora": _ADAPTERS,
    "--compilation-config": _GRAPHS,
    "--optimization-level": _GRAPHS,
    "--performance-mode": _GRAPHS,
    "--cudagraph-capture-sizes": _GRAPHS,
    "--max-cudagraph-capture-size": _GRAPHS,
    "--kernel-config": _KERNELS,
    "--ir-op-priority": _KERNELS,
    "--linear-backend": _KERNELS,
    "--moe-backend": _KERNELS,
    "--monokernel": _KERNELS,
    "--gdn-prefill-backend": _KERNELS,
    "--kda-decode-backend": _KERNELS,
    "--kda-prefill-backend": _KERNELS,
    "--mamba-backend": _KERNELS,
    "--mamba-ssu-algorithm": _KERNELS,
    "--sparse-indexer-topk-backend": _KERNELS,
    "--mm-encoder-attn-backend": _KERNELS,
    "--disable-custom-all-reduce": _KERNELS,
    "--enable-flashinfer-autotune": _KERNELS,
    "--additional-config": _KERNELS,
    "--enable-chunked-prefill": _BATCHES,
    "--enable-dbo": _BATCHES,
    "--ubatch-size": _BATCHES,
    "--dbo-decode-token-threshold": _BATCHES,
    "--dbo-prefill-token-threshold": _BATCHES,
    "--enable-hc-sp": _BATCHES,
    "--enable-expert-parallel": _EXPERTS,
    "--enable-eplb": _EXPERTS,
    "--eplb-config": _EXPERTS,
    "--all2all-backend": _EXPERTS,
    "--expert-placement-strategy": _EXPERTS,
    "--attention-backend": _LAYOUT,
    "--attention-config": _LAYOUT,
    "--kv-sharing-fast-prefill": _LAYOUT,
    "--hf-overrides": "the sizing does not see it: write the same into model.configJSON",
    "--model-impl": _MODEL,
    "--model-class-overrides": _MODEL,
    "--diffusion-config": _MODEL,
    "--engram-config": _MODEL,
    "--skip-mm-profiling": _MEDIA,
    "--mm-encoder-tp-mode": _MEDIA,
    "--mm-processor-device": _MEDIA,
    "--mm-processor-kwargs": _MEDIA,
    "--mm-device-do-normalize": _MEDIA,
    "--media-io-kwargs": _MEDIA,
    "--ec-manager-config": _MEDIA,
    "--mm-processor-cache-type": _SHARED_MEMORY,
    "--mm-shm-cache-max-object-size-mb": _SHARED_MEMORY,
    "--mm-tensor-ipc": _SHARED_MEMORY,
    "--enable-shm-tensor-arena": _SHARED_MEMORY,
    "--mm-processor-cache-gb": _HOST,
    "--api-server-count": _HOST,
    "--renderer-num-workers": _HOST,
    "--safetensors-load-strategy": _HOST,
    "--load-format": "the size of the weights and the time to load them may differ from what is planned",
    "--pt-load-map-location": "weights may be on the device twice while they are loaded",
    "--download-dir": "weights are then not kept where model.cache is mounted, and the root file system is read-only",
    "--max-logprobs": _OUTPUTS,
    "--aux-output-config": _OUTPUTS,
    "--enable-return-routed-experts": _OUTPUTS,
    "--return-sampling-mask": _OUTPUTS,
    "--worker-cls": _CODE,
    "--worker-extension-cls": _CODE,
    "--scheduler-cls": _CODE,
    "--logits-processors": _CODE,
    "--io-processor-plugin": _CODE,
    "--reasoning-parser-plugin": _CODE,
    "--tool-parser-plugin": _CODE,
    "--distributed-executor-backend": "the processes of a replica are then started in another way than is tested",
    "--kv-transfer-config": _TRANSFER,
    "--ec-transfer-config": _TRANSFER,
    "--weight-transfer-config": _TRANSFER,
    "--kv-events-config": _PORT,
    "--profiler-config": _CONTROL,
    "--enable-scale-out": _CONTROL,
    "--tool-server": _CONTROL,
    "--allowed-local-media-path": _CONTROL,
    "--enable-sleep-mode": _SLEEP,
    "--sleep-mode-backend": _SLEEP,
    "--sleep-mode-offload-cudagraph": _SLEEP,
    "--sleep-preserve-parameter-names": _SLEEP,
    "--enable-cumem-allocator": _SLEEP,
    "--enable-nccl-comm-suspend": _SLEEP,
    "--enable-fault-tolerance": _FAILS,
    "--fault-tolerance-config": _FAILS,
    "--fail-on-environ-validation": _FAILS,
    "--jit-monitor-mode": _FAILS,
    "--cpu-distributed-timeout-seconds": _FAILS,
    "--distributed-timeout-seconds": _FAILS,
    "--enable-prompt-embeds": _CLIENTS,
    "--enable-mm-embeds": _CLIENTS,
    "--trust-request-mm-kwargs": _CLIENTS,
    "--enable-trace-replay": _CLIENTS,
    "--trust-request-chat-template": "a request's own template can switch thinking on where the tier has it off",
}

# Same for flags of versions before the table's.
WARNED_BESIDE: Final = {
    "--cuda-graph-sizes": _GRAPHS,
    "--full-cuda-graph": _GRAPHS,
    "--max-seq-len-to-capture": _GRAPHS,
    "--num-scheduler-steps": _BATCHES,
    "--lora-extra-vocab-size": _ADAPTERS,
    "--swap-space": _HOST,
}

FREE: Final = frozenset(
    {
        # Answers and their form.
        "--anthropic-disabled-thinking-effort",
        "--chat-template-content-format",
        "--cohere-format",
        "--cohere-is-reasoning-model",
        "--enable-force-include-usage",
        "--enable-per-request-metrics",
        "--enable-prompt-tokens-details",
        "--enable-request-id-headers",
        "--exclude-tools-when-tool-choice-none",
        "--fingerprint-mode",
        "--fingerprint-value",
        "--generation-config",
        "--interleave-mm-strings",
        "--logprobs-mode",
        "--override-generation-config",
        "--per-request-spec-decode-metrics",
        "--reasoning-config",
        "--reasoning-effort-map",
        "--response-role",
        "--return-tokens-as-token-ids",
        "--seed",
        "--sse-keep-alive-interval",
        "--stream-interval",
        "--structured-outputs-config",
        "--tool-strict-level",
        "--watermark-config",
        # Numerics in the same memory.
        "--dtype",
        "--enable-mamba-cache-stochastic-rounding",
        "--mamba-cache-philox-rounds",
        "--mm-encoder-attn-dtype",
        "--mm-encoder-fp8-scale-path",
        "--mm-encoder-fp8-scale-save-margin",
        "--mm-encoder-fp8-scale-save-path",
        "--use-fp64-gumbel",
        # Reading the model's files.
        "--allow-deprecated-quantization",
        "--code-revision",
        "--config-format",
        "--enable-ep-weight-filter",
        "--ignore-patterns",
        "--max-parallel-loading-workers",
        "--model-loader-extra-config",
        "--safetensors-prefetch-block-size",
        "--safetensors-prefetch-num-threads",
        "--tokenizer",
        "--tokenizer-mode",
        "--tokenizer-revision",
        "--use-tqdm-on-load",
        # Order and admission of requests within the limits.
        "--async-scheduling",
        "--disable-chunked-mm-input",
        "--long-prefill-token-threshold",
        "--long-prefill-token-threshold-adaptive",
        "--max-num-queued-reqs",
        "--max-num-queued-tokens",
        "--prefill-schedule-interval",
        "--scheduler-reserve-full-isl",
        "--scheduling-policy",
        # What is kept of prefixes in blocks that nobody uses.
        "--prefix-cache-retention-interval",
        "--prefix-caching-hash-algo",
        "--prefix-match-unit",
        # Less than is planned for.
        "--enable-batch-sharded-sampling",
        "--language-model-only",
        "--limit-mm-per-prompt",
        "--max-num-scheduled-tokens",
        "--video-pruning-method",
        "--video-pruning-rate",
        # HTTP.
        "--allow-credentials",
        "--allowed-headers",
        "--allowed-media-domains",
        "--allowed-methods",
        "--allowed-origins",
        "--disable-fastapi-docs",
        "--enable-offline-docs",
        "--enable-server-load-tracking",
        "--enable-tokenizer-info-endpoint",
        "--h11-max-header-count",
        "--h11-max-incomplete-event-size",
        "--mm-hasher-algorithm",
        # Logs, metrics and traces.
        "--aggregate-engine-logging",
        "--collect-detailed-traces",
        "--cudagraph-metrics",
        "--custom-histogram-buckets",
        "--disable-access-log-for-endpoints",
        "--disable-log-stats",
        "--disable-uvicorn-access-log",
        "--enable-layerwise-nvtx-tracing",
        "--enable-log-deltas",
        "--enable-log-outputs",
        "--enable-log-requests",
        "--enable-logging-iteration-details",
        "--enable-mfu-metrics",
        "--jit-monitor-verbose",
        "--kv-cache-metrics",
        "--kv-cache-metrics-sample",
        "--log-config-file",
        "--log-error-stack",
        "--log-level",
        "--logging-config",
        "--max-log-len",
        "--otlp-traces-endpoint",
        "--show-hidden-metrics-for-version",
        "--uvicorn-log-level",
        "--watchdog-config",
        # Where the processes run.
        "--numa-bind",
        "--numa-bind-cpus",
        "--numa-bind-nodes",
        # Without effect in a replica of one engine that generates text.
        "--cp-kv-cache-interleave-size",
        "--dcp-comm-backend",
        "--dcp-kv-cache-interleave-size",
        "--dcp-q-replicate",
        "--disable-cascade-attn",
        "--disable-nccl-for-dp-synchronization",
        "--dp-supervisor-probe-failure-threshold",
        "--dp-supervisor-probe-interval-s",
        "--dp-supervisor-probe-timeout-s",
        "--dp-sync-interval",
        "--enable-flash-late-interaction",
    }
)

# Refused with these values only.
REFUSED_VALUES: Final = {
    "--dtype": (frozenset({"float", "float32"}), "the sizing counts 16-bit activations and KV cache"),
    "--load-format": (
        frozenset({"bitsandbytes"}),
        "it changes the size of the weights: set model.quantization instead",
    ),
    "--distributed-executor-backend": (
        frozenset({"ray", "external_launcher"}),
        "a replica is one pod, whose processes the engine starts itself",
    ),
}

# Keys of a JSON argument that say what an owned flag says.
OWNED_KEYS: Final = {
    ("--reasoning-config", "reasoning_parser"): OWNED["--reasoning-parser"],
    ("--structured-outputs-config", "reasoning_parser"): OWNED["--reasoning-parser"],
}

# JSON arguments of which only these keys may be given: those that move the longest context but not the KV cache.
ONLY_KEYS: Final = {
    "--hf-overrides": (
        frozenset({"rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings"}),
        "it changes the geometry the sizing counts with: change the weights' config.json and state model.configJSON",
    ),
}
