"""Metrics: families and the text formats of Prometheus, the clients of a program, the state of a cluster.

Floors: `exposition` (families, both formats), `registry` (clients), `cluster` (the state of any cluster), `peers` (the
names of other exporters, and our own), `dashboards`. It imports no client and no broker: both hand
their numbers over.
Begin with `exposition.py`, then `registry.py`.

>>> family = Family("jobs", "counter", "Jobs that are done.")
>>> family.add(3, queue="a")
>>> family.rows
[('queue="a"', 3, '')]
"""

from __future__ import annotations

from kohort.metrics.exposition import Family, Histogram
from kohort.metrics.registry import Registry, to_prometheus

__all__ = ["Family", "Histogram", "Registry", "to_prometheus"]
