#!/usr/bin/env bash
# Runs the tests on each Python that kohort supports and that is installed, except that of .venv, which `make test` runs.
# Each has an environment of its own, .venv-3.12 and the like; an interpreter that nobody finds is named by PYTHON3_12.
# Without arguments all tests run; otherwise they are pytest's.
set -uo pipefail
cd "$(dirname "$0")/.."

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# The interpreter of a version: the one that was named, one of the path, pyenv's newest. A shim that leads nowhere is none.
find_python() {
    local named="PYTHON${1/./_}"
    local of_pyenv
    of_pyenv=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python 2>/dev/null | sort -V | tail -n 1)
    for candidate in "${!named:-}" "${PYTHON:-}" "python$1" "$of_pyenv"; do
        if [ -n "$candidate" ] && [ "$(version_of "$candidate")" = "$1" ]; then echo "$candidate"; return; fi
    done
    return 1
}

[ $# -gt 0 ] || set -- -n 2 --dist loadfile tests
outcome=()
failed=0
own=$(version_of .venv/bin/python)
for version in 3.11 3.12 3.13 3.14; do
    [ "$version" = "$own" ] && continue
    if ! python=$(find_python "$version"); then
        outcome+=("$version is not installed")
        continue
    fi
    echo "test-all: $version ($python)"
    if VENV=".venv-$version" PYTHON="$python" tools/setup.sh && ".venv-$version/bin/python" -m pytest "$@"; then
        outcome+=("$version passed")
    else
        outcome+=("$version FAILED")
        failed=1
    fi
done
printf -v said ', %s' "${outcome[@]}"
echo "test-all: ${said:2}"
exit "$failed"
