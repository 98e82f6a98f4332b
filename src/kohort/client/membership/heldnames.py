"""The wait of a static member for its `group.instance.id`, which an earlier process may still hold.

Source: KIP-345; a process that was killed holds its name until its session ends.
"""

from __future__ import annotations

from kohort.client.options import ConsumerSettings
from kohort.client.requests import Requests

#: Added to the session timeout before the member gives up.
_RELEASE_MARGIN_MS = 5_000


def may_be_released(since_ms: int, requests: Requests, settings: ConsumerSettings, now_ms: int) -> bool:
    """Return whether to wait on for a name held by another since `since_ms`; warn at the first time."""
    options = settings.options
    session_ms = options["session_timeout_ms"]
    options = settings.options
    session_ms = options["session_timeout_ms"]
    if since_ms == now_ms:
        requests.warn(
            f"{options['group_instance_id']} of group {options['group_id']} is held by another member; this one "
            f"joins when it is released, or gives up after session.timeout.ms, {session_ms}"
        )
    return now_ms < since_ms + session_ms + _RELEASE_MARGIN_MS
