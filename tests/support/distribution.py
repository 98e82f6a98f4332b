"""The scheduling of `--dist loadfile`: a worker gets whole files, and one gets all that share a session of Spark.

A session takes ten seconds of processor time to start, and compiles what it runs anew in each worker.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

#: The folder whose files share the session, but for these: they start drivers of their own.
SHARED: Final = "tests/spark"
OWN_DRIVERS: Final = frozenset({"test_handover.py", "test_spark_tutorial.py"})


class OneSession(LoadFileScheduling):
    """Sends the files that share the session to the same worker."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of the file or session that keeps a test on one worker."""
        file = PurePosixPath(super()._split_scope(nodeid))
        return SHARED if str(file.parent) == SHARED and file.name not in OWN_DRIVERS else str(file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSession | None:
    """Replace the scheduler of `--dist loadfile`."""
    return OneSession(config, log) if config.getvalue("dist") == "loadfile" else None
