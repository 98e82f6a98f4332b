"""The README's streaming query, run as it stands but for the address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kohort

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

README = Path(__file__).resolve().parents[2] / "README.md"


def test_query_of_the_readme(spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin) -> None:
    """It reads everything, and its group has no lag when it has ended."""
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(100):
            producer.send("flights", key=f"carrier-{number % 3}", value=str(number))
    (block,) = re.findall(r"```python\n(from pyspark.*?)```", README.read_text(), re.DOTALL)
    assert block.count("127.0.0.1:9092") == 1

    exec(block.replace("127.0.0.1:9092", broker.bootstrap_servers), {})

    assert [(row.committed, row.lag) for row in admin.group_offsets("departures")] == [(100, 0)]
