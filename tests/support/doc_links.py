"""Links of a document to other documents and to sections."""

from __future__ import annotations

import re
from pathlib import Path


def links_of(document: Path) -> list[str]:
    """What its links inside the project lead to, each once."""
    return sorted(set(re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text())))


def is_there(document: Path, target: str) -> bool:
    """Whether a link of a document leads to a file, and to a section of it if it names one."""
    path, _, anchor = target.partition("#")
    linked = document.parent / path if path else document
    return linked.is_file() and (not anchor or anchor in anchors_of(linked.read_text()))


def anchors_of(text: str) -> set[str]:
    """As GitHub makes them of headings: of one that comes again the second ends in -1."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE):
        slug = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", each) is not None for each in found)
        found.append(f"{slug}-{again}" if again else slug)
    return set(found)
