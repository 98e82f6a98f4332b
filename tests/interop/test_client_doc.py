"""What docs/client.md shows is what happens. Each block is a script of its own behind the first one."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.doc_blocks import blocks_of, heading_of, run_block

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "client.md"
SET_UP, BLOCKS = blocks_of(DOCUMENT)


@pytest.mark.interop
@pytest.mark.parametrize(("code", "shown"), BLOCKS, ids=[heading_of(DOCUMENT, code) for code, _ in BLOCKS])
def test_python_prints_what_the_text_says(code: str, shown: str) -> None:
    """Run as it stands."""
    assert run_block(f"{SET_UP}\n{code}") == shown
