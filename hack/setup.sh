#!/bin/sh
# Prepares a checkout: the pinned uv, then the locked environment. Needs Python 3.11 or newer and nothing else;
# on Debian without python3-venv it installs that package when run as root.
set -eu
cd "$(dirname "$0")/.."
UV_VERSION=0.13.8
home=.cache/uv-$UV_VERSION

say() { printf '%s\n' "$*" >&2; }

python=""
for candidate in python3.11 python3.12 python3.13 python3; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$(command -v "$candidate")
        break
    fi
done
[ -n "$python" ] || { say "setup: Python 3.11 or newer is needed"; exit 1; }

if [ ! -x "$home/bin/uv" ]; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
            say "setup: installing python3-venv"
            apt-get update -qq
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
        else
            say "setup: $python has no venv module; install your system's python3-venv package"
            exit 1
        fi
    fi
    say "setup: uv $UV_VERSION"
    rm -rf "$home"
    "$python" -m venv "$home"
    "$home/bin/pip" install --quiet --disable-pip-version-check "uv==$UV_VERSION"
fi

say "setup: environment from uv.lock"
"$home/bin/uv" sync --frozen --quiet --python "$python"
