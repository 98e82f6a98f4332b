"""Apache Kafka's own assignors, asked through one Java process, and what they answered to generated groups.

Laws: a group goes over and comes back as an array of owners over the same space. The recorded answers are what the
same classes gave; run this file to record them anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from kohort.assign.assignors import built_in
from kohort.assign.interface import Assignable
from support.builders.assignables import group_of, owned
from support.peers.apache import java_program

PROGRAM = Path(__file__).with_name("KafkaAssignors.java")
RECORDED = Path(__file__).parents[2] / "data" / "assignors" / "kafka-4.3.json"
#: Kafka's assignor -> ours that does its work.
COUNTERPARTS = {
    "uniform": "uniform",
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky",
    "cooperative-sticky": "sticky",
}
#: Owners as text: one character each, the last one is nobody.
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz."
MOST_MEMBERS = 30
MOST_PARTITIONS = 60


class Case(NamedTuple):
    """One computation: a group, and what Kafka's assignors made of it."""

    name: str
    #: Topic -> number of partitions.
    topics: dict[str, int]
    #: Member id -> topics.
    subscriptions: dict[str, list[str]]
    #: Member id -> static name.
    static: dict[str, str]
    #: Who owned what, as in `group_of`.
    owner: list[int]
    #: Kafka's assignor -> the owners that it gave.
    answers: dict[str, list[int]]

    def group(self) -> Assignable:
        """The group as our assignors see it."""
        return group_of(self.topics, self.subscriptions, owner=self.owner, static=self.static)


class KafkaAssignors:
    """A Java process that assigns with Kafka's classes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, assignor: str, group: Assignable) -> list[int]:
        """The owners that one of `COUNTERPARTS` gives."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"assignor": assignor, **as_json(group)}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line.startswith("{"), f"Kafka's {assignor} refuses {group}: {line}"
        owner = [-1] * len(group.space)
        numbers = {member.member_id: i for i, member in enumerate(group.members)}
        starts = dict(zip(group.topic_names, group.space.starts, strict=True))
        for member, topics in json.loads(line).items():
            for topic, partitions in topics.items():
                for partition in partitions:
                    owner[starts[topic] + partition] = numbers[member]
        return owner


@contextmanager
def kafka_assignors() -> Iterator[KafkaAssignors]:
    """Start Java with Kafka's jars; skips the calling test where they or a JDK are missing."""
    with subprocess.Popen(
        java_program(PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield KafkaAssignors(process)


def as_json(group: Assignable) -> dict[str, Any]:
    """A group as `KafkaAssignors.java` reads it."""
    has = owned(group, group.owner)
    wants: dict[str, list[str]] = {member.member_id: [] for member in group.members}
    for name, members in zip(group.topic_names, group.subscribers, strict=True):
        for member in members:
            wants[group.members[member].member_id].append(name)
    return {
        "topics": dict(zip(group.topic_names, group.space.counts, strict=True)),
        "members": {
            member.member_id: {
                "instance": member.instance_id,
                "topics": wants[member.member_id],
                "owned": has[member.member_id],
            }
            for member in group.members
        },
    }


def generated_story(seed: int, kafka: KafkaAssignors) -> Iterator[Case]:
    """A group from its beginning through changes; each goes on from what we, or Kafka, made of the one before."""
    random = Random(seed)
    topics = {f"t{i:02}": random.randint(0, 7) for i in range(random.randint(1, 12))}
    share = random.choice([1.0, 0.75, 0.5, 0.3])
    teams = [[name for name in topics if random.random() < share] for _ in range(random.choice([1, 2, 4, 30]))]
    if share == 1.0:
        teams = [list(topics)]
    fresh = iter(range(1000))
    subscriptions = {f"m{random.randrange(100):02}{next(fresh):03}": random.choice(teams) for _ in range(1, 20)}
    for member in sorted(subscriptions)[random.randint(1, 19) :]:
        del subscriptions[member]
    static = {member: f"name-{random.randrange(1000)}-{member}" for member in subscriptions if random.random() < 0.2}
    has: dict[tuple[str, int], str] = {}
    change = "starts"
    for _ in range(6):
        group = group_of(topics, subscriptions)
        members = [member.member_id for member in group.members]
        names = [
            (name, i) for name, count in zip(group.topic_names, group.space.counts, strict=True) for i in range(count)
        ]
        owner = [members.index(has[name]) if has.get(name) in members else -1 for name in names]
        group = group_of(topics, subscriptions, owner=owner, static=static)
        answers = {name: kafka.ask(name, group) for name in COUNTERPARTS}
        yield Case(f"{seed} {change}", dict(topics), dict(subscriptions), dict(static), owner, answers)
        uniform = built_in("uniform")
        assert uniform is not None
        after = uniform.assign(group) if seed % 2 else answers["uniform"]
        has = {name: members[member] for name, member in zip(names, after, strict=True)}
        change = random.choice(["joins", "join", "leaves", "leave", "grows", "new topic", "subscribes anew"])
        _apply_change(change, random=random, topics=topics, subscriptions=subscriptions, teams=teams, fresh=fresh)
        static = {member: name for member, name in static.items() if member in subscriptions}


def _apply_change(
    change: str,
    *,
    random: Random,
    topics: dict[str, int],
    subscriptions: dict[str, list[str]],
    teams: list[list[str]],
    fresh: Iterator[int],
) -> None:
    match change:
        case "joins" | "join":
            for _ in range(1 if change == "joins" else random.randint(2, 5)):
                if len(subscriptions) < MOST_MEMBERS:
                    subscriptions[f"m{random.randrange(100):02}{next(fresh):03}"] = random.choice(teams)
        case "leaves" | "leave":
            for _ in range(1 if change == "leaves" else random.randint(2, 5)):
                if len(subscriptions) > 1:
                    del subscriptions[random.choice(sorted(subscriptions))]
        case "grows":
            name = random.choice(sorted(topics))
            topics[name] += min(random.randint(1, 8), MOST_PARTITIONS - sum(topics.values()))
        case "new topic":
            name = f"t{random.randrange(100, 1000)}"
            topics[name] = max(min(random.randint(1, 8), MOST_PARTITIONS - sum(topics.values())), 0)
            for team in teams:
                if len(teams) == 1 or random.random() < 0.5:
                    team.append(name)
        case _:
            for member in sorted(subscriptions):
                if random.random() < 0.3:
                    subscriptions[member] = random.choice(teams)


def recorded_cases() -> list[Case]:
    """The cases with Kafka's answers as they were recorded."""
    found = []
    for name, topics, subscriptions, static, owner, answers in json.loads(RECORDED.read_text()):
        wants = {
            member: [topic for topic, bit in zip(sorted(topics), bits, strict=True) if bit == "1"]
            for member, bits in subscriptions.items()
        }
        found.append(
            Case(
                name,
                topics,
                wants,
                static,
                _numbers(owner),
                {assignor: _numbers(text) for assignor, text in answers.items()},
            )
        )
    return found


def _text(owner: list[int] | array[int]) -> str:
    return "".join(DIGITS[member] for member in owner)


def _numbers(text: str) -> list[int]:
    return [-1 if digit == "." else DIGITS.index(digit) for digit in text]


def record(stories: int) -> None:
    """Ask Kafka and keep what it answers."""
    lines = []
    with kafka_assignors() as kafka:
        for seed in range(stories):
            for case in generated_story(seed, kafka):
                wants = {
                    member: "".join("01"[name in names] for name in sorted(case.topics))
                    for member, names in case.subscriptions.items()
                }
                answers = {name: _text(owner) for name, owner in case.answers.items()}
                row = [case.name, case.topics, wants, case.static, _text(case.owner), answers]
                lines.append(json.dumps(row, separators=(",", ":")))
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    record(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
