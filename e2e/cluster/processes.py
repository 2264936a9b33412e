"""Starting, finding and ending the processes of a cluster.

Every process carries the cluster's identity and its component's name in its environment, so `down` finds also
those that a killed starter had no time to write down. A recorded process is known by its number, the boot of the
machine and the time since then at which it started: a clock that is set changes none of them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from cluster.errors import ClusterError
from cluster.state import Component, Place, ProcessId, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

IDENTITY = "REASONINGPOOL_CLUSTER"
COMPONENT = "REASONINGPOOL_COMPONENT"
HOLDER = "node-holder"  # the component whose namespaces the others join
TAIL_LINES = 25
TERMINATE_SECONDS = 10.0
KILL_SECONDS = 60.0  # a killed process still needs processor time to end, and the machine may be busy
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PASSED_ON = ("HOME", "LANG", "PATH", "TMPDIR", "USER", "SSL_CERT_FILE", "SSL_CERT_DIR")

_children: list[subprocess.Popen[bytes]] = []  # of this Python process, to be reaped


def start(state: State, component: Component) -> None:
    """Start a component and write it down; the component itself is written down before it exists."""
    state.components[component.name] = component
    state.processes.pop(component.name, None)
    state.save()
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment |= component.environment
    environment |= {IDENTITY: state.identity, COMPONENT: component.name}
    log = state.log(component.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*_enter(state, component.place), *component.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=state.folder,
            env=environment,
            start_new_session=True,
        )
    _children.append(process)
    forks = component.forks or component.place is Place.NODE  # nsenter forks into a process namespace
    pid = _inner(process, state, component) if forks else process.pid
    with contextlib.suppress(psutil.NoSuchProcess):  # a death at once is found by the caller's wait
        state.processes[component.name] = process_id(pid)
    state.save()


def this_process() -> ProcessId:
    """The running Python process."""
    return process_id(os.getpid())


def process_id(pid: int) -> ProcessId:
    """The process that has this number now.

    Raises:
        psutil.NoSuchProcess: there is none.
    """
    if not _BOOT_ID.exists():  # not Linux
        return ProcessId(pid, "", round(psutil.Process(pid).create_time() * 1000))
    try:
        # The name, in parentheses, may hold anything; what follows it begins with field 3 of proc(5), the start is 22.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return ProcessId(pid, _BOOT_ID.read_text().strip(), int(fields[22 - 3]))


def alive(process: ProcessId) -> bool:
    """Whether this very process runs (a zombie does not)."""
    reap()
    try:
        return process_id(process.pid) == process and _runs(psutil.Process(process.pid))
    except psutil.NoSuchProcess:
        return False


def dead_components(state: State) -> list[str]:
    """The components that were started and run no more."""
    return [n for n in state.components if n not in state.processes or not alive(state.processes[n])]


def check(state: State) -> None:
    """Raise with the tail of its log when a component has died."""
    if dead := dead_components(state):
        msg = "\n".join(f"{name} has ended; the end of {state.log(name)}:\n{tail(state.log(name))}" for name in dead)
        raise ClusterError(msg)


def wait_for(state: State, what: str, condition: Callable[[], bool], seconds: float, interval: float = 0.1) -> None:
    """Wait until `condition` holds; a dead component ends the wait with its log."""
    deadline = time.monotonic() + seconds
    while not condition():
        check(state)
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not so after {seconds:.0f} s; the logs are in {state.folder / 'logs'}")
        time.sleep(interval)


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log file."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - lines * 400))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return "(no log was written)"
    return "\n".join(line[:400] for line in text.splitlines()[-lines:])


def marked(state: State) -> list[psutil.Process]:
    """Every running process that carries the identity of this cluster, written down or not."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(IDENTITY) == state.identity:
                found.append(process)
    return found


def end(processes: Iterable[psutil.Process], seconds: float = TERMINATE_SECONDS) -> None:
    """SIGTERM and, for those that do not go within `seconds`, SIGKILL; with 0, SIGKILL at once."""
    remaining = list(processes)
    if seconds:
        for process in remaining:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        remaining = _wait(remaining, seconds)
    for process in remaining:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if remaining := _wait(remaining, KILL_SECONDS):
        raise ClusterError(f"processes {[p.pid for p in remaining]} do not end on SIGKILL")


def _wait(remaining: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until processes have ended, and give those that have not. A zombie waits for its parent, we do not."""
    deadline = time.monotonic() + seconds
    while remaining and time.monotonic() < deadline:
        reap()
        remaining = [process for process in remaining if _runs(process)]
        time.sleep(0.01 if remaining else 0)
    return remaining


def _runs(process: psutil.Process) -> bool:
    """Whether any thread of a process runs: one that was killed holds its ports until the last of them has ended."""
    try:
        ended = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
        return bool(process.is_running() and not ended)
    except psutil.NoSuchProcess:
        return False


def of_component(state: State, name: str) -> psutil.Process:
    """The running process of a component."""
    recorded = state.processes.get(name)
    if recorded is None or not alive(recorded):
        raise ClusterError(
            f"{name} does not run in cluster {state.name}; it has: {', '.join(sorted(state.components))}"
        )
    return psutil.Process(recorded.pid)


def reap() -> None:
    """Collect the exit codes of children of this Python process."""
    _children[:] = [child for child in _children if child.poll() is None]


def _enter(state: State, place: Place) -> list[str]:
    if place is Place.HOST:
        return []
    holder = of_component(state, HOLDER).pid
    namespaces = ["--net"] if place is Place.NETWORK else ["--net", "--mount", "--pid"]
    return ["nsenter", f"--target={holder}", *namespaces, "--"]


def _inner(process: subprocess.Popen[bytes], state: State, component: Component) -> int:
    """The process inside the new process namespace: the only child of `nsenter` or `unshare`, which only waits."""
    deadline = time.monotonic() + TERMINATE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if children := psutil.Process(process.pid).children():
            return int(children[0].pid)
        time.sleep(0.01)
    raise ClusterError(
        f"{component.name} did not start; the end of {state.log(component.name)}:\n{tail(state.log(component.name))}"
    )
