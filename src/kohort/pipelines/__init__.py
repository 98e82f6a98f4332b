"""Events of groups as Spark's data frames: rebalances, gaps between owners, stuck and flapping members.

Every function takes a data frame and returns one, batch or stream (docs/reference/pipelines.md has their columns).
Importing this package loads no PySpark; the names are loaded on first use.

>>> import kohort.pipelines
>>> kohort.pipelines.rebalances.__name__
'rebalances'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.pipelines.journal import FACTS_SCHEMA, JOURNAL_SCHEMA, facts, parse_journal, read_journal
    from kohort.pipelines.lags import lag, parse_commits, parse_ends
    from kohort.pipelines.tables import flapping, rebalances, refusals, skew, stays, unread, waits, what_if

__all__ = [
    "JOURNAL_SCHEMA", "read_journal", "parse_journal", "FACTS_SCHEMA", "facts",
    "rebalances", "unread", "waits", "stays", "flapping", "skew", "refusals", "what_if",
    "parse_commits", "parse_ends", "lag",
]  # fmt: skip

_MODULES = {
    "journal": ("JOURNAL_SCHEMA", "read_journal", "parse_journal", "FACTS_SCHEMA", "facts"),
    "tables": ("rebalances", "unread", "waits", "stays", "flapping", "skew", "refusals", "what_if"),
    "lags": ("parse_commits", "parse_ends", "lag"),
}


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'kohort.pipelines' has no attribute {name!r}")
    return getattr(import_module(f"kohort.pipelines.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
