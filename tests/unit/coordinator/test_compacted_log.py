"""A log that compaction has worked on, at any moment, says the same as the whole one.

The histories are those of `support.scenarios.chaos`: both kinds of groups, conversions, offsets, deletions, restarts.
Source: requirement G1; KAFKA-19862 (records whose predecessors compaction took).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import pytest

from kohort.coordinator.records import codec
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.moves import submit
from support.scenarios.chaos import Chaos

pytestmark = pytest.mark.large

Entry = tuple[bytes, bytes | None]


def compacted(log: list[Entry], random: Random, *, superseded_kept: float, tombstones_kept: float) -> list[Entry]:
    """The log after its closed part was compacted.

    Superseded records may still be there, where the cleaner has not been yet. Tombstones may be gone where it has; it
    has then removed every superseded record in front of them, too.
    """
    cut = random.randrange(len(log) + 1)
    newest = {key: at for at, (key, _) in enumerate(log[:cut])}
    kept: list[Entry] = []
    gone = {key for key, at in newest.items() if log[at][1] is None and random.random() >= tombstones_kept}
    for at, (key, value) in enumerate(log[:cut]):
        # A tombstone goes only after everything older of its key.
        if key in gone or (newest[key] != at and random.random() >= superseded_kept):
            continue
        kept.append((key, value))
    return kept + log[cut:]


@cache
def history(seed: int) -> GroupDialogue:
    chaos = Chaos(seed, has_transactions=False)
    chaos.run(100)
    return chaos.dialogue


@cache
def history_of_names(seed: int) -> GroupDialogue:
    """Of a group that is static, most of the time."""
    chaos = Chaos(seed, has_transactions=False, is_static=True)
    chaos.run(100)
    return chaos.dialogue


@cache
def history_of_moves(seed: int) -> GroupDialogue:
    """Of one group whose partitions are moved by hand."""
    random = Random(seed)
    dialogue = GroupDialogue({"t": 4, "u": 2})
    names: list[str] = []
    for turn in range(60):
        match random.randint(0, 7):
            case 0 if len(names) < 3:
                names.append(f"m{turn}")
                dialogue.heartbeat(names[-1], epoch=0, topics=["t", "u"])
            case 1 if len(names) > 2 or (names and random.random() < 0.2):
                dialogue.leave(names.pop(random.randrange(len(names))))
            case 2:
                dialogue.set_topics(random.choice([{"t": 4}, {"t": 4, "u": 2}]))
            case 3 if not names:
                dialogue.delete_group()
            case 4 | 5 if names:
                submit(dialogue, [(*random.choice([("t", 0), ("t", 3), ("u", 0)]), random.choice(names))])
            case _ if names:
                dialogue.fire_due()
                dialogue.settle()
    return dialogue


@pytest.mark.parametrize("build", [history, history_of_names, history_of_moves], ids=["chaos", "names", "moves"])
@pytest.mark.parametrize("seed", range(30))
def test_any_compaction_of_a_random_history_folds_to_the_same(seed: int, build: Callable[[int], GroupDialogue]) -> None:
    dialogue, random = build(seed), Random(seed)
    expected = dialogue.fold().state_digest()
    for superseded_kept, tombstones_kept in ((0.0, 1.0), (0.5, 1.0), (0.0, 0.5), (0.0, 0.0)):
        log = compacted(dialogue.log, random, superseded_kept=superseded_kept, tombstones_kept=tombstones_kept)
        assert len(log) <= len(dialogue.log)
        assert dialogue.fold(log).state_digest() == expected, (superseded_kept, tombstones_kept)


def test_histories_have_records_of_every_common_type() -> None:
    """So that the law above says something about each."""
    kinds: dict[int, set[bool]] = {}
    for seed in range(20):
        for key, value in (*history(seed).log, *history_of_names(seed).log, *history_of_moves(seed).log):
            kinds.setdefault(int.from_bytes(key[:2], "big"), set()).add(value is None)
            assert codec.decode(key, value) is not None
    for kind in (1, 2, 3, 5, 6, 7, 8, 20_002, 20_003, 20_004, 20_006, 20_007):
        assert kinds[kind] == {True, False}, kind
