"""JSON from other programs: one error for every fault of it.

Source: RFC 8259 section 9: a parser may limit the depth of nesting; Python's raises RecursionError at its own.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; `ValueError` if the text is none, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as why:
        raise ValueError("JSON that is nested too deeply") from why
