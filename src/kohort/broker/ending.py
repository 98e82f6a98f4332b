"""Brokers on threads of this process that nobody has stopped when the program ends: they stop as if told to.

A loop that runs on while the interpreter goes away ends the process by a segmentation fault, and what a broker keeps on
disk would have to be recovered.

Laws: clients that are open say their farewell before (`kohort.client.io.farewell`); a disk that hangs holds up the end
of the program for so long at most; a forked child stops nothing of its parent's.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Final

#: How long the end of a program may take for each broker.
EXIT_SECONDS: Final = 20.0


def stop_at_exit(thread: threading.Thread, request_stop: Callable[[], object]) -> Callable[[], None]:
    """Have a broker stop when the program ends; call what comes back once it was stopped.

    Args:
        thread: ends when the broker has stopped.
        request_stop: asks it to.
    """

    def stop() -> None:
        # In a forked child it does not run.
        if thread.is_alive():
            request_stop()
            thread.join(EXIT_SECONDS)

    def forget() -> None:
        atexit.unregister(stop)

    atexit.register(stop)
    return forget
