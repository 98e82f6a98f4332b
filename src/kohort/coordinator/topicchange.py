"""Reaction of groups to changed topics: new group epochs, and removal of deleted topics' offsets.

Patterns are resolved first, against the changed topics.

Laws: a group whose subscribed topics are the same as when its epoch was set does not notice. A topic that is deleted
and created again is another topic: offsets of the first are not offered for the second.
Source: KIP-848 (metadata changes); Apache Kafka notices at a member's next heartbeat, kohort at once.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.coordinator.commands.groups import TopicsChanged
from kohort.coordinator.consumer.regex import names_after, resolve_again
from kohort.coordinator.consumer.targets.target import decide_change, hash_topics
from kohort.coordinator.decision import Decision, Effect
from kohort.coordinator.model import GroupsState
from kohort.coordinator.offsets.delete import build_offset_tombstones
from kohort.coordinator.records import OffsetCommitted, Record, TopicImageReplaced
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.ids import ZERO_TOPIC_ID


def decide_topics_changed(
    groups: GroupsState, command: TopicsChanged, settings_for: Callable[[str], GroupSettings], *, now_ms: int
) -> Decision:
    """Raise the epochs of the groups that a change of topics concerns.

    Timers that are due now compute the targets, one timer per group, so that a change for many groups does not keep
    other requests waiting.
    """
    image = command.image
    records: list[Record] = [TopicImageReplaced(group_id="", image=image)]
    effects: list[Effect] = []
    changed = _changed_names(groups.image, image)
    # After a restart there is no older image to compare with: a topic that vanished meanwhile shows in the hash alone.
    is_first = not groups.image.version
    for group_id, group in groups.consumer.items():
        if not group.members:
            continue
        resolved = resolve_again(group, image, changed, now_ms=now_ms)
        if not is_first and not resolved and changed.isdisjoint(group.topic_subscribers):
            continue
        metadata_hash = hash_topics(image, names_after(group, resolved) if resolved else group.topic_subscribers)
        if metadata_hash == group.metadata_hash and not resolved:
            # The first image after a restart: every topic looks new, few are.
            continue
        settings = settings_for(group_id)
        changed_records, armed = decide_change(
            group, image, settings, now_ms=now_ms, is_urgent=False, metadata_hash=metadata_hash
        )
        records += resolved
        records += changed_records
        effects += armed
    for group_id in {**groups.offsets, **groups.pending_offsets}:
        gone = [name for name, sample in _samples(groups, group_id).items() if _is_gone(name, sample, groups, image)]
        if gone:
            records.extend(build_offset_tombstones(groups, group_id, gone))
    return Decision(tuple(records), tuple(effects))


def _changed_names(before: TopicImage, after: TopicImage) -> set[str]:
    old, new = before.by_name, after.by_name
    changed = {name for name, facts in new.items() if old.get(name) != facts}
    changed.update(name for name in old if name not in new)
    return changed


def _samples(groups: GroupsState, group_id: str) -> dict[str, OffsetCommitted | None]:
    """Return one commit for each topic of a group; `None`: only an open transaction has one."""
    samples: dict[str, OffsetCommitted | None] = dict.fromkeys(
        topic for topic, _ in groups.pending_offsets.get(group_id, {})
    )
    for name, offsets in groups.offsets.get(group_id, {}).items():
        samples[name] = next(iter(offsets.values()))
    return samples


def _is_gone(name: str, sample: OffsetCommitted | None, groups: GroupsState, image: TopicImage) -> bool:
    """Whether the topic of a group's commit no longer exists; `sample` is one of its commits."""
    facts = image.by_name.get(name)
    if facts is None:
        return True
    before = groups.image.by_name.get(name)
    if before is not None:
        return before.topic_id != facts.topic_id
    return sample is not None and sample.topic_id not in (ZERO_TOPIC_ID, facts.topic_id)
