"""Ids of group members that join without one."""

from __future__ import annotations

from uuid import uuid4


def new_member_id(client_id: str) -> str:
    """What the client calls itself, made unique."""
    return f"{client_id}-{uuid4()}"
