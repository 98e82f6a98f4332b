"""Client quotas: the limit for a user and client id, and the throttle time of a client above it.

A capability token may limit its holders as well. Such a rate is counted in addition to the quotas. All tokens that were
derived from the link with the rate share one count.

Laws: nothing here reads a clock. The most specific limit applies. All client ids of a user share a limit that names
only the user. Without a quota nothing is measured and nothing is stored (`is_on`). The memory for clients is bounded:
a client without a request for an hour is removed, and above `MOST_CLIENTS` the least recently used one.
Source: Apache Kafka's ClientQuotaManager, ClientRequestQuotaManager and ControllerMutationQuotaManager; KIP-13, KIP-55
(users), KIP-124 (request time), KIP-219 (respond first, then throttle), KIP-599 (topics).
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakSet

from kohort.broker.limits.quota_windows import RateWindow, TokenBucket
from kohort.errors import ErrorCode, Refused
from kohort.security.capabilities.capability import Capability, Rate
from kohort.storage.client_quotas import CLIENT_ID, IP, USER, Quotas

#: The most clients that are kept, a kilobyte each, and how long they are kept after their last request, ms.
MOST_CLIENTS: Final = 10_000
REMEMBERED_MS: Final = 3_600_000
#: The holders of a token with `byte_rate` may send or fetch the bytes of this time at once, ms. With Kafka's quotas the
#: time is ten seconds; the rate of a token holds in any ten seconds.
TOKEN_BURST_MS: Final = 250
#: Characters of a user or client id above which its digest is stored.
LONGEST_TAG: Final = 256


#: The most clients whose limits are cached, because each request needs them; then the cache is cleared.
MOST_FOUND: Final = 1_000
#: The most entities with quotas of a cluster, and the most characters of a name of one.
MOST_ENTITIES: Final = 10_000
LONGEST_NAME: Final = 1_024


class Quota(Enum):
    """The quotas of users and client ids, under the names that Kafka gives them."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


class TokenRate(Enum):
    """The rates of capability tokens, under the names of the tokens' caveats."""

    BYTE_RATE = "byte_rate"
    REQUEST_RATE = "request_rate"


AnyQuota: TypeAlias = Quota | TokenRate


#: The quota of addresses.
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: The one host name that is accepted as an address; other names would need DNS.
LOCALHOST: Final = "localhost"

#: Stands for a part that the entity does not have. The name `None` stands for the default entity.
_ABSENT: Final = object()
_Part = object

#: The order in which limits are looked up: (user, client id, by user, by client id). The first two are `True` for the
#: client's own name, `None` for the default, `False` for an absent part. The others say whether each user, and each
#: client id, has its own count.
_PRECEDENCE: Final[tuple[tuple[bool | None, bool | None, bool, bool], ...]] = (
    (True, True, True, True),
    (True, None, True, True),
    (True, False, True, False),
    (None, True, True, True),
    (None, None, True, True),
    (None, False, True, False),
    (False, True, False, True),
    (False, None, False, True),
)


class Applied(NamedTuple):
    """The limit that applies to a client, and the user and client id under which its use is counted."""

    limit: float
    #: Empty if all users share the limit, or all client ids.
    user: str
    client_id: str


class QuotaLimits:
    """The client quotas of one cluster, by quota entity (user, client id, address)."""

    def __init__(self, quotas: Quotas) -> None:
        #: Quota -> (user, client id) of the entity -> limit.
        self._of: dict[Quota, dict[tuple[_Part, _Part], float]] = {}
        #: Results of `find` since the last change.
        self._found: Final[dict[tuple[Quota, str, str], Applied | None]] = {}
        #: Address -> connections a second; `None` is the default.
        self.by_address: dict[str | None, float] = {}
        #: The brokers of the cluster, which are notified of changes.
        self.followers: Final[WeakSet[Any]] = WeakSet()
        #: Entities that have limits.
        self.entity_count = 0
        self.apply(quotas)

    def apply(self, quotas: Quotas) -> None:
        """Replace all limits by these, and notify the brokers that follow them."""
        self._of = {quota: {} for quota in Quota}
        self._found.clear()
        self.by_address = {}
        self.entity_count = len(quotas)
        for entity, limits in quotas.items():
            parts = dict(entity)
            place = (parts.get(USER, _ABSENT), parts.get(CLIENT_ID, _ABSENT))
            for key, value in limits.items():
                if IP in parts:
                    name = parts[IP]
                    self.by_address[None if name is None else canonical(name)] = value
                elif key in _KEYS:
                    # Another version of kohort may have had other quotas.
                    self._of[_KEYS[key]][place] = value
        for follower in list(self.followers):
            follower.on_change()

    def has(self, quota: Quota) -> bool:
        """Return whether any quota entity has a limit of this kind."""
        return bool(self._of[quota])

    def find(self, quota: Quota, user: str, client_id: str) -> Applied | None:
        """Return the most specific limit that applies to a client; `None` if no limit applies."""
        if not self._of[quota]:
            return None
        key = (quota, user, client_id)
        found = self._found
        if key in found:
            return found[key]
        if len(found) >= MOST_FOUND:
            found.clear()
        applied = self._look_for(quota, user, client_id)
        if len(client_id) <= LONGEST_TAG:
            found[key] = applied
        return applied

    def _look_for(self, quota: Quota, user: str, client_id: str) -> Applied | None:
        limits = self._of[quota]
        users: dict[bool | None, _Part] = {True: user, None: None, False: _ABSENT}
        client_ids: dict[bool | None, _Part] = {True: client_id, None: None, False: _ABSENT}
        for of_user, of_client, by_user, by_client in _PRECEDENCE:
            limit = limits.get((users[of_user], client_ids[of_client]))
            if limit is not None:
                return Applied(limit, user if by_user else "", client_id if by_client else "")
        return None


_KEYS: Final[Mapping[str, Quota]] = {quota.value: quota for quota in Quota}


def check_quota_count(quotas: Quotas) -> None:
    """Raise `Refused` if more than `MOST_ENTITIES` entities have quotas."""
    if len(quotas) > MOST_ENTITIES:
        text = f"there would be quotas of {len(quotas)} users, clients and addresses; {MOST_ENTITIES} are allowed"
        raise Refused(ErrorCode.POLICY_VIOLATION, text)


class _Client:
    """The measured use of one quota by one client, or by all clients that share the limit."""

    __slots__ = ("bucket", "name", "rate", "throttled_ms", "throttled_times", "used_ms")

    def __init__(self, name: str, rate: RateWindow, bucket: TokenBucket) -> None:
        #: The name of the client for administrators.
        self.name: Final = name
        self.rate: Final = rate
        #: Of `Quota.CONTROLLER_MUTATION_RATE` and `TokenRate.BYTE_RATE` alone.
        self.bucket: Final = bucket
        self.used_ms = 0
        self.throttled_times = self.throttled_ms = 0


class ClientQuotas:
    """The measured use of all quotas by the clients of one broker."""

    def __init__(self, limits: QuotaLimits, values: Mapping[str, Any]) -> None:
        """Follow `limits`; `values` has the broker's options for the number and the length of quota windows."""
        self.limits: Final = limits
        self._windows: Final = _windows_of(values, "quota")
        self._controller_windows: Final = _windows_of(values, "controller.quota")
        #: Whether requests have to be measured at all, and whether their processing time.
        self.is_on = self.is_timed = False
        #: (quota, user, client id) -> use; the least recently used client first.
        self._clients: Final[dict[tuple[AnyQuota, str, str], _Client]] = {}
        #: Throttled requests since the start by quota, and the sum of their throttle times, milliseconds.
        self.throttled: Final[Counter[AnyQuota]] = Counter()
        self.throttled_ms = 0
        limits.followers.add(self)
        self.on_change()

    def on_change(self) -> None:
        """Update `is_on` and `is_timed` after the limits have changed."""
        self.is_timed = self.limits.has(Quota.REQUEST_PERCENTAGE)
        self.is_on = self.is_timed or any(map(self.limits.has, Quota))

    def __len__(self) -> int:
        return len(self._clients)

    def take(self, quota: Quota, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count `amount` against a quota; return the client's throttle time, ms.

        The throttle time of `request_percentage` is one window at most, as in Kafka.
        """
        applied = self.limits.find(quota, user, client_id)
        if applied is None:
            return 0
        wait_ms = self._take(quota, applied, amount, now_ms)
        return min(wait_ms, self._windows["window_ms"]) if quota is Quota.REQUEST_PERCENTAGE else wait_ms

    def owed_ms(self, quota: Quota, user: str, client_id: str, now_ms: int) -> int:
        """Return the throttle time that earlier requests of a client have caused, ms: all windows at most."""
        applied = self.limits.find(quota, user, client_id)
        return 0 if applied is None else self._owed_ms(quota, applied, now_ms)

    def take_back_fetched(
        self, user: str, client_id: str, rates: Sequence[Rate], *, amount: float, now_ms: int
    ) -> bool:
        """Take back the bytes of a fetch that were counted at `now_ms`, unless nothing else is counted.

        Returns:
            Whether the bytes were taken back. A fetch that exceeds its limit alone would exceed it at each new try.
            Such a fetch stays counted, and its client is throttled after the response.
        """
        quota = self.limits.find(Quota.CONSUMER_BYTE_RATE, user, client_id)
        counted = None if quota is None else self._client(Quota.CONSUMER_BYTE_RATE, quota, now_ms).rate
        buckets = [(self._client(TokenRate.BYTE_RATE, _applied(each), now_ms).bucket, each) for each in rates]
        if counted is not None and counted.total(now_ms) <= amount:
            return False
        if any(bucket.has_all_but(amount, rate.per_second, now_ms) for bucket, rate in buckets):
            return False
        if counted is not None:
            counted.record(-amount, now_ms)
        for bucket, rate in buckets:
            bucket.take(-amount, rate.per_second, now_ms)
        return True

    def most_fetched(self, user: str, client_id: str, rates: Sequence[Rate]) -> int | None:
        """Return the bytes above which a single fetch is throttled in any case; `None`: no limit applies."""
        quota = self.limits.find(Quota.CONSUMER_BYTE_RATE, user, client_id)
        most = [each.per_second * TOKEN_BURST_MS / 1000 for each in rates]
        if quota is not None:
            most.append(quota.limit * (self._windows["windows"] - 1) * self._windows["window_ms"] / 1000)
        return int(min(*most, (1 << 31) - 1)) if most else None

    def take_of_token(self, quota: TokenRate, rates: Sequence[Rate], amount: float, now_ms: int) -> int:
        """Count `amount` against each rate of a token; return the throttle time of the token's holder, ms."""
        return max((self._take(quota, _applied(each), amount, now_ms) for each in rates), default=0)

    def owed_of_token_ms(self, capability: Capability, now_ms: int) -> int:
        """Return the throttle time that earlier use of a token has caused, ms: all windows at most."""
        both = ((TokenRate.BYTE_RATE, capability.byte_rates), (TokenRate.REQUEST_RATE, capability.request_rates))
        waits = (self._owed_ms(quota, _applied(each), now_ms) for quota, rates in both for each in rates)
        return max(waits, default=0)

    def _take(self, quota: AnyQuota, applied: Applied, amount: float, now_ms: int) -> int:
        client = self._client(quota, applied, now_ms)
        if quota is TokenRate.BYTE_RATE:
            client.bucket.take(amount, applied.limit, now_ms)
            return client.bucket.throttle_ms(applied.limit, now_ms)
        client.rate.record(amount, now_ms)
        return client.rate.throttle_ms(applied.limit, now_ms)

    def _owed_ms(self, quota: AnyQuota, applied: Applied, now_ms: int) -> int:
        client = self._clients.get(_key(quota, applied))
        if client is None:
            return 0
        counted = client.bucket if quota is TokenRate.BYTE_RATE else client.rate
        wait_ms = counted.throttle_ms(applied.limit, now_ms)
        return min(wait_ms, self._windows["windows"] * self._windows["window_ms"])

    def take_tokens(self, user: str, client_id: str, count: int, now_ms: int, *, is_strict: bool) -> int:
        """Count partitions that are created or deleted; return the client's throttle time, ms.

        `is_strict`: a client that is throttled already has its change rejected, and nothing is counted (KIP-599).
        """
        applied = self.limits.find(Quota.CONTROLLER_MUTATION_RATE, user, client_id)
        if applied is None:
            return 0
        bucket = self._client(Quota.CONTROLLER_MUTATION_RATE, applied, now_ms).bucket
        if not is_strict:
            bucket.take(count, applied.limit, now_ms)
            return bucket.throttle_ms(applied.limit, now_ms)
        wait_ms = bucket.throttle_ms(applied.limit, now_ms)
        if not wait_ms:
            bucket.take(count, applied.limit, now_ms)
        return wait_ms

    def note_throttled(self, quota: AnyQuota, user: str, client_id: str, wait_ms: int, now_ms: int) -> None:
        """Count that `quota` throttles a client for `wait_ms`; for a rate of a token `user` is its id."""
        self.throttled[quota] += 1
        self.throttled_ms += wait_ms
        if isinstance(quota, TokenRate):
            applied: Applied | None = Applied(0, user, "")
        else:
            applied = self.limits.find(quota, user, client_id)
        if applied is not None:
            client = self._client(quota, applied, now_ms)
            client.throttled_times += 1
            client.throttled_ms += wait_ms

    def most_throttled(self, most: int) -> list[str]:
        """Describe the `most` clients with the longest total throttle time."""
        waited = [client for client in self._clients.values() if client.throttled_times]
        waited.sort(key=attrgetter("throttled_ms"), reverse=True)
        return [f"{each.name}:{each.throttled_times}x:{each.throttled_ms}ms" for each in waited[:most]]

    def _client(self, quota: AnyQuota, applied: Applied, now_ms: int) -> _Client:
        clients = self._clients
        key = _key(quota, applied)
        # The most recently used client is last, so the first ones are removed.
        client = clients.pop(key, None)
        if client is None:
            self._make_room(now_ms)
            burst = (
                {"windows": 1, "window_ms": TOKEN_BURST_MS}
                if isinstance(quota, TokenRate)
                else self._controller_windows
            )
            client = _Client(_name(*key), RateWindow(**self._windows), TokenBucket(**burst))
        clients[key] = client
        client.used_ms = now_ms
        return client

    def _make_room(self, now_ms: int) -> None:
        clients = self._clients
        while clients:
            key, oldest = next(iter(clients.items()))
            if len(clients) < MOST_CLIENTS and now_ms - oldest.used_ms < REMEMBERED_MS:
                return
            del clients[key]


def _windows_of(values: Mapping[str, Any], prefix: str) -> dict[str, int]:
    return {"windows": values[f"{prefix}.window.num"], "window_ms": values[f"{prefix}.window.size.seconds"] * 1000}


def _applied(rate: Rate) -> Applied:
    return Applied(rate.per_second, rate.id, "")


def _key(quota: AnyQuota, applied: Applied) -> tuple[AnyQuota, str, str]:
    return quota, _tag(applied.user), _tag(applied.client_id)


def _tag(name: str) -> str:
    """Return a short name as it is, and a digest of a long one, since a client id may have 32 KB."""
    if len(name) <= LONGEST_TAG:
        return name
    return f"{name[:16]}...{blake2b(name.encode(), digest_size=16).hexdigest()}"


def _name(quota: AnyQuota, user: str, client_id: str) -> str:
    if isinstance(quota, TokenRate):
        return f"{quota.value}(token={user!r})"
    parts = [f"{kind}={name!r}" for kind, name in ((USER, user), (CLIENT_ID, client_id)) if name]
    return f"{quota.value}({','.join(parts)})"


def user_of(principal: str) -> str:
    """Return the user name that quotas use for a principal: the part after the type.

    >>> user_of("User:alice")
    'alice'
    """
    return principal.partition(":")[2]


def canonical(host: str) -> str:
    """Return the canonical spelling of an IP address; a text that is no address is returned unchanged.

    >>> canonical("::ffff:10.0.0.7"), canonical("0:0::1"), canonical("somewhere"), canonical("localhost")
    ('10.0.0.7', '::1', 'somewhere', '127.0.0.1')
    """
    if host == LOCALHOST:
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
