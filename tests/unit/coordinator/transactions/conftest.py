"""A transaction coordinator to talk to."""

from __future__ import annotations

import pytest

from support.dialogues.transaction_dialogue import TransactionDialogue


@pytest.fixture
def tx() -> TransactionDialogue:
    """A coordinator without transactional ids."""
    return TransactionDialogue()
