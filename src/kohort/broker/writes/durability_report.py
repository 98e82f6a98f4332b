"""The reports of records that a power cut may take, at the start and for descriptions of the broker.

Laws: nothing is said where every append is synced, and nothing of the journal, which promises no durability.
"""

from __future__ import annotations

import logging
from typing import Final

from kohort.durability_window import LossWindow, loss_window, widest
from kohort.ids import JOURNAL_TOPIC, OFFSETS_TOPIC
from kohort.storage.store import Store
from kohort.storage.topicconfig import LogConfig

log = logging.getLogger("kohort.broker")

#: The consequences for members of group records that a power cut takes.
GROUPS_LOSE: Final = (
    "the last commits before a power cut: their records are read again, and members join anew; set flush.messages=1 on "
    "the topic to have each commit synced"
)


def relaxed_topics(store: Store) -> dict[str, LossWindow]:
    """Return the topics that are not synced before answers, and their loss windows; none in memory."""
    if store.fs.volatile:
        return {}
    found = {topic.name: _window(topic.partitions[0].config) for topic in store.topics.values()}
    return {name: window for name, window in found.items() if window is not None and name != JOURNAL_TOPIC}


def tell_relaxed(store: Store) -> None:
    """Log a line each for relaxed new topics, relaxed existing topics and a relaxed groups' log."""
    defaults = None if store.fs.volatile else _window(store.changes.log_config({}))
    if defaults is not None:
        log.warning("event=relaxed topics=new may_lose=%r", defaults.told())
    windows = relaxed_topics(store)
    if windows:
        log.warning("event=relaxed topics=%d may_lose=%r", len(windows), widest(windows.values()).told())
    if OFFSETS_TOPIC in windows or (defaults is not None and OFFSETS_TOPIC not in store.topics):
        log.warning("event=groups_relaxed topic=%s may_lose=%r", OFFSETS_TOPIC, GROUPS_LOSE)


def _window(config: LogConfig) -> LossWindow | None:
    return loss_window(config.flush_messages, config.flush_ms)
