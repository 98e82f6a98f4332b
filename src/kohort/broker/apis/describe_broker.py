"""DescribeBroker (key 10004), an API of kohort's own: the broker's state as named facts.

To ask costs one look at each partition, a few milliseconds of the most that a broker takes.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kohort.base import VERSION
from kohort.base.durability_window import widest
from kohort.broker.context import BrokerContext, Request
from kohort.broker.durability import relaxed_topics
from kohort.broker.transactions.hanging import hanging
from kohort.errors import ErrorCode
from kohort.records.kernel_form import tell_kernels
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import describe_broker as wire

#: The limits that are counted when they are reached: by option, or by the client's behaviour.
COUNTED: Final = (
    "max.connections",
    "max.connections.per.ip",
    "max.connection.creation.rate",
    "connection_creation_rate",
    "descriptors",
    "silence",
    "slowness",
    "stall",
    "untaken",
    "connections.max.idle.ms",
    "requests",
    "queued.max.requests",
    "queued.max.request.bytes",
    "parked",
    "fetches",
    "max.topics",
    "max.partitions",
    "auto.create.topics.per.minute",
    "max.groups",
    "quotas",
)
#: Ranges of damaged offsets that are told one by one.
RANGES_NAMED: Final = 10
#: Throttled clients that are told one by one, those first that had to wait longest; and labels of tokens.
CLIENTS_NAMED: Final = 10


def handle(
    context: BrokerContext, request: Request, message: wire.DescribeBrokerRequest
) -> wire.DescribeBrokerResponse:
    """Answer with the present facts."""
    del message
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return wire.DescribeBrokerResponse(error_code=code, error_message="Cluster authorization failed.")
    facts = [wire.BrokerFact(name=name, value=str(value)) for name, value in facts_of(context, request).items()]
    return wire.DescribeBrokerResponse(error_code=ErrorCode.NONE, facts=facts)


def facts_of(context: BrokerContext, request: Request | None = None) -> dict[str, object]:
    """Return the present facts, with the address that the client of `request` gets."""
    cluster, watch, recovery = context.cluster, context.watch, context.store.recovery
    values = context.settings.values
    node_id = context.leadership.node_id
    address = ""
    if request is not None:
        (here,) = [node for node in context.leadership.nodes(request.connection) if node.node_id == node_id]
        address = f"{here.host}:{here.port}"
    is_kept = not context.store.fs.volatile
    facts: dict[str, object] = {
        "version": VERSION,
        "kernels": tell_kernels(),
        "cluster.id": cluster.cluster_id,
        "node.id": node_id,
        "address": address,
        "data.dir": context.store.directory if is_kept else "",
        "uptime.ms": context.clock.now_ms() - context.clock.stepped_ms - context.started_ms,
        "topics": len(cluster.topics),
        "topics.max": values["max.topics"],
        "partitions": cluster.partition_count,
        "partitions.max": values["max.partitions"],
        "groups": context.runtime.group_limit.count(),
        "groups.max": values["max.groups"],
        "connections": len(context.connections),
        "connections.max": context.connection_quotas.limit,
        "connections.refused": context.connection_quotas.refused,
        "connections.given.up": context.idle_timeouts.given_up,
        **_transactions(context),
        **_tokens(context),
        "fences": len(context.ownership),
        "reads.refused": context.refused_reads.rows,
        "disk.refuses": str(context.disk_full.is_open).lower(),
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
        facts |= _losses(context)
    return facts | _quotas(context) | _limits_reached(context)


def _transactions(context: BrokerContext) -> dict[str, object]:
    """Describe the transactions that have not ended, and the oldest of them."""
    runtime = context.transactions.runtime
    opened = [] if runtime is None else runtime.open_transactions()
    lost = hanging(context.cluster, runtime)
    return {
        "transactional.ids": 0 if runtime is None else runtime.id_count,
        "transactional.ids.max": context.settings.values["max.transactional.ids"],
        "transactions.open": len(opened),
        "transactions.oldest": opened[0][1] if opened else "",
        "transactions.oldest.ms": max(0, context.clock.now_ms() - opened[0][0]) if opened else 0,
        "transactions.hanging": len(lost),
        "transactions.hanging.in": " ".join(sorted({log.name for log, _ in lost})[:CLIENTS_NAMED]),
    }


def _tokens(context: BrokerContext) -> dict[str, object]:
    """Describe the capability tokens of open connections by their labels, and how many are revoked."""
    found = [each.rights.capability for each in context.connections]
    labels = Counter(each.label for each in found if each is not None and each.label is not None)
    return {
        "tokens": len({each.id for each in found if each is not None}),
        "tokens.labels": " ".join(f"{label!r}:{count}" for label, count in labels.most_common(CLIENTS_NAMED)),
        "tokens.revoked": len(context.revocations),
    }


def _quotas(context: BrokerContext) -> dict[str, object]:
    """Describe the quotas, and the clients that had to wait for them."""
    quotas = context.client_quotas
    return {
        "quotas": quotas.limits.entity_count,
        "quotas.clients.remembered": len(quotas),
        "quotas.throttled.connections": sum(connection.is_muted for connection in context.connections),
        "quotas.throttled.requests": quotas.throttled.total(),
        "quotas.throttled.ms": quotas.throttled_ms,
        "quotas.throttled.most": " ".join(quotas.most_throttled(CLIENTS_NAMED)),
    }


def _limits_reached(context: BrokerContext) -> dict[str, object]:
    """Count how often each limit of `limitstable` was reached since the start."""
    met = context.connection_quotas.reached + context.idle_timeouts.reached + context.cluster.reached + context.reached
    met += context.connection_rates.reached
    met["quotas"] = context.client_quotas.throttled.total()
    met["queued.max.request.bytes"] = context.byte_budget.waited
    met["parked"] = context.parked.refused
    met["fetches"] = context.purgatory.gave_way
    met["max.groups"] = context.runtime.group_limit.refused
    met["auto.create.topics.per.minute"] = context.new_topics.refused
    return {f"limits.reached.{name}": met[name] for name in COUNTED}


def _losses(context: BrokerContext) -> dict[str, object]:
    """Describe the records that a power cut may take, and those that readers cannot get."""
    windows = relaxed_topics(context.store)
    holes = {log.name: log.holes for topic in context.cluster.topics.values() for log in topic.partitions if log.holes}
    offline = sorted(log.name for topic in context.cluster.topics.values() for log in topic.partitions if log.offline)
    named = [f"{name}:{hole.first_offset}-{hole.next_offset - 1}" for name in sorted(holes) for hole in holes[name]]
    return {
        "relaxed.topics": len(windows),
        "relaxed.may.lose": widest(windows.values()).told() if windows else "",
        "damaged.ranges": len(named),
        "damaged.ranges.first": " ".join(named[:RANGES_NAMED]),
        "offline.partitions": len(offline),
        "offline.partitions.first": " ".join(offline[:RANGES_NAMED]),
    }
