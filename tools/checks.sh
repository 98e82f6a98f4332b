#!/usr/bin/env bash
# What holds without running a test: lint, format, types, who imports whom. All tests are collected beside it, so that
# their byte code is made once, and not by each worker for itself.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
$python -m pytest --collect-only -qq tests >.venv/collected.log 2>&1 &
collecting=$!
trap 'kill "$collecting" 2>/dev/null || true' EXIT
$python -m ruff check src tests bench examples tools
$python -m ruff format --check src tests bench examples tools
# Two processes type-check: all by one takes longer than what runs beside it.
MYPY_NUM_WORKERS=2 $python -m mypy
.venv/bin/lint-imports --no-cache
wait "$collecting" || { tail -n 60 .venv/collected.log; exit 1; }
