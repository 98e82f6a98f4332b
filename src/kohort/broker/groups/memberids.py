"""Ids of group members that join without one."""

from __future__ import annotations

from uuid import uuid4


def new_member_id(client_id: str) -> str:
    """Make a unique member id from the client id."""
    return f"{client_id}-{uuid4()}"
