"""Fetch (key 1): read record batches, now or once there are enough of them.

Versions 4 to 18 are served. From version 7 on clients may ask for fetch sessions (KIP-227), see `fetchsessions`. From
version 13 on topics are named by id.
Both isolation levels read the same, since nothing transactional can be in a log. How a fetch is carried out is in
`fetching`.
"""

from __future__ import annotations

from functools import partial

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.fetch.fetching import Fetching
from kohort.broker.fetch.fetchsessions import FetchPlan, all_asked
from kohort.broker.limits.requests import MOST_EMPTY, MOST_PARTITIONS, check_rows
from kohort.errors import Refused
from kohort.ids import TopicId
from kohort.wire.messages.fetch import FetchRequest, FetchResponse


def handle(context: BrokerContext, request: Request, message: FetchRequest) -> FetchResponse | None:
    """Find the fetch session, then read or wait for data."""
    check_rows(sum(not topic.partitions for topic in message.topics), MOST_EMPTY, "topics without partitions")
    now_ms = context.clock.now_ms()
    try:
        session = context.fetch_sessions.find(
            request.connection, message, request.version, now_ms=int(context.loop.time() * 1000)
        )
    except Refused as refused:
        return FetchResponse(error_code=refused.code)
    word = message.member
    if word is not None:
        check_rows(sum(len(topic.partitions) for topic in word.topic_partitions), MOST_PARTITIONS, "partitions")
        context.listening.hear(request.connection, word)
    elif message.session_epoch <= 0:
        context.listening.forget(request.connection)
    asked = all_asked(message) if session is None else session.asked()
    context.listening.fetched(request, message, asked, partial(_name, context), now_ms)
    plan = FetchPlan(context.cluster, asked)
    Fetching(context, request, message, plan, session).start()
    return None


def _name(context: BrokerContext, topic_id: bytes) -> str:
    found = context.cluster.topic_by_id(TopicId(topic_id))
    return "" if found is None else found.name
