"""JSON from other programs, for every fault of which `ValueError` is raised.

Source: RFC 8259 section 9: a parser may limit the depth of nesting; Python's raises RecursionError at its own.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise `ValueError` if the text is not JSON, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as why:
        raise ValueError("JSON that is nested too deeply") from why
