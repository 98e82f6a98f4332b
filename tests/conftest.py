"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import settings

from support.java_options import SHORT_LIVED

# No test asserts how fast a machine is, which test_tidy.py holds; what hangs is ended by the timeout of the whole test.
settings.register_profile("kohort", deadline=None)
settings.load_profile("kohort")

os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
