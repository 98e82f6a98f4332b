"""Writes docs/limits.md: what anybody may take of a broker.

Run it with: python tools/limits_table.py > docs/limits.md
"""

from __future__ import annotations

import sys

from kohort.broker.limitstable import table

HEAD = """\
# Limits

What anybody may take of a broker, whether by mistake or on purpose. All of it holds without being switched on; where
there is an option, it is one of [options.md](options.md). Tests are those below `tests/unit/broker/`.
How often each was met since a broker's start stands in `kohort broker status`, with `limits.reached.` in front.
"""

FOOT = """\
Answers of many rows are made fifty rows a turn of the loop where coordinators, topics to be made or configs are asked
(`broker/chunked_responses.py`), those of Metadata and DescribeLogDirs a thousand or two topics and
partitions a turn, and encoded so (`broker/chunked_responses.py`); a topic is never divided. What is carried out
at once, such as a commit of 20,000 partitions, ends by its limit of rows: the longest request of each API is held to
400,000 calls in a turn, about 50 ms, and to 24 MiB (`test_worst_requests.py`; `make soak ONLY=worst-requests`
measures the memory of all). What is heavy, such as 2,000 new topics, a compaction or the deletion of many groups, is
held to 160,000 calls in a turn, about 20 ms (`test_longest_turns.py`); one request with the first batches of 1,000
partitions takes longer, 30 to 50 microseconds each. `make soak ONLY=fuzz` sends damaged frames, record batches and
files, a million of each.
`kohort up` raises the soft limit of descriptors to the hard one as it starts; a broker in a thread of another program
leaves it as it is.
"""


def document() -> str:
    """The whole text."""
    return f"{HEAD}\n{table()}\n\n{FOOT}"


if __name__ == "__main__":
    sys.stdout.write(document())
