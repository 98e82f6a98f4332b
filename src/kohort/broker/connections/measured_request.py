"""A request that is measured for quotas or a token's rates; its response has the throttle time.

Laws: a response is sent at once. The connection is muted for the throttle time: nothing is read from it (`Peer.mute`).
A request is counted once, when its response is known; one whose connection is closed is not counted.
The time of a request is its time on the event loop, from decoding to the response, without its waits.
Source: KIP-219; Apache Kafka's RequestHandlerHelper and KafkaApis. There, too, every request of a client counts,
heartbeats included: only those of brokers are exempt, and acks=0 from request_percentage. Rates of tokens: requirement
H6 (QoS); the longest of all waits counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from functools import cache
from operator import attrgetter
from struct import Struct
from typing import Any, Final

from kohort.broker.connections.request import Framing, Peer, Request
from kohort.broker.limits.client_quotas import AnyQuota, ClientQuotas, Quota, TokenRate, user_of
from kohort.errors import ErrorCode, Refused
from kohort.wire.codec import decode, encode
from kohort.wire.registry import AnyApiKey, ApiKey, response_class
from kohort.wire.schema import Message, fields_of

#: The versions from which on a client knows THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE: Final[dict[AnyApiKey, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}
#: Bytes of a partition in an answer to a fetch, beside its records.
ROW_BYTES: Final = 40
_FIELD: Final = "throttle_time_ms"
_INT32: Final = Struct(">i")


class MeasuredRequest(Request):
    """One request whose bytes, time and partitions count against the client's quotas."""

    __slots__ = (
        "_began",
        "_byte_rates",
        "_is_counted",
        "_mutations_at_ms",
        "_mutations_ms",
        "_now_ms",
        "_quotas",
        "_request_rates",
        "_seconds",
        "_size",
        "_user",
        "_wait_ms",
    )

    is_measured = True

    def __init__(
        self,
        connection: Peer,
        route: Framing,
        correlation_id: int,
        client_id: str,
        *,
        quotas: ClientQuotas,
        now_ms: Callable[[], int],
        size: int,
    ) -> None:
        """Start to measure a request of `size` bytes; `now_ms` is a clock that never goes back."""
        super().__init__(connection, route, correlation_id, client_id)
        self._quotas: Final = quotas
        self._now_ms: Final = now_ms
        self._size: Final = size
        self._user: Final = user_of(connection.principal)
        capability = connection.rights.capability
        self._byte_rates: Final = () if capability is None else capability.byte_rates
        self._request_rates: Final = () if capability is None else capability.request_rates
        #: Set while the loop is at work on it.
        self._began: float | None = time.perf_counter()
        self._seconds = 0.0
        self._is_counted = False
        #: The time that its client has to wait, once that is known.
        self._wait_ms = 0
        #: The wait for its changes of topics, and when it was found.
        self._mutations_ms = self._mutations_at_ms = 0

    def handled(self, answer: Message | bytes | None) -> Message | bytes | None:
        """Return the handler's response with its throttle time; `None`: the response comes later."""
        if answer is not None:
            return self.limited(answer)
        self._pause()
        return None

    def _pause(self) -> None:
        """Stop the measurement of the request's time, since the request waits or is done."""
        if self._began is not None:
            self._seconds += time.perf_counter() - self._began
            self._began = None

    def take_mutations(self, count: int) -> None:
        """Count partitions that are created or deleted; raise `Refused` with THROTTLING_QUOTA_EXCEEDED."""
        now_ms = self._now_ms()
        api_key = self.route.api_key
        is_strict = api_key in STRICT_SINCE and self.version >= STRICT_SINCE[api_key]
        wait_ms = self._quotas.take_tokens(self._user, self.client_id, count, now_ms, is_strict=is_strict)
        if wait_ms:
            self._mutations_ms, self._mutations_at_ms = wait_ms, now_ms
            if is_strict:
                raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def most_fetched(self) -> int | None:
        """Return the response size above which the fetch is throttled in any case, bytes; `None`: no limit."""
        return self._quotas.most_fetched(self._user, self.client_id, self._byte_rates)

    def withholds(self, size: int) -> bool:
        """Count a fetch response of `size` bytes; return whether an empty one must be sent and none counted."""
        now_ms = self._now_ms()
        waits: dict[AnyQuota, int] = {
            Quota.CONSUMER_BYTE_RATE: self._take(Quota.CONSUMER_BYTE_RATE, size, now_ms),
            TokenRate.BYTE_RATE: self._take_bytes(size, now_ms),
        }
        self._settle(waits, now_ms)
        # A request that is one too many is answered: counted it is, and the next one would be one too many, too.
        if not any(wait_ms for quota, wait_ms in waits.items() if quota is not TokenRate.REQUEST_RATE):
            return False
        user, rates = self._user, self._byte_rates
        return self._quotas.take_back_fetched(user, self.client_id, rates, amount=size, now_ms=now_ms)

    def limited(self, body: Message | bytes) -> Message | bytes:
        """Count the request if it was not counted yet, and return its response with the throttle time."""
        if not self._is_counted and self.is_open:
            self._count()
        wait_ms = self._wait_ms
        return with_throttle_time(body, wait_ms, self.route.api_key, self.version) if wait_ms else body

    def _count(self) -> None:
        now_ms = self._now_ms()
        waits: dict[AnyQuota, int] = {}
        if self.route.api_key == ApiKey.PRODUCE:
            waits = self._take_produced(now_ms)
        if self._mutations_ms:
            # Some of the wait may be over: the changes of topics took their time.
            passed_ms = now_ms - self._mutations_at_ms
            waits[Quota.CONTROLLER_MUTATION_RATE] = max(0, self._mutations_ms - passed_ms)
        self._settle(waits, now_ms)

    def _take_produced(self, now_ms: int) -> dict[AnyQuota, int]:
        return {
            Quota.PRODUCER_BYTE_RATE: self._take(Quota.PRODUCER_BYTE_RATE, self._size, now_ms),
            TokenRate.BYTE_RATE: self._take_bytes(self._size, now_ms),
        }

    def _take_bytes(self, size: int, now_ms: int) -> int:
        return self._quotas.take_of_token(TokenRate.BYTE_RATE, self._byte_rates, size, now_ms)

    def _settle(self, waits: dict[AnyQuota, int], now_ms: int, *, is_timed: bool = True) -> None:
        """Count the request and its time, and mute the connection for the longest of all throttle times."""
        self._is_counted = True
        self._pause()
        waits[TokenRate.REQUEST_RATE] = self._quotas.take_of_token(
            TokenRate.REQUEST_RATE, self._request_rates, 1, now_ms
        )
        if is_timed and self._quotas.is_timed:
            waits[Quota.REQUEST_PERCENTAGE] = self._take(Quota.REQUEST_PERCENTAGE, self._seconds * 100, now_ms)
        for quota, wait_ms in waits.items():
            if wait_ms == max(waits.values()) > 0:
                self._wait_ms = wait_ms
                self._quotas.note_throttled(quota, self._name_for(quota), self.client_id, wait_ms, now_ms)
                self.connection.mute(wait_ms)
                return

    def _name_for(self, quota: AnyQuota) -> str:
        """Return the name for logs of a throttled client: the user, or the id of the token's lowest rate."""
        if not isinstance(quota, TokenRate):
            return self._user
        rates = self._byte_rates if quota is TokenRate.BYTE_RATE else self._request_rates
        return min(rates, key=attrgetter("per_second")).id

    def _take(self, quota: Quota, amount: float, now_ms: int) -> int:
        return self._quotas.take(quota, self._user, self.client_id, amount, now_ms)

    def answer(self, body: Message | bytes) -> None:
        """Answer with `body`, which may be sent at once."""
        super().answer(self.limited(body))

    def answer_unsynced(self, body: Message | bytes) -> None:
        """Answer with `body`, which has to wait for `release`."""
        super().answer_unsynced(self.limited(body))

    def skip(self) -> None:
        """Complete a request without a response (Produce with acks=0); count its bytes but not its time."""
        if not self._is_counted and self.is_open:
            now_ms = self._now_ms()
            self._settle(self._take_produced(now_ms), now_ms, is_timed=False)
        super().skip()


def with_throttle_time(body: Message | bytes, wait_ms: int, api_key: AnyApiKey, version: int) -> Message | bytes:
    """Return a response with its throttle time set, if the API version has the field."""
    since, is_first = _place_of_field(api_key)
    if since is None or version < since:
        # KIP-219: the client is not told, and waits all the same.
        return body
    if isinstance(body, bytes):
        if is_first:
            return _INT32.pack(wait_ms) + body[_INT32.size :]
        whole: Any = decode(response_class(api_key), version, body)[0]
        whole.throttle_time_ms = wait_ms
        return bytes(encode(whole, version))
    # Other requests may be answered with the same object.
    changed: Any = copy(body)
    changed.throttle_time_ms = wait_ms
    return changed  # type: ignore[no-any-return]


@cache
def _place_of_field(api_key: AnyApiKey) -> tuple[int | None, bool]:
    """Return the first version with `throttle_time_ms`, or `None`, and whether it is the first field."""
    fields = fields_of(response_class(api_key))
    found = [each for each in fields if each.name == _FIELD]
    return (found[0].since if found else None), bool(found) and fields[0].name == _FIELD
