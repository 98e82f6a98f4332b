"""Protocol faults that a test injects: errors, delays, missing and truncated responses.

Laws: a request to which no fault applies is served as usual. With an error as fault the request is not carried out. At
most one fault applies to a request, the one that was injected first.
Source: the shape of kfake's `ControlKey` (franz-go) and of Apache Kafka's proposed fault proxy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from kohort.broker.dispatch import Route
from kohort.errors import ConfigError, ErrorCode, KohortError
from kohort.wire import registry
from kohort.wire.messages.fetch import FetchResponse
from kohort.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from kohort.wire.registry import AnyApiKey
from kohort.wire.schema import Array, Field, Message

if TYPE_CHECKING:
    from kohort.broker.connections.request import Buffer, Request
    from kohort.broker.context import BrokerContext
    from kohort.broker.server import Server

#: Fields of requests that name groups, topics, and topics by id.
_GROUPS: Final = frozenset({"group_id", "groups", "groups_names", "group_ids", "key", "coordinator_keys"})
#: Names of error codes in answers.
_CODES: Final = frozenset({"error_code", "partition_error_code"})
_TOPICS: Final = frozenset({"topic", "name", "topics", "topic_names", "resource_name"})
_TOPIC_IDS: Final = frozenset({"topic_id"})
#: Names that one thing has in requests and in answers.
_ALIKE: Final = (
    ("topic", "name", "topic_name", "user"),
    ("partition", "partition_index", "index"),
    ("topics", "responses", "results", "topic_data", "topic_names", "topic_partitions", "replica_election_results"),
    ("partitions", "partition_responses", "partition_result", "partition_data", "partition_indexes"),
    ("groups", "groups_names", "group_ids", "results"),
    ("group_id", "groups"),
    ("coordinators", "coordinator_keys"),
    ("transaction_states", "transactional_ids"),
    ("results_by_topic_v3_and_below", "v3_and_below_topics"),
    ("results_by_transaction", "transactions"),
    ("topic_results", "topics"),
    ("results_by_partition", "partitions"),
    ("results", "responses", "resources"),
    ("results", "creations", "deletions", "upsertions"),
    ("filter_results", "filters"),
)


class FaultNotStruckError(KohortError):
    """An injected fault has applied to no request, so the test has not tested the fault."""


class _Kind(Enum):
    """The kinds of faults."""

    ANSWER = "an error"
    DELAY = "a delay"
    DROP = "no answer"
    DISCONNECT = "a closed connection"
    TRUNCATE = "a torn answer"


class ProtocolFault:
    """One fault: the requests to which it applies, and how often.

    >>> from kohort.testing import Broker
    >>> with Broker() as broker:
    ...     _ = broker.faults.answer("OffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS", group="billing").times(2)
    ...     broker.faults.clear()
    """

    def __init__(
        self,
        kind: _Kind,
        api: AnyApiKey,
        only: Mapping[str, str | None],
        *,
        error: ErrorCode = ErrorCode.NONE,
        seconds: float = 0.0,
    ) -> None:
        self.kind: Final = kind
        self.api: Final = api
        self.error: Final = error
        self.seconds: Final = seconds
        self._only: Final = {name: value for name, value in only.items() if value is not None}
        self._group, self._topic, self._client_id = map(self._only.get, ("group", "topic", "client_id"))
        #: Requests that it was meant for, and those of them that it struck.
        self.matched = self.struck = 0
        #: Requests that it left unanswered.
        self.dropped: Final[list[Request]] = []
        self._first, self._last = 1, 1 << 62
        self._predicate: Callable[[], bool] = lambda: True

    def __repr__(self) -> str:
        only = "".join(f" {name}={value!r}" for name, value in self._only.items())
        return f"<{self.kind.value} for {self.api.name}{only}, struck {self.struck} times>"

    def once(self) -> ProtocolFault:
        """Apply this fault to the first matching request only."""
        return self.times(1)

    def times(self, count: int) -> ProtocolFault:
        """Apply this fault to the first `count` matching requests."""
        _check_count("times", count)
        self._last = self._first + count - 1
        return self

    def on_call(self, number: int) -> ProtocolFault:
        """Apply this fault to one request only: 1 is the first that matches."""
        _check_count("on_call", number)
        self._first = self._last = number
        return self

    def while_(self, predicate: Callable[[], bool]) -> ProtocolFault:
        """Apply this fault only while `predicate`, called on the broker's thread, returns true."""
        self._predicate = predicate
        return self

    def takes(self, context: BrokerContext, request: Request, message: Message) -> bool:
        """Return whether this fault applies to the request, and count the request if it matches."""
        if self._client_id not in (None, request.client_id):
            return False
        if self._group is not None and self._group not in _names(message, _GROUPS):
            return False
        if self._topic is not None and self._topic not in _names(message, _TOPICS):
            topic = context.cluster.topic(self._topic)
            if topic is None or topic.topic_id not in _names(message, _TOPIC_IDS):
                return False
        self.matched += 1
        if not self._first <= self.matched <= self._last or not self._predicate():
            return False
        self.struck += 1
        return True


class ProtocolFaults:
    """The faults of one broker.

    Each is injected by one call, which names an API as Kafka does (`OffsetCommit`). The fault applies to all requests
    of that API, unless `once`, `times`, `on_call` or `while_` limits it, or `group`, `topic` or `client_id`, which
    select requests that have these names.
    """

    def __init__(self, carry_out: Callable[[Callable[[Server], None]], None]) -> None:
        self._carry_out: Final = carry_out
        self._faults: list[ProtocolFault] = []
        self._lock: Final = threading.Lock()

    def __iter__(self) -> Iterator[ProtocolFault]:
        return iter(list(self._faults))

    def answer(self, api: str, *, error: str | ErrorCode, **only: str | None) -> ProtocolFault:
        """Respond with a protocol error, by Kafka's name, instead of carrying requests out.

        Raises:
            ConfigError: an unknown API or error, or an API whose response has no error field.
        """
        key, code = _api(api), _error(error)
        if not _has_error(registry.response_class(key)):
            raise ConfigError(f"an answer to {api} has no place for an error")
        return self._plant(ProtocolFault(_Kind.ANSWER, key, _checked(only), error=code))

    def delay(self, api: str, seconds: float, **only: str | None) -> ProtocolFault:
        """Carry requests out later; subsequent requests on their connections wait as well."""
        if not seconds > 0:
            raise ConfigError(f"seconds cannot be {seconds!r}: more than 0 are expected")
        return self._plant(ProtocolFault(_Kind.DELAY, _api(api), _checked(only), seconds=seconds))

    def drop(self, api: str, **only: str | None) -> ProtocolFault:
        """Neither carry requests out nor respond, as if the broker hung for these connections."""
        return self._plant(ProtocolFault(_Kind.DROP, _api(api), _checked(only)))

    def disconnect(self, api: str, **only: str | None) -> ProtocolFault:
        """Close the connection instead of carrying the request out."""
        return self._plant(ProtocolFault(_Kind.DISCONNECT, _api(api), _checked(only)))

    def truncate(self, api: str, **only: str | None) -> ProtocolFault:
        """Carry the request out, send half of the response and close the connection."""
        return self._plant(ProtocolFault(_Kind.TRUNCATE, _api(api), _checked(only)))

    def clear(self) -> None:
        """Remove all faults, and close the connections of requests that were dropped."""
        self.remove(list(self))

    def remove(self, faults: Collection[ProtocolFault]) -> None:
        """Remove some faults, and close the connections of requests that these have dropped."""
        if not faults:
            return
        with self._lock:
            left = self._faults = [each for each in self._faults if each not in faults]

        def take_back(server: Server) -> None:
            server.intercept(self._through if left else None)
            for request in [each for fault in faults for each in fault.dropped if each.is_open]:
                request.connection.close()

        self._carry_out(take_back)

    def check(self) -> None:
        """Raise `FaultNotStruckError` if one of the faults has applied to no request."""
        idle = [each for each in self._faults if not each.struck]
        if idle:
            seen = ", ".join(f"{each} (matched {each.matched})" for each in idle)
            raise FaultNotStruckError(f"no request was struck by {seen}: the test has not tried it")

    def _plant(self, fault: ProtocolFault) -> ProtocolFault:
        with self._lock:
            self._faults = [*self._faults, fault]
        self._carry_out(lambda server: server.intercept(self._through))
        return fault

    def _through(self, route: Route) -> Route:
        return _FaultyRoute(route, self) if any(each.api is route.api_key for each in self._faults) else route

    def find(self, context: BrokerContext, request: Request, route: Route, message: Message) -> ProtocolFault | None:
        """Return the fault that applies to a request, if there is one; runs on the broker's thread."""
        for fault in self._faults:
            if fault.api is route.api_key and fault.takes(context, request, message):
                return fault
        return None


class _FaultyRoute(Route):
    """A route that checks for faults before its handler."""

    __slots__ = ()

    def __init__(self, route: Route, faults: ProtocolFaults) -> None:
        """Copy everything from `route` except its decoder and its handler."""
        for name in Route.__slots__:
            object.__setattr__(self, name, getattr(route, name))

        def handle(context: BrokerContext, request: Request, message: Any) -> Message | bytes | None:
            # The next one has to come by here as well, also if it is the same.
            fault = None if message is None else faults.find(context, request, route, message)
            answer = _strike(fault, route, context, request, message)
            request.repeatable = None
            return answer

        object.__setattr__(self, "handle", handle)
        # What is carried out later must not lie in the connection's buffer.
        object.__setattr__(self, "decode", lambda frame, at: route.decode(memoryview(bytes(frame)), at))


class _TornRoute:
    """The framing of a request whose response is cut in half."""

    def __init__(self, route: Route, context: BrokerContext, request: Request) -> None:
        self.api_key, self.version = route.api_key, route.version
        self.is_long, self.is_flexible = route.is_long, route.is_flexible
        self._route, self._context, self._connection = route, context, request.connection

    def frame(self, correlation_id: int, body: Message | bytes) -> list[Buffer]:
        """Return the first half of the response, after which the connection closes."""
        self._context.loop.call_soon(self._connection.close)
        whole = b"".join(self._route.frame(correlation_id, body))
        return [whole[: len(whole) // 2]]


def _strike(
    fault: ProtocolFault | None, route: Route, context: BrokerContext, request: Request, message: Message
) -> Message | bytes | None:
    """Handle a request as its fault requires."""
    if fault is None:
        return route.handle(context, request, message)
    match fault.kind:
        case _Kind.ANSWER:
            refusal = refusal_of(registry.response_class(route.api_key), message, fault.error)
            if isinstance(refusal, MetadataResponse):
                # A client has to find the broker again.
                nodes = context.leadership.nodes(request.connection)
                refusal.brokers = [
                    MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port) for node in nodes
                ]
                refusal.cluster_id, refusal.controller_id = context.cluster.cluster_id, nodes[0].node_id
            return refusal
        case _Kind.DELAY:
            context.loop.call_later(fault.seconds, _carry_out_late, route, context, request, message)
        case _Kind.DISCONNECT:
            context.loop.call_soon(request.connection.close)
        case _Kind.TRUNCATE:
            request.route = _TornRoute(route, context, request)
            answer = route.handle(context, request, message)
            if answer is not None:
                request.fill(request.route.frame(request.correlation_id, answer))
        case _Kind.DROP:
            fault.dropped.append(request)
    return None


def _carry_out_late(route: Route, context: BrokerContext, request: Request, message: Message) -> None:
    if not request.is_open:
        return
    answer = route.handle(context, request, message)
    if answer is not None:
        request.answer(answer)
    elif request.heartbeat is not None and request.is_open:
        # Its connection does not know that it is held, and would keep the requests behind it waiting.
        request.heartbeat.release(False)


def refusal_of(response: type[Message], request: Message, error: ErrorCode) -> Message:
    """Return the response that refuses everything in a request, with one row for each of its rows."""
    return _filled(response, request, int(error))


def _filled(made: type[Message], source: Message, error: int) -> Message:
    values: dict[str, object] = {}
    for each in made._fields:
        if each.name in _CODES:
            values[each.name] = error
            continue
        given = _like(source, each.name)
        row = _row_of(each)
        if row is not None and isinstance(given, list):
            values[each.name] = [
                _filled(row, one, error) if isinstance(one, Message) else _named(row, one, error) for one in given
            ]
        elif row is None and given is not None and not isinstance(given, list | Message):
            values[each.name] = given
    if made is FetchResponse and values["responses"]:
        # At its head stands what concerns the session alone.
        values["error_code"] = int(ErrorCode.NONE)
    return made(**values)


def _named(made: type[Message], name: object, error: int) -> Message:
    """Return the response row for a request's row that is just a name."""
    first = next(each.name for each in made._fields if each.name not in _CODES and _row_of(each) is None)
    known = next((each.name for each in made._fields if each.name in _GROUPS or each.name in ("name", "topic")), first)
    values: dict[str, object] = {known: name}
    values |= {each.name: error for each in made._fields if each.name in _CODES}
    return made(**values)


def _like(source: Message, name: str) -> object:
    """Return the request's field that a response's field repeats; `None` if there is none."""
    here = {each.name for each in source._fields}
    if name in here:
        return getattr(source, name)
    others = (other for alike in _ALIKE if name in alike for other in alike if other in here)
    return getattr(source, next(others, ""), None)


def _row_of(each: Field) -> type[Message] | None:
    """Return the class of the rows of a field that is an array of structs."""
    element = each.kind.element if isinstance(each.kind, Array) else None
    return element if isinstance(element, type) else None


def _has_error(made: type[Message]) -> bool:
    rows = (_row_of(each) for each in made._fields)
    return any(each.name in _CODES for each in made._fields) or any(row and _has_error(row) for row in rows)


def _names(message: Message, fields: frozenset[str]) -> Iterator[object]:
    """Return the values of a request's fields of these names, at any depth."""
    for each in message._fields:
        value = getattr(message, each.name)
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, Message):
                yield from _names(one, fields)
            elif each.name in fields and one is not None:
                yield one


def _api(name: object) -> AnyApiKey:
    known = {_plain(key.name): key for key in registry.SERVED}
    key = known.get(_plain(name)) if isinstance(name, str) else None
    if key is None:
        near = _near(_plain(name), known) if isinstance(name, str) else []
        hint = f": {_title(known[near[0]])}?" if near else ": Kafka's names are expected, like OffsetCommit"
        raise ConfigError(f"this broker has no API {name!r}{hint}")
    return key


def _near(word: str, known: Iterable[str]) -> list[str]:
    """Return the name that is most like a word, if one is."""
    # Loaded only for a mistake.
    from difflib import get_close_matches

    return get_close_matches(word, [*known], n=1)


def _plain(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("request")


def _title(key: AnyApiKey) -> str:
    return key.name.title().replace("_", "")


def _error(error: object) -> ErrorCode:
    if isinstance(error, ErrorCode):
        return error
    if isinstance(error, str) and error.upper() in ErrorCode.__members__:
        return ErrorCode[error.upper()]
    near = _near(str(error).upper(), ErrorCode.__members__)
    hint = f": {near[0]}?" if near else ": Kafka's names are expected, like NOT_COORDINATOR"
    raise ConfigError(f"Kafka has no error {error!r}{hint}")


def _checked(only: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the selection of requests, after checking that its keywords are known."""
    for name in only:
        if name not in ("group", "topic", "client_id"):
            raise ConfigError(f"requests are not chosen by {name!r}: one of group, topic, client_id is expected")
    return dict(only)


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(f"{name} cannot be {count!r}: 1 or more is expected")
