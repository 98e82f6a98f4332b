"""A coordinator to talk to."""

from __future__ import annotations

import pytest

from support.dialogues.mixed_dialogue import MixedDialogue


@pytest.fixture
def group() -> MixedDialogue:
    """A group "g" without members, and a topic "t" of two partitions."""
    return MixedDialogue()
