"""`python -m cluster up|down|status|env|build`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from typing import TYPE_CHECKING

from cluster import core, lifecycle, processes
from cluster.errors import ClusterError
from cluster.state import Profile, all_states

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

FAKE_NODES = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; errors are told in plain words with exit code 1."""
    signal.signal(signal.SIGTERM, _interrupt)
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except ClusterError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; what had been started has been removed")


def _interrupt(*_: int | FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cluster", description="A real Kubernetes on this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a cluster (builds Kubernetes the first time)")
    up.add_argument("--profile", type=Profile, choices=list(Profile), default=Profile.CONTROLPLANE)
    up.add_argument("--fake-nodes", type=int, default=FAKE_NODES, metavar="N", help="number of fake GPU nodes")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="end a cluster and remove everything that it made")
    down.add_argument("--all", action="store_true", help="every cluster of this cache")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="what runs; exit code 1 when something has ended")
    status.set_defaults(run=_status)
    env = commands.add_parser("env", help='print export lines for a shell: eval "$(python -m cluster env)"')
    env.set_defaults(run=_env)
    build = commands.add_parser("build", help="build and fetch what a profile needs, without starting it")
    build.add_argument("--profile", type=Profile, choices=list(Profile), default=Profile.CONTROLPLANE)
    build.set_defaults(run=_build)
    for command in (up, down, status, env):
        command.add_argument("--name", default="default", help="name of the cluster (default: default)")
    return parser


def _up(options: argparse.Namespace) -> None:
    count = options.fake_nodes if options.profile is Profile.FAKE_NODES else 0
    cluster = core.up(options.name, options.profile, fake_nodes=count)
    print(f"cluster {cluster.name} is ready at {cluster.server}")
    print(f"  export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    print(f"  remove it with: python -m cluster down --name {cluster.name}")


def _down(options: argparse.Namespace) -> None:
    names = [state.name for state in all_states()] if options.all else [options.name]
    for name in names:
        print(f"cluster {name} {'is removed' if lifecycle.down(name) else 'does not exist; nothing to do'}")
    if not names:
        print("there are no clusters; nothing to do")


def _status(options: argparse.Namespace) -> None:
    states = all_states()
    if not states:
        print("there are no clusters")
    failed = False
    for state in states:
        dead = processes.dead_components(state)
        failed |= bool(dead)
        print(f"{state.name}: profile {state.profile}, {state.server}, {'ready' if state.ready else 'not ready'}")
        for component in state.components:
            note = (
                f"ENDED, log: {state.log(component)}" if component in dead else f"pid {state.processes[component].pid}"
            )
            print(f"  {component}: {note}")
        for component in dead if state.name == options.name else ():
            print(f"the end of {state.log(component)}:\n{processes.tail(state.log(component))}")
    sys.exit(1 if failed else 0)


def _env(options: argparse.Namespace) -> None:
    for name, value in core.Cluster(options.name).environment().items():
        print(f"export {name}={shlex.quote(value)}")


def _build(options: argparse.Namespace) -> None:
    lifecycle.prepare(options.profile)
    print(f"everything for profile {options.profile} is there")
