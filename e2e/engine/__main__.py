"""`python -m engine ensure|models|serve`."""

from __future__ import annotations

import argparse
import sys

from engine import environment, models, server
from engine.install import EngineUnavailableError


def main() -> int:
    parser = argparse.ArgumentParser(prog="engine", description="The real vLLM (CPU build) with a tiny model.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ensure", help="install vLLM in the cache; print its prefix")
    make = commands.add_parser("models", help="make tiny models in the cache; print their directories")
    make.add_argument("names", nargs="*", help=f"which (default: all): {', '.join(models.RECIPES)}")
    start = commands.add_parser("serve", help="serve a tiny model until interrupted")
    start.add_argument("--model", choices=models.RECIPES, default="tiny-qwen3")
    start.add_argument("--port", type=int, help="loopback port (default: a free one)")
    start.add_argument("arguments", nargs="*", help="arguments of `vllm serve` after the light ones, after --")
    options = parser.parse_args()
    try:
        if options.command == "ensure":
            print(environment.ensure().prefix)
        elif options.command == "models":
            for name in options.names or models.RECIPES:
                print(models.ensure_tiny(name))
        else:
            with server.serve(
                models.ensure_tiny(options.model), [*server.LIGHT, *options.arguments], port=options.port
            ) as running:
                print(f"{running.base_url}/v1 (log: {running.log_path}); stop with Ctrl-C", flush=True)
                running.process.wait()
    except (EngineUnavailableError, server.ServerFailedError, ValueError) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
