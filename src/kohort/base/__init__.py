"""Foundations that every room may import: error codes, options as data, deadlines, the clock, value classes, JSON."""

from __future__ import annotations

from typing import Final

#: The version of kohort, which its clients and its broker tell each other.
VERSION: Final = "0.1.0"
