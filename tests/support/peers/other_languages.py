"""Clients of Go and Node as programs of their own, made in the cache when a test needs one.

Source: `go_clients/`, `node_clients/`; which versions of the clients they have stands there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

from support.peers.apache import CACHE, in_cache

_GO: Final = Path(__file__).with_name("go_clients")
_NODE: Final = Path(__file__).with_name("node_clients")
_MAKE_SECONDS: Final = 600


def go_program(name: str) -> Path:
    """Return the compiled program of `go_clients/<name>`; skip the calling test where it cannot be compiled."""
    _needs("go", f"{name} is a client of Go")
    made = _made_of(_GO)
    with in_cache():
        if not (made / name).exists():
            made.mkdir(exist_ok=True)
            _run(["go", "build", "-o", str(made / name), f"./{name}"], _GO)
    return made / name


def node_command(client: str) -> list[str]:
    """Return the words that run a member by a client of Node; skip the calling test where there is none."""
    _needs("node", f"{client} is a client of Node")
    _needs("npm", f"{client} is installed by it")
    made = _made_of(_NODE)
    with in_cache():
        if not made.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE, prefix="node-") as directory:
                copied = Path(directory, "clients")
                shutil.copytree(_NODE, copied)
                _run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], copied)
                os.rename(copied, made)
    return ["node", str(made / "member.js"), client]


def _made_of(sources: Path) -> Path:
    """Where that which is made of these sources is kept."""
    read = b"".join(path.read_bytes() for path in sorted(sources.rglob("*")) if path.is_file())
    return CACHE / f"{sources.name}-{hashlib.sha256(read).hexdigest()[:16]}"


def _needs(program: str, why: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{why}, and {program} is not installed")


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_MAKE_SECONDS, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(command[:2])}: {done.stderr[-1000:]}")
