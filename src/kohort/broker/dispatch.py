"""The routes from (API key, version) to the decoder, handler and encoder of an API.

The handler of an API is the function `handle` of `apis/<name>.py`, imported on the API's first request. It returns
the response, or its encoded body, or `None` when the request's slot was filled already or is filled later.

Laws: an API key that is not served closes the connection, as Kafka does; an unknown version of ApiVersions is
answered in version 0, any other unknown version closes the connection (its answer's format is unknown as well).
Source: KIP-35, KIP-511; Apache Kafka's request parsing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from struct import Struct
from typing import Any, Final

from kohort.broker.connections.request import Buffer, Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.requests import Decoder, bounded_decode
from kohort.errors import RemoteProtocolError
from kohort.wire import registry
from kohort.wire.codec import decode, encode_parts, encoder
from kohort.wire.registry import AnyApiKey, ApiKey
from kohort.wire.schema import Message

#: Carries out one request.
Handler = Callable[[BrokerContext, Request, Any], Message | bytes | None]

#: The head of an answer: length and correlation id; in response header 1 an empty tagged section follows.
_SIZE: Final = Struct(">i")
_PREFIX_V0: Final = Struct(">ii")
_PREFIX_V1: Final = Struct(">iiB")
#: The answers that carry records, which stay un-copied parts.
_WITH_PARTS: Final = frozenset({ApiKey.FETCH})
_KEPT: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
#: APIs whose answers are at most about as long as their requests; clients send many of these requests.
_SHORT: Final = _KEPT | {
    ApiKey.API_VERSIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.HEARTBEAT,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.PRODUCE,
}


class Route:
    """One API at one version."""

    __slots__ = (
        "_encode",
        "api_key",
        "decode",
        "handle",
        "has_flexible_header",
        "has_parts",
        "is_flexible",
        "is_long",
        "keeps_request",
        "name",
        "version",
    )

    def __init__(
        self,
        api_key: AnyApiKey,
        version: int,
        *,
        decode: Decoder,
        handle: Handler,
        has_flexible_header: bool,
        response_version: int,
    ) -> None:
        """Build the route; `response_version` differs from `version` only where ApiVersions steps down."""
        self.api_key: Final = api_key
        self.version: Final = version
        self.name: Final = api_key.name
        self.decode: Final = decode
        self.handle: Final = handle
        #: Whether tagged fields stand between the client id and the body.
        self.has_flexible_header: Final = has_flexible_header
        #: Whether tagged fields stand in the answer.
        self.is_flexible: Final = registry.response_header_version(api_key, response_version) >= 1
        #: Whether the answer is too large to be copied together.
        self.has_parts: Final = api_key in _WITH_PARTS
        #: Whether a short request may have a long answer, or one that is much work.
        self.is_long: Final = api_key not in _SHORT
        #: Whether the whole request stays in memory until it is answered, which may take long.
        self.keeps_request: Final = api_key in _KEPT
        self._encode: Final = encoder(registry.response_class(api_key), response_version)

    def append_frame(self, out: bytearray, correlation_id: int, body: Message | bytes) -> None:
        """Append the whole answer to `out`, length first."""
        start = len(out)
        out += _PREFIX_V1.pack(0, correlation_id, 0) if self.is_flexible else _PREFIX_V0.pack(0, correlation_id)
        if isinstance(body, bytes):
            out += body
        else:
            self._encode(body, out)
        _SIZE.pack_into(out, start, len(out) - start - 4)

    def frame(self, correlation_id: int, body: Message | bytes) -> list[Buffer]:
        """Return the whole answer, as buffers to be written one after another."""
        if not self.has_parts or isinstance(body, bytes):
            out = bytearray()
            self.append_frame(out, correlation_id, body)
            return [out]
        parts = encode_parts(body, self.version)
        prefix = _PREFIX_V1 if self.is_flexible else _PREFIX_V0
        size = prefix.size - 4 + sum(map(len, parts))
        head = prefix.pack(size, correlation_id, 0) if self.is_flexible else prefix.pack(size, correlation_id)
        return [head, *parts]


class Routes:
    """The routes used so far, by `key << 16 | version`."""

    __slots__ = ("_routes", "_through", "get")

    def __init__(self) -> None:
        self._routes: Final[dict[int, Route]] = {}
        #: Makes the route that is taken instead of an ordinary one; `None`: none is made.
        self._through: Callable[[Route], Route] | None = None
        #: The route of a packed key and version, `None` if it was not used yet.
        self.get: Final = self._routes.get

    def resolve(self, api_key: int, version: int) -> Route:
        """Build the route of an API and version; raise `RemoteProtocolError` if they are not served."""
        key = registry.api_key_of(api_key)
        if key is None or key in registry.UNSERVED:
            # Kafka, too, closes the connection of a request that it cannot parse.
            raise RemoteProtocolError(f"API key {api_key} is not served")
        lowest, highest = registry.versions_of(key)
        if lowest <= version <= highest:
            route = Route(
                key,
                version,
                decode=bounded_decode(key, version),
                handle=_handler(key),
                has_flexible_header=registry.request_header_version(key, version) >= 2,
                response_version=version,
            )
            if self._through is not None:
                route = self._through(route)
            self._routes[api_key << 16 | version] = route
            return route
        # KIP-511: an unknown version of ApiVersions is answered in version 0 with the served range.
        if key is ApiKey.API_VERSIONS:
            return _step_down_route()
        raise RemoteProtocolError(f"version {version} of {key.name}; {lowest} to {highest} are served")

    def pass_through(self, through: Callable[[Route], Route] | None) -> None:
        """Replace each route by the one that `through` makes of it, from the next request on; `None`: no more."""
        self._through = through
        self._routes.clear()

    @staticmethod
    def skip_header_tags(frame: memoryview, position: int) -> int:
        """Return the position of the body, behind the tagged fields of a flexible header."""
        if position < len(frame) and not frame[position]:
            return position + 1
        return decode(registry.RequestHeader, 2, frame)[1]


def _handler(key: AnyApiKey) -> Handler:
    module = import_module(f"kohort.broker.apis.{key.name.lower()}")
    handler: Handler = module.handle
    return handler


def _step_down_route() -> Route:
    """Build the route of an unknown version of ApiVersions: skip the body, answer in version 0."""
    from kohort.broker.apis.api_versions import refuse_version

    return Route(
        ApiKey.API_VERSIONS,
        0,
        decode=lambda _, position: (None, position),
        handle=refuse_version,
        has_flexible_header=False,
        response_version=0,
    )
