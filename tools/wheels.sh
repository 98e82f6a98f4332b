#!/usr/bin/env bash
# Builds a wheel with a C compiler and one without, and fails unless each has its tag; needs PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
rm -rf .venv/wheels
$python -m pip wheel -q --no-deps -w .venv/wheels .
CC=false $python -m pip wheel -q --no-deps -w .venv/wheels .
ls .venv/wheels/kohort-*-py3-none-any.whl .venv/wheels/kohort-*-cp3*.whl
