"""DescribeBroker (key 10004), ours: how this broker is doing, as facts with names.

Version 0 is served. All of it is at hand: to ask costs next to nothing, however much the broker has.
"""

from __future__ import annotations

import kohort
from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.errors import ErrorCode
from kohort.wire.messages.describe_broker import BrokerFact, DescribeBrokerRequest, DescribeBrokerResponse


def handle(context: BrokerContext, request: Request, message: DescribeBrokerRequest) -> DescribeBrokerResponse:
    """What is so now."""
    del message
    facts = [BrokerFact(name=name, value=str(value)) for name, value in _facts(context, request).items()]
    return DescribeBrokerResponse(error_code=ErrorCode.NONE, facts=facts)


def _facts(context: BrokerContext, request: Request) -> dict[str, object]:
    cluster, watch, recovery = context.cluster, context.watch, context.store.recovery
    values = context.settings.values
    node_id = context.leadership.node_id
    (here,) = [node for node in context.leadership.nodes(request.connection) if node.node_id == node_id]
    is_kept = not context.store.fs.volatile
    facts: dict[str, object] = {
        "version": kohort.__version__,
        "cluster.id": cluster.cluster_id,
        "node.id": node_id,
        "address": f"{here.host}:{here.port}",
        "data.dir": context.store.directory if is_kept else "",
        "uptime.ms": context.clock.now_ms() - context.started_ms,
        "topics": len(cluster.topics),
        "topics.max": values["max.topics"],
        "partitions": cluster.partition_count,
        "partitions.max": values["max.partitions"],
        "connections": len(context.connections),
        "disk.refuses": str(context.outage.is_open).lower(),
        "loop.turns": watch.turns,
        "loop.longest.turn.ms": f"{watch.longest_seconds * 1000:.1f}",
        "loop.longest.turn.during": watch.longest_during,
        "loop.longest.turn.uptime.ms": watch.longest_at_ms - context.started_ms if watch.longest_at_ms else 0,
    }
    if is_kept:
        facts |= {
            "recovery.clean": str(recovery.is_clean).lower(),
            "recovery.bytes.checked": recovery.bytes_checked,
            "recovery.cuts": len(recovery.cuts),
        }
    return facts
