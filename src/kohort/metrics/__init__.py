"""Metrics: families and the text formats of Prometheus, the clients of a program, the state of a cluster.

Floors: `exposition` (families, both formats), `registry` (clients). It imports no client and no broker: both hand
their numbers over.
Begin with `exposition.py`, then `registry.py`.

>>> family = Family("jobs", "counter", "Jobs that are done.")
>>> family.add(3, queue="a")
>>> family.rows[0].labels
'queue="a"'
"""

from __future__ import annotations

from kohort.metrics.exposition import Family, Histogram
from kohort.metrics.registry import Registry, to_prometheus

__all__ = ["Family", "Histogram", "Registry", "to_prometheus"]
