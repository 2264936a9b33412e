"""Tiny models for the real engine, made once and kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from engine import cache, environment
from engine.cache import Progress, print_progress
from engine.environment import EngineEnvironment
from engine.install import EngineUnavailableError

_HERE = Path(__file__).parent
_SCRIPT = _HERE / "tiny_model.py"
_DIALOGUES = _HERE / "data" / "tiny_dialogues.json"
_LOCK = _HERE / "uv.lock"  # torch decides about the weights, too
_DEADLINE_S = 900.0

# KV cache of both, in bfloat16: 2 (key, value) x 4 layers x 2 KV heads x head size 32 x 2 bytes.
TINY_KV_BYTES_PER_TOKEN = 1024

# Arguments of `tiny_model.py`. Both share tokenizer, template and geometry.
RECIPES: dict[str, tuple[str, ...]] = {
    # Repeats the dialogues in `data/tiny_dialogues.json`: thinks, closes the thinking, answers.
    "tiny-qwen3": ("--steps", "180"),
    # Untrained: never closes its thinking and hardly ever ends, for tests of long runs.
    "tiny-random": ("--steps", "0"),
}


def ensure_tiny(
    name: str = "tiny-qwen3", *, engine: EngineEnvironment | None = None, progress: Progress = print_progress
) -> Path:
    """The directory of a tiny model, made first where it is not there yet (about a minute for `tiny-qwen3`)."""
    if name not in RECIPES:
        raise ValueError(f"no tiny model {name!r}; there are {', '.join(RECIPES)}")
    engine = engine or environment.ensure(progress)
    recipe = RECIPES[name]
    digest = cache.content_hash(*(path.read_bytes() for path in (_SCRIPT, _DIALOGUES, _LOCK)), *recipe)
    directory = cache.root() / "models" / f"{name}-{digest}"
    if directory.exists():
        return directory
    with cache.locked(directory.with_name(f"{directory.name}.lock"), progress):
        if directory.exists():
            return directory
        progress(f"making the model {name} in {directory}")
        unfinished = directory.with_name(f"{directory.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [str(engine.python), str(_SCRIPT), str(unfinished), "--dialogues", str(_DIALOGUES), *recipe]
        # Its words are for people: they go where the progress goes.
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False, timeout=_DEADLINE_S)
        if done.returncode != 0:
            raise EngineUnavailableError(
                f"Making the model {name} failed (exit code {done.returncode}); it said why above."
            )
        cache.make_world_readable(unfinished)
        unfinished.rename(directory)
    return directory
