"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import settings

# No test asserts how fast a machine is, which test_tidy.py holds; what hangs is ended by the timeout of the whole test.
settings.register_profile("kohort", deadline=None)
settings.load_profile("kohort")

# Every JVM of a test lives for seconds: it starts in nearly half the time if it does not optimise for hours.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
