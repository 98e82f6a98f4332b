"""A coordinator to talk to."""

from __future__ import annotations

import pytest

from support.dialogues.coordinator_dialogue import GroupDialogue


@pytest.fixture
def group() -> GroupDialogue:
    """A group "g" without members, and a topic "t" of two partitions."""
    return GroupDialogue()
