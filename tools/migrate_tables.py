"""Puts the tables of spellings and codes into docs/migrate.md, as the options and the libraries have them.

Run it with: python tools/migrate_tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

import aiokafka.errors
import confluent_kafka
import kafka.errors

from kohort.base.options import Verdict
from kohort.client import kafkaoptions
from kohort.client.options import ADMIN_OPTIONS
from kohort.errors import ErrorCode

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "migrate.md"


def spellings() -> list[str]:
    """Which names of others each option takes."""
    rows = [f"| `{each.name}` | {quoted(sorted(each.also))} |" for each in ADMIN_OPTIONS if each.also]
    return ["| option here | also taken |", "| --- | --- |", *rows]


def renamed() -> list[str]:
    """What others call options that have another name here."""
    theirs: dict[str, set[str]] = {}
    for row in {*kafkaoptions.FOR_CONSUMERS, *kafkaoptions.FOR_PRODUCERS}:
        if row.verdict is Verdict.CALLED:
            theirs.setdefault(row.why, set()).update(row.names.split())
    rows = [
        f"| {quoted(sorted(names))} | `{ours}`{', in bytes' if any(map(is_in_kbytes, names)) else ''} |"
        for ours, names in sorted(theirs.items())
    ]
    return ["| theirs | here |", "| --- | --- |", *rows]


def codes() -> list[str]:
    """Codes of the protocol that a library calls otherwise."""
    theirs: dict[int, set[str]] = {}
    for name in dir(confluent_kafka.KafkaError):
        if name.isupper() and not name.startswith("_"):
            theirs.setdefault(getattr(confluent_kafka.KafkaError, name), set()).add(name)
    for module in (kafka.errors, aiokafka.errors):
        for name, error in vars(module).items():
            if isinstance(getattr(error, "errno", None), int):
                theirs.setdefault(error.errno, set()).add(getattr(error, "message", name))
    ours = {code.value: code.name for code in ErrorCode}
    rows = [
        f"| {number} | {ours[number]} | {', '.join(sorted(names - {ours[number]}))} |"
        for number, names in sorted(theirs.items())
        if number in ours and names - {ours[number]}
    ]
    return ["| code | here | there |", "| --- | --- | --- |", *rows]


def is_in_kbytes(name: str) -> bool:
    return name.endswith("kbytes")


def quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def render(text: str) -> str:
    """The document with its tables anew."""
    for name, table in (("spellings", spellings()), ("renamed", renamed()), ("codes", codes())):
        body = "\n".join(["", *table, ""])
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)",
            lambda m, b=body: m[1] + b + m[2],
            text,
            flags=re.DOTALL,
        )
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(render(DOCUMENT.read_text()))
