"""The pattern of a subscription, from the names or the expression that the application gives.

Source: KIP-848 (whole names match a pattern); librdkafka (a name that begins with ^ is a pattern of beginnings).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kohort.errors import ConfigError


def choose_pattern(names: Sequence[str], pattern: str | re.Pattern[str] | None) -> str | None:
    """Return the expression that whole topic names have to match; `None`: all of `names` are plain.

    >>> choose_pattern(["orders"], None)
    >>> choose_pattern(["^or", "refunds"], None)
    '(?:^or).*|refunds'

    Raises:
        ConfigError: names and a pattern are given, or the pattern is no regular expression.
    """
    if pattern is not None:
        if names:
            raise ConfigError("subscribe takes topics or a pattern, not both")
        if isinstance(pattern, re.Pattern) and pattern.flags & ~re.UNICODE:
            raise ConfigError("flags of a compiled pattern get lost on the way: write them into it, as in (?i)or.*")
        chosen = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    elif any(name.startswith("^") for name in names):
        chosen = "|".join(f"(?:{name}).*" if name.startswith("^") else re.escape(name) for name in names)
    else:
        return None
    try:
        re.compile(chosen)
    except (re.error, TypeError) as why:
        raise ConfigError(f"{chosen!r} is no pattern of topics: {why}") from None
    return chosen
