"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# No test asserts how fast a machine is; what hangs is ended by the timeout of the whole test.
settings.register_profile("kohort", deadline=None)
settings.load_profile("kohort")
