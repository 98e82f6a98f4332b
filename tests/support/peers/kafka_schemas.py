"""Apache Kafka's message definitions, read from its jars and laid out version by version.

Laws: a definition and one of our declarations are compared as what they put on the wire in one version, so a range
that no version can tell apart is no difference; names, order, kinds, nulls, tags and defaults all count.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohort.wire.schema import Array, Message, kind_name
from support.builders.wire_messages import kafka_fields_of

#: Open-ended ranges end here.
FOREVER = 32767


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOnWire:
    """One field as one version has it; `parts` are the fields of the struct that it holds."""

    name: str
    kind: str
    nullable: bool
    tag: int | None
    default: object
    parts: tuple[FieldOnWire, ...]


def read_definitions(libs: Path) -> dict[str, dict[str, Any]]:
    """Every message definition of Kafka's clients and its coordinators, by name."""
    found = {}
    names = ("clients-*", "group-coordinator-[0-9]*", "transaction-coordinator-*")
    for jar in sorted(jar for name in names for jar in libs.glob(f"kafka-{name}.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    found[Path(name).stem] = json.loads(without_comments(archive.read(name).decode()))
    return found


def without_comments(text: str) -> str:
    """The definitions are JSON with `//` comments, which stand alone or after a value, never in a string with a URL."""
    return re.sub(r"(?m)(^|\s)//.*$", "", text)


def versions_of(text: str) -> range:
    """`"3"`, `"3-5"`, `"3+"` or `"none"` as a range."""
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), FOREVER + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def stable_versions_of(definitions: dict[str, dict[str, Any]], name: str) -> range:
    """The versions that a broker offers; only a request says, for its response too, that the last one is not stable."""
    versions = versions_of(definitions[name]["validVersions"])
    asking = definitions.get(name.removesuffix("Response") + "Request", definitions[name])
    return versions[:-1] if asking.get("latestVersionUnstable") else versions


def snake_case(name: str) -> str:
    """`ThrottleTimeMs` → `throttle_time_ms`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def expected_layout(definition: dict[str, Any], version: int) -> tuple[FieldOnWire, ...]:
    """What Kafka puts on the wire in one version: ordinary fields in order, then tagged ones by tag."""
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    return _sorted(tuple(_expected(each, version, structs) for each in definition["fields"] if _has(each, version)))


def declared_layout(cls: type[Message], version: int) -> tuple[FieldOnWire, ...]:
    """What our declaration puts on the wire in one version."""
    found = []
    for each in kafka_fields_of(cls):
        if not each.is_in(version):
            continue
        element = each.kind.element if isinstance(each.kind, Array) else each.kind
        found.append(
            FieldOnWire(
                name=each.name,
                kind=_kind(kind_name(each.kind)),
                nullable=each.is_nullable(version),
                tag=each.tag if each.is_tagged(version) else None,
                default=_comparable(each.make_default()),
                parts=declared_layout(element, version) if isinstance(element, type) else (),
            )
        )
    return _sorted(tuple(found))


def _kind(name: str) -> str:
    """Kafka gives structs of a request and its response the same name at times, which one module of ours cannot."""
    return name.removesuffix("Response")


def _sorted(fields: tuple[FieldOnWire, ...]) -> tuple[FieldOnWire, ...]:
    tagged = sorted((each for each in fields if each.tag is not None), key=lambda each: each.tag or 0)
    return (*(each for each in fields if each.tag is None), *tagged)


def _has(field: dict[str, Any], version: int) -> bool:
    # What came with a tag says nothing else.
    return version in versions_of(field.get("versions", field.get("taggedVersions")))


def _expected(field: dict[str, Any], version: int, structs: dict[str, list[dict[str, Any]]]) -> FieldOnWire:
    parts = field.get("fields") or structs.get(field["type"].removeprefix("[]"), [])
    return FieldOnWire(
        name=snake_case(field["name"]),
        kind=_kind(field["type"]),
        nullable=version in versions_of(field.get("nullableVersions", "none")),
        tag=field["tag"] if version in versions_of(field.get("taggedVersions", "none")) else None,
        default=_expected_default(field),
        parts=_sorted(tuple(_expected(each, version, structs) for each in parts if _has(each, version))),
    )


def _expected_default(field: dict[str, Any]) -> object:
    """As Kafka's generator reads it: the text "null" means null, while JSON's null is no default at all."""
    kind, default = field["type"], field.get("default")
    if default == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return ()
    if kind == "bool":
        return str(default) == "true"
    if kind in ("int8", "int16", "uint16", "int32", "uint32", "int64"):
        return int(str(default or 0), 0)
    return {"string": default or "", "float64": 0.0, "bytes": b"", "uuid": bytes(16)}.get(kind, "a struct of defaults")


def _comparable(default: object) -> object:
    if isinstance(default, Message):
        return "a struct of defaults"
    return tuple(default) if isinstance(default, list) else default
