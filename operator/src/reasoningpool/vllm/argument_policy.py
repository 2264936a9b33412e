"""Which flags of `vllm serve` the operator owns, which it refuses, and why.

Every flag of the table is judged and in exactly one class: owned or refused (here), let through with a
warning, or free (`permitted_arguments`). A flag that the table does not know is let through.
"""

from __future__ import annotations

from typing import Final

_SPEC: Final = "set {} instead"

# Rendered by the operator: the field to use instead.
OWNED: Final = {
    "--model": _SPEC.format("model.id"),
    "--revision": _SPEC.format("model.revision"),
    "--served-model-name": _SPEC.format("model.servedName"),
    "--quantization": _SPEC.format("model.quantization"),
    "--reasoning-parser": _SPEC.format("model.parsers.reasoning"),
    "--tool-call-parser": _SPEC.format("model.parsers.toolCall"),
    "--enable-auto-tool-choice": "set model.parsers.toolCall instead: it needs a tool parser and comes with it",
    "--tensor-parallel-size": _SPEC.format("accelerator.perReplica"),
    "--kv-cache-dtype": _SPEC.format("engine.kvCacheDType"),
    "--kv-cache-memory-bytes": _SPEC.format("engine.kvCacheMemory"),
    "--gpu-memory-utilization": _SPEC.format("engine.memoryUtilizationPercent"),
    "--enforce-eager": _SPEC.format("engine.enforceEager"),
    "--enable-prefix-caching": _SPEC.format("engine.prefixCaching"),
    "--trust-remote-code": _SPEC.format("engine.trustRemoteCode"),
    "--chat-template": _SPEC.format("engine.chatTemplate"),
    "--max-num-seqs": _SPEC.format("maxNumSeqs of the tier"),
    "--max-model-len": _SPEC.format("maxModelLen of the tier"),
    "--max-num-batched-tokens": _SPEC.format("maxNumBatchedTokens of the tier"),
    "--block-size": _SPEC.format("blockSize of the tier"),
    "--speculative-config": _SPEC.format("speculative of the tier"),
    "--spec-method": _SPEC.format("speculative.method of the tier"),
    "--spec-model": _SPEC.format("speculative.model of the tier"),
    "--spec-tokens": _SPEC.format("speculative.tokens of the tier"),
    "--kv-offloading-size": _SPEC.format("kvOffload.cpuMemory of the tier"),
    "--kv-offloading-backend": "kvOffload of the tier uses the native backend",
    "--middleware": "it loads the request runtime: see spec.runtime",
    "--default-chat-template-kwargs": "it follows from the tier's workload (Chat switches thinking off)",
    "--shutdown-timeout": "it follows from the budgets; the grace period and preStop follow from it",
    "--port": "the port is fixed: probes, Services and routes use it",
    "--host": "the address is fixed: probes, Services and routes use it",
}

_IN_THE_OPEN: Final = "arguments are visible to anyone who may read pods; set {} instead"
_ENGINES: Final = "a replica is one engine: set replicas of the tier for more of them"
_PARALLEL: Final = "the sizing knows tensor parallelism only (accelerator.perReplica)"
_KV: Final = "it changes how much KV cache a request takes or the pool holds, which the sizing cannot see"
_HTTP: Final = "probes, metrics and routes speak plain HTTP to the engine; use TLS at the gateway or in a sidecar"
_WEIGHTS: Final = "it moves weights to host memory, which the sizing cannot see"
_GENERATES: Final = "a tier generates text from text, which clients, routes and budgets rely on"
_OTHER_CONFIG: Final = "it changes the geometry the sizing counts with: state the model's config in model.configJSON"

# Not rendered, and refused: the reason.
REFUSED: Final = {
    "--api-key": _IN_THE_OPEN.format("engine.apiKeySecretRef"),
    "--hf-token": _IN_THE_OPEN.format("model.source.huggingFace.tokenSecretRef"),
    "--config": "a file can set any argument out of the sizing's sight: use the typed fields, or its arguments",
    "--help": "the engine would print its help and stop",
    "--headless": _ENGINES,
    "--data-parallel-size": _ENGINES,
    "--data-parallel-size-local": _ENGINES,
    "--data-parallel-rank": _ENGINES,
    "--data-parallel-start-rank": _ENGINES,
    "--data-parallel-address": _ENGINES,
    "--data-parallel-backend": _ENGINES,
    "--data-parallel-rpc-port": _ENGINES,
    "--data-parallel-supervisor-port": _ENGINES,
    "--data-parallel-external-lb": _ENGINES,
    "--data-parallel-hybrid-lb": _ENGINES,
    "--data-parallel-multi-port-external-lb": _ENGINES,
    "--enable-elastic-ep": _ENGINES,
    "--elastic-ep-max-dp-size": _ENGINES,
    "--nnodes": _ENGINES,
    "--node-rank": _ENGINES,
    "--master-addr": _ENGINES,
    "--master-port": _ENGINES,
    "--pipeline-parallel-size": _PARALLEL,
    "--prefill-context-parallel-size": _PARALLEL,
    "--decode-context-parallel-size": _PARALLEL,
    "--device-ids": "Kubernetes assigns the devices",
    "--grpc": "it replaces the HTTP server that probes and routes use",
    "--uds": "probes and routes need the TCP port",
    "--root-path": "probes and routes use the paths as they are; rewrite them at the gateway",
    "--ssl-keyfile": _HTTP,
    "--ssl-certfile": _HTTP,
    "--ssl-ca-certs": _HTTP,
    "--ssl-cert-reqs": _HTTP,
    "--ssl-ciphers": _HTTP,
    "--enable-ssl-refresh": _HTTP,
    "--grpc-port": "it opens a second way in that Services, probes and the API key do not cover",
    "--ray-workers-use-nsight": "there is no Ray in a replica: its processes are the engine's own",
    "--runner": _GENERATES,
    "--convert": _GENERATES,
    "--pooler-config": _GENERATES,
    "--tokens-only": _GENERATES,
    "--skip-tokenizer-init": _GENERATES,
    "--mm-encoder-only": _GENERATES,
    "--hf-config-path": _OTHER_CONFIG,
    "--quantization-config": "it changes the size of the weights: set model.quantization instead",
    "--num-gpu-blocks-override": "it replaces the derived KV pool: set engine.kvCacheMemory instead",
    "--max-num-active-seqs": "sizing, gateway and autoscaler rely on --max-num-seqs: set maxNumSeqs of the tier",
    "--watermark": _KV,
    "--kv-cache-dtype-skip-layers": _KV,
    "--mamba-block-size": _KV,
    "--mamba-cache-dtype": _KV,
    "--mamba-cache-mode": _KV,
    "--mamba-ssm-cache-dtype": _KV,
    "--enable-mamba-shared-prefix-checkpoint": _KV,
    "--use-replayssm": _KV,
    "--replayssm-buffer-len": _KV,
    "--disable-hybrid-kv-cache-manager": _KV,
    "--disable-sliding-window": _KV,
    "--swa-bounded-replay": _KV,
    "--mm-ipc-gpu-memory-gb": _KV,
    "--cpu-offload-gb": _WEIGHTS,
    "--cpu-offload-params": _WEIGHTS,
    "--offload-backend": _WEIGHTS,
    "--offload-group-size": _WEIGHTS,
    "--offload-num-in-group": _WEIGHTS,
    "--offload-params": _WEIGHTS,
    "--offload-prefetch-step": _WEIGHTS,
}

# Of the `vllm` command itself, or of versions before the table's: refused as well.
REFUSED_BESIDE: Final = {
    "--version": "the engine would print its version and stop",
    "-v": "the engine would print its version and stop",
    "--task": _GENERATES,
    "--speculative-model": OWNED["--spec-model"],
    "--num-speculative-tokens": OWNED["--spec-tokens"],
    "--rope-scaling": "removed: use --hf-overrides with rope_parameters",
    "--rope-theta": "removed: use --hf-overrides with rope_parameters",
}
