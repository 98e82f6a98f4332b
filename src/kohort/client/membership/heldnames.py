"""How long a static member waits for its name, which the process before it may hold still.

Source: KIP-345; a process that was killed holds its name until its session ends.
"""

from __future__ import annotations

from kohort.client.options import ConsumerSettings
from kohort.client.requests import Requests

#: How long beyond its session a static member's name may be held by the process before it.
_RELEASE_MARGIN_MS = 5_000


def may_be_released(since_ms: int, requests: Requests, settings: ConsumerSettings, now_ms: int) -> bool:
    """Whether to wait for a name that was found held by another first at `since_ms`; people are told then."""
    if since_ms == now_ms:
        requests.warn(
            f"{settings.group_instance_id} of group {settings.group_id} is held by another member; this one "
            f"joins when it is released, or gives up after session.timeout.ms, {settings.session_timeout_ms}"
        )
    return now_ms < since_ms + settings.session_timeout_ms + _RELEASE_MARGIN_MS
