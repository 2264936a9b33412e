"""What is said about pods that do not run: the engine's words become a reason and advice."""

from __future__ import annotations

import pytest

from reasoningpool.planning.diagnosis.pods import diagnose
from reasoningpool.planning.live import LivePod
from reasoningpool.planning.observations import ContainerLog
from support.pools import pool
from support.world import World, condition, pod

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
NO_CACHE = (
    "(EngineCore pid=9) ERROR 11-29 10:00:00 [core.py:900] ValueError: To serve at least one request with the models's"
    " max seq len (262144), (8.58 GiB KV cache is needed, which is larger than the available KV cache memory (1.2 GiB)."
)
GATED = "OSError: You are trying to access a gated repo. Make sure to have access to it. 401 Client Error."
NOT_FOUND = "OSError: no/such is not a local folder and is not a valid model identifier listed on the hub"
CHOICE = "vllm serve: error: argument --reasoning-parser: invalid choice: 'qwen33' (choose from 'qwen3')"
PARSER = "KeyError: \"Reasoning parser 'typo' not found. Available parsers: deepseek_r1, qwen3\""
UNKNOWN = "vllm: error: unrecognized arguments: --enable-reasoning"
FP8 = "ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')"
MAMBA = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (856)"


def failing(**status: object) -> LivePod:
    return LivePod(pod("p-0", {}, "r", ready=False, **status))


def exited(message: str, code: int = 1, reason: str = "Error") -> dict[str, object]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("words", "reason", "shown"),
    [
        (OUT_OF_MEMORY, "OutOfMemory", "memoryUtilizationPercent"),
        (NO_CACHE, "KVCacheTooSmall", "8.58 GiB KV cache is needed"),
        (GATED, "ModelAccessDenied", "tokenSecretRef"),
        (NOT_FOUND, "ModelNotFound", "model.id"),
        (CHOICE, "BadArgument", "(choose from 'qwen3')"),
        (PARSER, "BadArgument", "Available parsers: deepseek_r1, qwen3"),
        (UNKNOWN, "BadArgument", "--enable-reasoning"),
        (FP8, "DTypeUnsupported", "kvCacheDType"),
        (MAMBA, "KVCacheTooSmall", "856"),
    ],
)
def test_the_engines_last_words_become_reason_and_advice(words: str, reason: str, shown: str) -> None:
    found = diagnose(failing(state=exited(f"INFO something\n{words}\nTraceback follows")), None)
    assert found is not None
    assert (found.reason, found.words) == (reason, True)
    assert shown in found.message
    assert "pid=9" not in found.message


def test_words_in_the_log_count_where_the_termination_message_is_silent() -> None:
    waiting = failing(
        state={"waiting": {"reason": "CrashLoopBackOff"}},
        lastState=exited("RuntimeError: Engine core initialization failed. See root cause above."),
    )
    silent = diagnose(waiting, None)
    assert silent is not None
    assert (silent.reason, silent.words) == ("CrashLoop", False)
    told = diagnose(waiting, ContainerLog(container="engine", previous=False, text=f"a\n{OUT_OF_MEMORY}\nb"))
    assert told is not None
    assert (told.reason, told.words) == ("OutOfMemory", True)


@pytest.mark.parametrize(
    ("waiting", "reason", "shown"),
    [
        ({"reason": "ImagePullBackOff", "message": "Back-off pulling image"}, "ImagePullFailed", "engine.image"),
        ({"reason": "ErrImageNeverPull", "message": "is not present"}, "ImagePullFailed", "imagePullSecrets"),
        (
            {"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'},
            "ConfigMissing",
            'secret "hf" not found',
        ),
    ],
)
def test_containers_that_cannot_start_are_explained(waiting: dict[str, str], reason: str, shown: str) -> None:
    found = diagnose(failing(state={"waiting": waiting}, image="x:1"), None)
    assert found is not None
    assert found.reason == reason
    assert shown in found.message


def test_killed_for_host_memory_is_not_called_device_memory() -> None:
    found = diagnose(failing(state=exited("", 137, "OOMKilled")), None)
    assert found is not None
    assert found.reason == "OutOfMemory"
    assert "host memory" in found.message


@pytest.mark.field_report("U12")
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("0/5 nodes are available: 5 Insufficient nvidia.com/gpu.", "WaitingForGPU"),
        ("0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector.", "Unschedulable"),
        ("0/5 nodes are available: 5 Insufficient memory.", "Unschedulable"),
    ],
)
def test_unschedulable_pod_reports_what_it_waits_for(message: str, reason: str) -> None:
    world = World(pool())
    world.step()
    world.roll("p-reasoning", ready=False)
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    world.pods["p-reasoning-0"]["status"] = {"conditions": [waiting]}
    world.step()
    ready = condition(world.pool["status"])
    assert (ready["status"], ready["reason"], world.pool["status"]["reason"]) == ("False", reason, reason)
    assert message in ready["message"]
    assert "nvidia.com/gpu.:" not in ready["message"]
    world.roll("p-reasoning")
    world.step()
    assert condition(world.pool["status"])["reason"] == "Ready"


def test_message_does_not_change_with_each_restart() -> None:
    texts = {
        found.message
        for restarts in (1, 2, 30)
        if (found := diagnose(failing(state=exited(CHOICE), restartCount=restarts), None))
    }
    assert len(texts) == 1


def test_log_is_asked_for_once_and_only_where_words_are_missing() -> None:
    world = World(pool())
    world.step()
    world.roll("p-reasoning", ready=False, state=exited("exit"), restartCount=2)
    (wanted,) = world.plan().wanted
    assert (wanted.pod, wanted.container, wanted.previous) == ("p-reasoning-0", "engine", False)
    world.logs = {wanted.pod_uid: ContainerLog(container="engine", previous=False, text=OUT_OF_MEMORY)}
    assert world.plan().wanted == ()


def test_starting_pod_is_not_a_failure() -> None:
    assert diagnose(failing(), None) is None
    assert diagnose(LivePod(pod("p-0", {}, "r")), None) is None
