"""What a broker with a directory lets a power cut take, told when it starts and to whoever asks how it is doing.

Laws: nothing is said where every append is synced, and nothing of the journal, of which nobody was promised anything.
"""

from __future__ import annotations

import logging

from kohort.ids import JOURNAL_TOPIC
from kohort.losswindow import LossWindow, loss_window, widest
from kohort.storage.store import Store
from kohort.storage.topicconfig import LogConfig

log = logging.getLogger("kohort.broker")


def relaxed_topics(store: Store) -> dict[str, LossWindow]:
    """The topics that are not synced before an answer, and what may be lost of each; nothing in memory."""
    if store.fs.volatile:
        return {}
    found = {topic.name: _window(topic.partitions[0].config) for topic in store.topics.values()}
    return {name: window for name, window in found.items() if window is not None and name != JOURNAL_TOPIC}


def tell_relaxed(store: Store) -> None:
    """A line if new topics are relaxed, and one if topics are that there are."""
    defaults = None if store.fs.volatile else _window(store.changes.log_config({}))
    if defaults is not None:
        log.warning("event=relaxed topics=new may_lose=%r", defaults.told())
    if windows := relaxed_topics(store):
        log.warning("event=relaxed topics=%d may_lose=%r", len(windows), widest(windows.values()).told())


def _window(config: LogConfig) -> LossWindow | None:
    return loss_window(config.flush_messages, config.flush_ms)
