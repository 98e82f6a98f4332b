"""No option is taken and ignored: each is read by something beside the table that declares it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from kohort.base.options import Option
from kohort.broker.options.security_options import SECURITY_OPTIONS
from kohort.broker.options.settings import BROKER_OPTIONS, BrokerSettings
from kohort.client.options import CONSUMER_OPTIONS, PRODUCER_OPTIONS, ClientSettings, ConsumerSettings
from kohort.client.producer.core.sender import SenderSettings
from kohort.coordinator.settings import GroupSettings

SOURCE = Path(__file__).parents[2] / "src" / "kohort"
#: Answers of one option to the other, or bounds: read where they are declared.
BOUNDS = {field.name for field in fields(GroupSettings) if "_min_" in field.name or "_max_" in field.name}


@cache
def syntax(room: str) -> tuple[ast.AST, ...]:
    return tuple(node for path in (SOURCE / room).rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))


@pytest.fixture(scope="module", autouse=True)
def _forgotten_source() -> Iterator[None]:
    """Drop the syntax of all rooms: every later collection of garbage in this process would go through it."""
    yield
    syntax.cache_clear()


def subscripts(room: str) -> Counter[str]:
    """Names in square brackets, as in `values["linger.ms"]` or `options["linger_ms"]`, that are read in a room."""
    return Counter(
        node.slice.value
        for node in syntax(room)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
        and isinstance(node.ctx, ast.Load)
    )


def constants(*rooms: str) -> set[str]:
    """Names of options, and ends of them, that are written in rooms beside the tables that declare them."""
    return {
        node.value
        for room in rooms
        for path in (SOURCE / room).rglob("*.py")
        if path.parent.name != "options"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.count(".")
        and node.value[-1:] != "."
    } - {".ms"}


def attributes(*rooms: str) -> set[str]:
    """Attributes that are read in rooms."""
    return {
        node.attr
        for room in rooms
        for node in syntax(room)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def has_one_value(option: Option) -> bool:
    return len(option.choices) == 1 or (option.minimum is not None and option.minimum == option.maximum)


def as_list(default: object) -> list[object]:
    return default if isinstance(default, list) else []


@pytest.mark.large
def test_every_option_of_the_broker_is_read() -> None:
    read = subscripts("broker") + subscripts("security")
    of_groups = {field.name for field in fields(GroupSettings)}
    of_topics = BrokerSettings.of().topic_defaults
    unread = {option.name for option in BROKER_OPTIONS if not (read[option.name] or option.keyword in of_groups)}
    # Read by `topic_defaults`, and by `_agreed` under its name.
    changed = {
        name
        for name in unread
        if has_one_value(BROKER_OPTIONS.option(name)) or name in ("log.dir", "log.dirs", "broker.id", "node.id")
    }
    unread -= changed
    # Some are read by functions, which are given the name or, behind a common prefix, its end.
    texts = constants("broker", "security")
    unread -= {each.name for each in SECURITY_OPTIONS if any(each.name.endswith(text) for text in texts)}
    for name in sorted(unread):
        option = BROKER_OPTIONS.option(name)
        choices = [choice for choice in option.choices if choice not in (option.default, *as_list(option.default))]
        number = 0.25 if isinstance(option.default, float) else min(99, option.maximum or 99)
        other = choices[-1] if choices else number
        assert BrokerSettings.of({name: other}).topic_defaults() != of_topics(), f"nothing reads {name}"


@pytest.mark.large
def test_every_setting_of_the_coordinator_is_read() -> None:
    known = {field.name for field in fields(GroupSettings)}
    assert known - attributes("coordinator", "broker") - BOUNDS == set()


@pytest.mark.large
@pytest.mark.parametrize("settings", [ClientSettings, ConsumerSettings, SenderSettings])
def test_every_setting_of_the_clients_is_read(settings: type) -> None:
    assert {field.name for field in fields(settings)} - attributes("client") == set()


@pytest.mark.large
@pytest.mark.parametrize("options", [CONSUMER_OPTIONS, PRODUCER_OPTIONS], ids=lambda options: options.what)
def test_every_option_of_the_clients_is_read(options: list[Option]) -> None:
    read = subscripts("client")
    assert {
        option.name for option in options if not (read[option.name] or read[option.keyword] or has_one_value(option))
    } == set()
