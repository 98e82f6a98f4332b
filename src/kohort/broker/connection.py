"""One client's connection: it decodes and handles requests, and sends the responses in request order.

Bytes arrive in one receive buffer that grows up to a whole frame; every whole request of a read is handled before
one write. Requests are read ahead while earlier ones are unanswered, up to `queued.max.requests`.

Laws: responses leave in request order. Nothing is handled while the client does not read its responses. Memory beyond
the first small buffer is granted by `ByteBudget`. An invalid request closes this connection and no other. An unexpected
exception in an API handler is logged with its traceback and closes this connection. One in the coordinator or the log
stops the broker (runtime).
Source: Kafka's network protocol; architecture, journey of an OffsetCommit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Final, cast

from kohort.broker.access.logins import Login
from kohort.broker.access.rights import EVERYTHING, Rights
from kohort.broker.connections.buffers import WRITE_AT_BYTES, Output, ReceiveBuffer
from kohort.broker.connections.heartbeats import LONGEST_REPEAT_BYTES, HeldHeartbeats
from kohort.broker.connections.measured_request import MeasuredRequest
from kohort.broker.connections.memberconnections import MemberKey
from kohort.broker.connections.request import CachedRequest, ReplyQueue, ReplySlot, Request
from kohort.broker.connections.sockets import plain_host
from kohort.broker.context import BrokerContext
from kohort.broker.dispatch import Routes
from kohort.broker.limits.client_quotas import Quota, user_of
from kohort.broker.limits.requests import MOST_ORDINARY_BYTES, check_length
from kohort.broker.log_levels import asked_loggers, tell_request
from kohort.broker.options.listeners import ListenerSettings
from kohort.broker.scheduling import SHORT_BYTES
from kohort.errors import ForeignProtocolError, RemoteProtocolError, StorageError
from kohort.security.access_control import ANONYMOUS, AclOperation, ResourceType
from kohort.wire.foreign import HTTP_ANSWER, impossible_length
from kohort.wire.registry import ApiKey

log = logging.getLogger("kohort.broker.connections")

#: Bytes of requests that are handled for one connection before the others have their turn.
#: A request counts as its length and one of the two below: 128 short ones, or four with long answers, fill a turn.
BYTES_PER_TURN: Final = 64 * 1024
SHORT_COUNTS: Final = 512
LONG_COUNTS: Final = 16 * 1024
#: Unsent bytes at which handling pauses and at which it goes on.
WRITE_HIGH_BYTES: Final = 2 * 1024 * 1024
WRITE_LOW_BYTES: Final = 512 * 1024
#: The same while answers hold much memory.
SHORT_HIGH_BYTES: Final = 64 * 1024
SHORT_LOW_BYTES: Final = 16 * 1024
#: Shortest request header: API key, version, correlation id, length of the client id.
MIN_FRAME_BYTES: Final = 10

#: The heads of a frame: its length; length and API key; then the fixed part of the request header.
_SIZE: Final = Struct(">i")
_SIZE_AND_KEY: Final = Struct(">ih")
_HEADER: Final = Struct(">hhih")


class Connection(asyncio.BufferedProtocol):
    """The broker's end of one client connection."""

    def __init__(self, context: BrokerContext, routes: Routes, listener: ListenerSettings | None = None) -> None:
        """Create the connection of a client of `listener`, by default the broker's first."""
        self._context: Final = context
        self.listener = listener or context.settings.listeners[0]
        self.principal = ANONYMOUS
        self.rights: Rights = EVERYTHING
        #: Called with each frame before it is read; returns whether it has taken the frame, and raises
        #: `RemoteProtocolError` for one that is not allowed now. `None`: every one is.
        self.gate: Callable[[memoryview], bool] | None = None
        #: Its login, on a listener that asks for one.
        self.login: Login | None = None
        self._routes: Final = routes
        #: Rises with each connection that is accepted.
        self.number = context.next_connection_number()
        #: Set while connected.
        self._transport: asyncio.Transport | None = None
        #: Rises with each action of the client: bytes that it sends, answers that it takes.
        self.progress = 0
        #: Bytes received from the client.
        self.received_bytes = 0
        #: Whether `IdleTimeouts` waits for the rest of an incomplete request.
        self.is_watched = False
        #: Whether none of its requests was carried out yet.
        self._is_new = True
        #: The address of this host that the client connected to.
        self.local_host = ""
        self.peer_host, self.peer_port = "", 0
        #: Bytes that were received and are not handled.
        self.input: Final = ReceiveBuffer(context.byte_budget)
        self._replies: Final = ReplyQueue(
            context.settings.values["queued.max.requests"], context.parked, context.answer_memory
        )
        #: Bytes of the shortest and the longest frame that is read now.
        self._least, self._limit = MIN_FRAME_BYTES, context.settings.values["socket.request.max.bytes"]
        self._output: Final = Output()
        self._is_handling, self._is_reading = False, True
        #: Whether its transport may buffer less, because answers hold much memory.
        self._is_narrow = False
        #: Set while the client reads too slowly.
        self._is_write_paused = False
        #: Set while the budget has refused a longer buffer.
        self._waits_for_memory = False
        #: Whether a request to produce has come; the first one waits for what its client owes by other connections.
        self._has_produced = False
        #: Whether the first request behind the login has come; it waits for what the holders of its token owe.
        self._has_asked = False
        #: Set while nothing is read of the client, because it is beyond a quota.
        self._muted: asyncio.TimerHandle | None = None
        #: A further turn is scheduled on the loop.
        self._has_turn = False
        #: Whether the broker stops; requests that were handled before are still answered.
        self._is_finishing = False
        #: The client's software name, the intervals told to its members and the holds that they cut (see `Peer`).
        self.software, self.told_intervals, self.cuts = "", dict[MemberKey, int](), dict[MemberKey, int]()
        self._holds: Final = HeldHeartbeats(self._replies)
        #: The last request that may come again.
        self._cached: CachedRequest | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection (asyncio); abort it at once if there are too many."""
        # uvloop's transports have the methods of asyncio's without being of the class.
        transport = cast(asyncio.Transport, transport)
        peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if isinstance(peer, tuple):
            self.peer_host, self.peer_port = plain_host(str(peer[0])), int(peer[1])
        if isinstance(here, tuple):
            self.local_host = plain_host(str(here[0]))
        context = self._context
        if not context.connection_quotas.enter(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
        self._transport = transport
        self.rights = context.authorization.rights_of(self.principal, self.peer_host)
        context.connections.add(self)
        context.idle_timeouts.expect_first_byte(self)
        self.login = context.logins.begin(self)
        log.debug("event=connection_opened peer=%s:%d listener=%s", self.peer_host, self.peer_port, self.listener.name)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its open requests (asyncio)."""
        del exc
        self._transport = None
        if self.login is not None:
            self.login.closed()
        self._context.forget(self)
        self._context.member_connections.closed(self)
        self._context.connection_quotas.leave(self)
        # Keep this order: the waiting fetches show until when the member has read, and `forget` comes after them.
        self._replies.abandon()
        self._output.clear()
        self._context.membership_updates.forget(self)
        self._cached = None
        if self._muted is not None:
            self._muted.cancel()
        self.input.close()
        log.debug("event=connection_ended peer=%s:%d principal=%r", self.peer_host, self.peer_port, self.principal)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes (asyncio)."""
        del sizehint
        return self.input.free()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the requests that `nbytes` more bytes complete (asyncio)."""
        self.input.have += nbytes
        self.received_bytes += nbytes
        self.progress += 1
        self._pump()

    def pause_writing(self) -> None:
        """Stop writing and handling while the client does not read its responses (asyncio)."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """Go on once the client has caught up (asyncio)."""
        self._is_write_paused = False
        self.progress += 1
        self._schedule_turn()

    @property
    def peer(self) -> str:
        """The client's address and port, for logs."""
        return f"{self.peer_host}:{self.peer_port}"

    @property
    def is_served(self) -> bool:
        """Whether the client waits for a response of this broker."""
        return len(self._replies) > 0 and not self._is_write_paused

    @property
    def is_stalled(self) -> bool:
        """Whether the client does not read its responses."""
        return self._is_write_paused

    @property
    def is_muted(self) -> bool:
        """Whether the client is throttled because it has exceeded a quota."""
        return self._muted is not None

    @property
    def is_open(self) -> bool:
        """Whether the client is connected."""
        return self._transport is not None

    @property
    def is_read(self) -> bool:
        """Whether the broker reads from the client; only then may an incomplete request time out."""
        return self._is_reading

    @property
    def taken_bytes(self) -> int:
        """The response bytes that have left the transport's buffer for the network or the client."""
        transport = self._transport
        return self._output.written_bytes - (0 if transport is None else transport.get_write_buffer_size())

    @property
    def untaken_bytes(self) -> int:
        """The response bytes that are buffered because the client does not read them."""
        size = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return size and size + self._output.size_bytes + self._replies.unsent_bytes

    def on_reply(self) -> None:
        """Schedule the sending of a response that has become ready."""
        if not self._is_handling:
            self._schedule_turn()
            self._holds.release_overtaken()

    def mute(self, wait_ms: int) -> None:
        """Read and handle no requests of the client for `wait_ms` (KIP-219); responses are still sent."""
        loop, muted = self._context.loop, self._muted
        until = loop.time() + wait_ms / 1000
        if self._transport is None or (muted is not None and muted.when() >= until):
            return
        if muted is not None:
            muted.cancel()
        self._muted = loop.call_at(until, self._unmute)
        self._set_reading(False)

    def _unmute(self) -> None:
        self._muted = None
        self._schedule_turn()

    def finish(self) -> None:
        """Handle no further request; requests that were handled before are still answered."""
        self._is_finishing = True
        self._set_reading(False)

    def close(self) -> None:
        """Write the ready responses, then close the connection; drop requests without a response."""
        self.finish()
        self._write_ready()
        self._replies.abandon()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without waiting for a client that does not read."""
        if self._transport is not None:
            self._transport.abort()

    def examine_rights(self) -> None:
        """Refuse the waiting requests that the client's changed rights no longer allow."""
        context, self._cached = self._context, None
        key = context.membership_updates.member_of(self)
        if key is not None and not self.rights.allows(AclOperation.READ, ResourceType.GROUP, key[0]):
            # The news of a group are for those that may be its members.
            context.membership_updates.forget(self)
            context.claims.forget(self)
        for slot in self._replies.held:
            assert isinstance(slot, Request), "a request that was read waits"
            if slot.on_rights is not None:
                slot.on_rights(slot)

    def give_up(self, reason: str) -> None:
        """Close the connection of a client that does not act in time, and log the reason."""
        log.warning("event=connection_closed peer=%s reason=%r", self.peer, reason)
        self.abort()

    def guard(self, gate: Callable[[memoryview], bool] | None, *, least: int | None, most: int | None) -> None:
        """Pass each frame of `least` to `most` bytes to `gate` first; `None` restores the default."""
        longest = self._context.settings.values["socket.request.max.bytes"]
        self.gate = gate
        self._least = MIN_FRAME_BYTES if least is None else least
        self._limit = longest if most is None else min(most, longest)
        # A request that comes again byte for byte would pass no gate.
        self._cached = None

    def allow_holds(self, is_allowed: bool) -> None:
        """Allow holding heartbeats, or answer the held ones now and later ones at once."""
        self._holds.allow(is_allowed)

    def hold(self) -> None:
        """Handle no further request while one is unanswered, until `release` is called."""
        self._replies.limit = 1

    def release(self) -> None:
        """Allow `queued.max.requests` unanswered requests again."""
        self._replies.limit = self._context.settings.values["queued.max.requests"]
        self._schedule_turn()

    def open_token(self) -> Callable[[bytes], None]:
        """Queue a slot for a response without a header; return the function that fills it in."""
        slot = ReplySlot()
        self._replies.add(slot)

        def fill(token: bytes) -> None:
            slot.fill([len(token).to_bytes(4, "big") + token])
            self.on_reply()

        return fill

    def _schedule_turn(self) -> None:
        if not self._has_turn and self._transport is not None:
            self._has_turn = True
            self._context.fair_queue.ask(self)

    def take_turn(self) -> None:
        """Write ready responses or handle buffered requests; called once per scheduled turn."""
        self._has_turn = False
        if self.input.have or not self._is_reading:
            self._pump()
        else:
            self._write_ready()

    def _pump(self) -> None:
        """Handle buffered requests as far as the limits allow, then write the ready responses."""
        if self._is_handling:
            return
        if self._muted is not None:
            # What was received before waits as well, or the client would gain by sending ahead.
            self._write_ready()
            return
        self._is_handling = True
        self._context.watch.enter()
        try:
            if self._cached is not None and self._is_reading and self._take_cached(self._cached):
                return
            is_blocked = self._handle_buffered()
        except (RemoteProtocolError, UnicodeDecodeError, struct_error) as why:
            self._context.reached["requests"] += 1
            self._refuse(str(why))
            return
        except Exception as why:
            # A failing disk ends the broker, which logs it; an unexpected error is logged with its traceback.
            trace = not (isinstance(why, StorageError) and why.fatal)
            log.error("event=request_failed peer=%s error=%r action=close", self.peer, str(why), exc_info=trace)
            self._refuse("the request could not be carried out")
            return
        finally:
            self._is_handling = False
            self._context.watch.leave()
        self._holds.release_overtaken()
        self._write_ready()
        self._set_reading(not is_blocked)
        if is_blocked and self._may_handle():
            self._schedule_turn()

    def _may_handle(self) -> bool:
        is_waiting = self._is_write_paused or self._waits_for_memory or self._muted is not None
        return not (is_waiting or self._replies.is_full or self._is_finishing)

    def _handle_buffered(self) -> bool:
        """Handle whole frames from the front of the buffer.

        Returns:
            `True` if something other than missing bytes stopped it.
        """
        received, passes = self.input, self._context.fair_queue
        position, have, view = 0, received.have, received.view
        is_blocked, needed, bytes_left = False, 0, BYTES_PER_TURN
        may_owe = not self._has_produced and (self._context.client_quotas.is_on or self.rights.is_metered)
        while have - position >= 4:
            size = _SIZE.unpack_from(view, position)[0]
            # The length is checked before any memory is asked for.
            if not self._least <= size <= self._limit:
                error = impossible_length(view[position : position + 4], least=self._least, most=self._limit)
                # A browser or curl that was pointed at the broker gets a sentence, if these are its first bytes.
                is_http = isinstance(error, ForeignProtocolError) and error.protocol == "HTTP"
                if is_http and self.progress == 1 and not position:
                    self._output.small += HTTP_ANSWER
                raise error
            end = position + 4 + size
            if may_owe and self._is_held_back(view[position + 4 : min(end, have)]):
                # Before the rest of it has come: what waits takes no memory.
                is_blocked = True
                break
            if end > have:
                if size > MOST_ORDINARY_BYTES and have - position >= _SIZE_AND_KEY.size:
                    # Only requests with records or assignments may be so long; others are refused unread.
                    check_length(_SIZE_AND_KEY.unpack_from(view, position)[1], size)
                needed = 4 + size
                break
            is_over = bytes_left <= 0 or self._is_write_paused or self._replies.is_full or self._is_finishing
            if is_over or (
                size > SHORT_BYTES and not passes.may_begin(_SIZE_AND_KEY.unpack_from(view, position)[1], size)
            ):
                is_blocked = True
                break
            bytes_left -= size + self._handle(view[position + 4 : end])
            position = end
            if self._output.size_bytes >= WRITE_AT_BYTES:
                self._write_ready()
            if self._transport is None:
                return True
        received.discard(position)
        # Who has not logged in gives way to newcomers, as silent connections do.
        if position and self._is_new and (self.login is None or self.login.has_succeeded):
            self._is_new = False
            self._context.connection_quotas.prove(self)
        if received.have and not self.is_watched:
            self._context.idle_timeouts.expect_rest(self)
        if needed <= len(view):
            received.settle()
            return is_blocked
        return not self._make_room(needed)

    def _take_cached(self, cached: CachedRequest) -> bool:
        """Carry out the received bytes if they equal `cached`; return `False` if they have to be parsed."""
        received = self.input
        if received.have != cached.size or self._is_write_paused or self._is_finishing:
            return False
        rights = self.rights
        if self._context.client_quotas.is_timed or rights.is_metered or asked_loggers or rights.tells_requests:
            # It has to be measured, or told.
            return False
        done = cached.carry_out(self, received.view, self._replies)
        if done is None:
            return False
        received.have = 0
        received.settle()
        if isinstance(done, Request):
            self._replies.add(done)
            if done.heartbeat is not None:
                self._holds.add(done)
        else:
            self._output.small += done
            self._write_ready()
        return True

    def _is_held_back(self, start: memoryview) -> bool:
        """Return whether a new connection's first request, or first Produce, is throttled for earlier use.

        KIP-219 mutes only one connection. A client that reconnects for each request would have no quota otherwise.
        """
        if self._has_produced or len(start) < MIN_FRAME_BYTES or (self.login and not self.login.has_succeeded):
            return False
        capability = self.rights.capability
        if capability is not None and not self._has_asked:
            self._has_asked = True
            owed_ms = self._context.client_quotas.owed_of_token_ms(capability, self._context.monotonic_ms())
            if owed_ms:
                self.mute(owed_ms)
                return True
        api_key, _, _, client_id_size = _HEADER.unpack_from(start)
        body = MIN_FRAME_BYTES + max(client_id_size, 0)
        if api_key != ApiKey.PRODUCE or body > len(start):
            return False
        self._has_produced = True
        context, quota = self._context, Quota.PRODUCER_BYTE_RATE
        client, now_ms = (user_of(self.principal), str(start[MIN_FRAME_BYTES:body], "utf-8")), context.monotonic_ms()
        wait_ms = context.client_quotas.owed_ms(quota, *client, now_ms)
        if wait_ms:
            context.client_quotas.note_throttled(quota, *client, wait_ms, now_ms)
            self.mute(wait_ms)
        return wait_ms > 0

    def _handle(self, frame: memoryview) -> int:
        """Decode and handle one request, and queue its response or its open slot.

        Returns:
            The bytes that the request counts as in this turn, in addition to its length.
        """
        if self.gate is not None and self.gate(frame):
            return LONG_COUNTS
        api_key, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
        body = MIN_FRAME_BYTES
        client_id = ""
        if client_id_size > 0:
            body += client_id_size
            if body > len(frame):
                raise RemoteProtocolError("a request header that ends inside its client id")
            client_id = str(frame[MIN_FRAME_BYTES:body], "utf-8")
        context, routes = self._context, self._routes
        route = routes.get((api_key << 16) | (version & 0xFFFF))
        if route is None:
            route = routes.resolve(api_key, version)
        if route.has_flexible_header:
            body = routes.skip_header_tags(frame, body)
        # A client that has not logged in yet has no quota: its user is not known.
        is_measured = context.client_quotas.is_on or self.rights.is_metered
        if is_measured and (self.login is None or self.login.has_succeeded):
            quotas, now_ms = context.client_quotas, context.monotonic_ms
            request: Request = MeasuredRequest(
                self, route, correlation_id, client_id, quotas=quotas, now_ms=now_ms, size=len(frame)
            )
        else:
            request = Request(self, route, correlation_id, client_id)
        message = route.decode(frame, body)[0]
        context.watch.during = route.name
        if asked_loggers or self.rights.tells_requests:
            tell_request(request, route.name, message)
        answer = route.handle(context, request, message)
        if isinstance(request, MeasuredRequest):
            answer = request.handled(answer)
        if request.repeatable is not None and len(frame) <= LONGEST_REPEAT_BYTES and self.gate is None:
            self._cached = request.repeatable.cache(frame, request)
        if answer is None:
            if route.keeps_request:
                request.kept_bytes = len(frame)
            self._replies.add(request)
            if request.heartbeat is not None and request.is_open:
                self._holds.add(request)
        # An earlier request is unanswered: this answer waits for its turn.
        elif len(self._replies) or route.has_parts:
            request.fill(route.frame(correlation_id, answer))
            self._replies.add(request)
        else:
            route.append_frame(self._output.small, correlation_id, answer)
        if self._muted is not None:
            # Nothing behind it is handled before its wait is over.
            return BYTES_PER_TURN
        return LONG_COUNTS if route.is_long else SHORT_COUNTS

    def _write_ready(self) -> None:
        """Write all ready responses; stop when the client reads too slowly."""
        output = self._output
        if self._context.answer_memory.is_short is not self._is_narrow:
            self._set_width()
        while (transport := self._transport) is not None and not self._is_write_paused:
            if len(self._replies):
                output.extend(self._replies.take(WRITE_AT_BYTES))
            if not output.write_some(transport):
                break
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._context.idle_timeouts.expect_taking(self)

    def _set_width(self) -> None:
        """Set how many bytes the transport may buffer, by the memory that responses may use."""
        self._is_narrow = is_narrow = self._context.answer_memory.is_short
        high, low = (SHORT_HIGH_BYTES, SHORT_LOW_BYTES) if is_narrow else (WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=high, low=low)

    def _set_reading(self, wanted: bool) -> None:
        if self._transport is None or wanted == self._is_reading or self._transport.is_closing():
            return
        if wanted and (self._is_finishing or self._muted is not None):
            return
        self._is_reading = wanted
        # A pause at the limit of open requests is counted for `kohort broker status`.
        is_at_limit = not wanted and self._replies.is_full and self._replies.limit > 1
        self._context.reached["queued.max.requests"] += is_at_limit
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _refuse(self, reason: str) -> None:
        """Close this connection for an invalid or failed request; ready responses are still sent."""
        log.warning("event=connection_closed peer=%s reason=%r", self.peer, reason)
        self.input.have = 0
        self.close()

    def _make_room(self, needed: int) -> bool:
        """Make room for a request of `needed` bytes, or retry once memory may be available."""
        if self.input.make_room(needed):
            self._waits_for_memory = False
            return True
        if not self._waits_for_memory:
            self._waits_for_memory = True
            self._context.byte_budget.wait(self._retry_growth)
        return False

    def _retry_growth(self) -> None:
        if self._waits_for_memory:
            self._waits_for_memory = False
            self._schedule_turn()
