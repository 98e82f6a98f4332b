"""docs/performance.md says what the published run of the benches says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from support.benches import load_bench

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = (ROOT / "docs" / "performance.md").read_text()
TOOL: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "performance_tables.py"))
published = load_bench("published")
PUBLISHED = published.load(published.PUBLISHED)


def test_document_is_up_to_date() -> None:
    """A run was published or the printing changed: print the tables anew and commit them."""
    assert TOOL["render"](DOCUMENT, PUBLISHED) == DOCUMENT, "run: python tools/performance_tables.py"


def test_every_published_table_is_shown_once() -> None:
    """What was measured is not kept from the reader, and what was not is said."""
    tables = [table["name"] for entry in PUBLISHED.values() for table in entry["tables"]]
    shown = TOOL["asked_for"](DOCUMENT)
    assert len(shown) == len(set(shown))
    assert set(tables) <= set(shown)
    assert len(set(shown) - set(tables)) == DOCUMENT.count(TOOL["UNPUBLISHED"])


def test_every_bench_is_published_with_its_peer_or_said_not_to_be() -> None:
    """The page is that of a whole run, but for benches that are new."""
    benches = load_bench("run").BENCHES
    assert list(PUBLISHED) == [name for name in benches if name in PUBLISHED]
    assert published.missing(PUBLISHED, list(PUBLISHED)) == []
    new = set(benches) - PUBLISHED.keys()
    assert new <= set(TOOL["asked_for"](DOCUMENT))


def test_every_row_says_how_it_was_measured() -> None:
    """The first sentence of the page holds for a row, or the row says what it is."""
    for entry in PUBLISHED.values():
        for table in entry["tables"]:
            for row in table["rows"]:
                assert row["how"], row["what"]
                assert (row["peer"] is None) == (row["peer_name"] == "no peer"), row["what"]
