"""Small pools to start a test from."""

from __future__ import annotations

import copy
import json
from typing import Any

TINY_CONFIG = (
    '{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 192, "intermediate_size": 384,'
    ' "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,'
    ' "vocab_size": 2048, "max_position_embeddings": 8192, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}'
)


def tier(name: str = "reasoning", **changes: Any) -> dict[str, Any]:
    """A reasoning tier."""
    return {
        "name": name,
        "workload": "Reasoning",
        "promptTokens": 4096,
        "replicas": 1,
        "efforts": [{"name": "medium", "thinkingTokens": 4096, "answerTokens": 1024}],
    } | changes


def chat_tier(name: str = "chat", **changes: Any) -> dict[str, Any]:
    """A chat tier."""
    efforts = [{"name": "none", "thinkingTokens": 0, "answerTokens": 1024}]
    return tier(name, workload="Chat", efforts=efforts) | changes


def pool(name: str = "p", *, tiers: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    """A pool of one model on H100."""
    return {
        "apiVersion": "reasoningpool.io/v1alpha1",
        "kind": "ReasoningPool",
        "metadata": {"name": name},
        "spec": {
            "model": {"id": "Qwen/Qwen3-32B-FP8"},
            "accelerator": {"product": "H100-SXM-80GB"},
            "tiers": [tier()] if tiers is None else tiers,
        }
        | spec,
    }


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one field set; `path` is like spec.tiers.0.name, a missing part is created."""
    result = copy.deepcopy(body)
    node: Any = result
    *parents, last = path.split(".")
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    if isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value
    return result


def full() -> dict[str, Any]:
    """A pool that sets every field of the resource once (in places that exclude each other, one of them)."""
    container = {
        "image": "example.org/sidecar:1",
        "command": ["sidecar"],
        "args": ["--verbose"],
        "env": [
            {"name": "A", "value": "b"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "envFrom": [{"prefix": "P_", "secretRef": {"name": "s", "optional": True}}, {"configMapRef": {"name": "c"}}],
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi", "example.org/x": 1}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "subPath": "a/b", "readOnly": True}],
        "ports": [{"name": "metrics", "containerPort": 9000}],
        "securityContext": {
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/a.json"},
        },
    }
    engine_container = {key: value for key, value in container.items() if key not in {"command", "args"}}
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    node_term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]}
    pod_term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector, "namespaces": ["default"]}
    pod_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": [pod_term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": pod_term}],
    }
    probe = {
        "initialDelaySeconds": 1,
        "periodSeconds": 5,
        "timeoutSeconds": 2,
        "failureThreshold": 4,
        "successThreshold": 1,
    }
    toleration = {
        "key": "dedicated",
        "operator": "Equal",
        "value": "llm",
        "effect": "NoExecute",
        "tolerationSeconds": 60,
    }
    overrides = {
        "labels": {"team": "search"},
        "annotations": {"example.org/note": "any text"},
        "nodeSelector": {"pool": "gpu"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [node_term]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": node_term}],
            },
            "podAffinity": pod_affinity,
            "podAntiAffinity": pod_affinity,
        },
        "tolerations": [toleration],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
                "matchLabelKeys": ["controller-revision-hash"],
            }
        ],
        "volumes": [
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}], "optional": True}},
            {"name": "secret", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}], "optional": True}},
        ],
        "initContainers": [container | {"name": "prepare", "restartPolicy": "Always"}],
        "containers": [engine_container | {"name": "engine"}, container | {"name": "sidecar"}],
        "startupProbe": probe,
        "readinessProbe": probe,
        "livenessProbe": probe,
        "preStopSeconds": 5,
        "terminationGracePeriodSeconds": 7200,
        "securityContext": {
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "runAsNonRoot": True,
            "fsGroup": 1000,
            "supplementalGroups": [44],
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "serviceAccountName": "engine",
        "automountServiceAccountToken": False,
        "runtimeClassName": "nvidia",
        "priorityClassName": "high",
        "schedulerName": "default-scheduler",
        "sharedMemory": "8Gi",
    }
    engine = {
        "image": "vllm/vllm-openai:v0.33.0",
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": ["pull"],
        "version": "0.33.0",
        "kvCacheDType": "FP8",
        "allowUnverifiedKVCacheDType": True,
        "kvCacheMemory": "20Gi",
        "memoryUtilizationPercent": 90,
        "enforceEager": False,
        "prefixCaching": True,
        "trustRemoteCode": True,
        "chatTemplate": {"configMapRef": {"name": "templates", "key": "chat.jinja"}},
        "apiKeySecretRef": {"name": "key", "key": "key"},
        "loadBandwidth": "500Mi",
        "startupTimeoutSeconds": 1800,
        "extraArgs": ["--disable-log-requests"],
    }
    model = {
        "id": "Qwen/Qwen3-32B",
        "revision": "main",
        "servedName": "qwen",
        "source": {"huggingFace": {"tokenSecretRef": {"name": "hf", "key": "token"}}},
        "quantization": "FP8",
        "configJSON": TINY_CONFIG,
        "parsers": {"reasoning": "qwen3", "toolCall": "hermes"},
        "cache": {"claimTemplate": {"size": "100Gi", "storageClassName": "fast", "retain": True}},
    }
    accelerator = {"product": "H100-SXM-80GB", "perReplica": 2, "tolerations": [toleration]}
    custom = {
        "custom": {
            "memory": "80Gi",
            "computeCapability": "9.0",
            "resourceName": "example.org/gpu",
            "nodeSelector": {"gpu": "x"},
            "memoryBandwidth": "3T",
        }
    }
    quantiles = {"p50": 500, "p90": 1000, "p99": 2000}
    reasoning = {
        "name": "reasoning",
        "workload": "Reasoning",
        "promptTokens": 2048,
        "efforts": [
            {"name": "low", "thinkingTokens": 0, "answerTokens": 512, "sharePercent": 40},
            {"name": "high", "thinkingTokens": 2048, "answerTokens": 512, "sharePercent": 60},
        ],
        "tokenDistribution": [{"effort": "high", "prompt": quantiles, "output": quantiles}],
        "sharedPrefixTokens": 100,
        "concurrency": {"policy": "Statistical", "preemptionRiskPermille": 20},
        "scaling": {
            "minReplicas": 1,
            "maxReplicas": 4,
            "targetKVUsagePercent": 70,
            "scaleUpStabilizationSeconds": 0,
            "scaleDownStabilizationSeconds": 300,
        },
        "objectives": {"timeToFirstAnswerTokenSeconds": 30, "timePerOutputTokenMilliseconds": 40},
        "speculative": {"method": "DraftModel", "tokens": 3, "model": "Qwen/Qwen3-8B"},
        "kvOffload": {"cpuMemory": "64Gi"},
        "maxNumSeqs": 8,
        "maxModelLen": 8192,
        "maxNumBatchedTokens": 4096,
        "blockSize": 16,
        "accelerator": accelerator,
        "model": model,
        "engine": engine,
        "rollout": {"maxUnavailable": 1},
        "hostnames": ["reasoning.example.com"],
        "podOverrides": overrides,
    }
    whole = pool(
        "full",
        tiers=[reasoning, chat_tier(accelerator=custom)],
        model=model,
        accelerator=accelerator,
        engine=engine,
        gateway={
            "mode": "InferenceGateway",
            "parentRefs": [{"name": "inference", "namespace": "gateways", "sectionName": "http"}],
            "failureMode": "FailOpen",
            "standalone": {
                "picker": "None",
                "image": "example.org/envoy:1",
                "imagePullSecrets": ["pull"],
                "replicas": 3,
                "serviceType": "LoadBalancer",
            },
        },
        monitoring={"podMonitor": True, "rules": True},
        suspend=False,
    )
    return json.loads(json.dumps(whole))  # no part of it is shared
