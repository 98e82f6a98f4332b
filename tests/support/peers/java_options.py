"""How Java runs where a virtual machine lives for seconds."""

from __future__ import annotations

from typing import Final

#: It starts in less than half the time if it neither optimises for hours nor looks through classes that are known.
SHORT_LIVED: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
