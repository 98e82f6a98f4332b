"""The stop, at the program's end, of brokers on threads that the program has not stopped.

A loop that runs on while the interpreter goes away ends the process by a segmentation fault, and what a broker keeps on
disk would have to be recovered.

Laws: clients that are open close before it (`kohort.client.io.exit_handler`); a disk that hangs holds up the end
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
    """Stop a broker when the program ends; call the returned function once it was stopped otherwise.

    Args:
        thread: the broker's thread; it ends when the broker has stopped.
        request_stop: asks the broker to stop.
    """

    def stop() -> None:
        # In a forked child the thread does not run.
        if thread.is_alive():
            request_stop()
            thread.join(EXIT_SECONDS)

    def forget() -> None:
        atexit.unregister(stop)

    atexit.register(stop)
    return forget
