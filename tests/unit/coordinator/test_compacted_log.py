"""A log that compaction has worked on, at any moment, says the same as the whole one.

The histories are those of `support.chaos`: both kinds of groups, conversions, offsets, deletions, restarts.
Source: requirement G1; KAFKA-19862 (records whose predecessors compaction took).
"""

from __future__ import annotations

from random import Random

import pytest

from kohort.coordinator import recordcodec
from support.chaos import Chaos
from support.coordinator_dialogue import GroupDialogue

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


def history(seed: int) -> GroupDialogue:
    chaos = Chaos(seed, has_transactions=False)
    chaos.run(100)
    return chaos.dialogue


@pytest.mark.parametrize("seed", range(30))
def test_any_compaction_of_a_random_history_folds_to_the_same(seed: int) -> None:
    dialogue, random = history(seed), Random(seed)
    expected = dialogue.fold().state_digest()
    for superseded_kept, tombstones_kept in ((0.0, 1.0), (0.5, 1.0), (0.0, 0.5), (0.0, 0.0)):
        log = compacted(dialogue.log, random, superseded_kept=superseded_kept, tombstones_kept=tombstones_kept)
        assert len(log) <= len(dialogue.log)
        assert dialogue.fold(log).state_digest() == expected, (superseded_kept, tombstones_kept)


def test_histories_have_records_of_every_common_type() -> None:
    """So that the law above says something about each."""
    kinds: dict[int, set[bool]] = {}
    for seed in range(10):
        for key, value in history(seed).log:
            kinds.setdefault(int.from_bytes(key[:2], "big"), set()).add(value is None)
            assert recordcodec.decode(key, value) is not None
    for kind in (1, 2, 3, 5, 6, 7, 8):
        assert kinds[kind] == {True, False}, kind
