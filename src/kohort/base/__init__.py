"""Foundations for all other packages: error codes, options as data, deadlines, clocks, value classes, JSON."""

from __future__ import annotations

from typing import Final

#: The version of kohort, which its clients and its broker send each other.
VERSION: Final = "0.1.0"
