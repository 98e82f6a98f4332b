"""The benches' modules for tests of what is pure in them; no bench is run here."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[3] / "bench"


def load_bench(name: str) -> Any:
    """A module of `bench/`, which imports its neighbours by their bare names.

    They stand on the path and among the modules only meanwhile: `bench/requests.py` must not be what others mean by
    `requests`.
    """
    before = dict(sys.modules)
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCH))
        for added in sys.modules.keys() - before.keys():
            file = getattr(sys.modules[added], "__file__", None)
            if file and Path(file).parent == BENCH:
                del sys.modules[added]
        while str(BENCH) in sys.path:
            sys.path.remove(str(BENCH))
