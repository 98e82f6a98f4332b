"""The paths of the console: pages with their JSON twins, events, the login, and the broker's own paths.

Laws: a page is made once for all tabs that show the same state. An event stream holds one cursor and no queue: a
browser that is slow gets the latest state when it reads again. No page shows a traceback.
Source: requirement J3; the event streams of the HTML standard (`Last-Event-ID`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kohort import __version__
from kohort.broker.http import Asked
from kohort.cli.output import one_line, plain
from kohort.console import pages
from kohort.console.access import Access, FormError, Guard, Session, check_form_token, form_of, with_cookie
from kohort.console.changes import change_values, find_change
from kohort.console.pages import PageError, link
from kohort.console.reader import ClusterReader, GroupReader
from kohort.console.swimlanes import draw_lanes
from kohort.errors import KohortError, UnknownTopicError
from kohort.journal.words import show_clock, show_duration

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from kohort.broker.http import Handler

log = logging.getLogger("kohort.console")

_HERE: Final = Path(__file__).parent
#: Pages, by their paths.
PAGES: Final[Mapping[str, Callable[[ClusterReader, pages.Params], Awaitable[pages.Values]]]] = {
    "groups": pages.groups,
    "group": pages.group,
    "rebalance": pages.rebalance,
    "partition": pages.partition,
    "topics": pages.topics,
    "topic": pages.topic,
    "broker": pages.broker,
}
#: Pages that every page leads to.
NAV: Final = (("groups", "Groups"), ("topics", "Topics"), ("broker", "Brokers"))
#: Pages that show the state of the whole cluster.
_OF_CLUSTER: Final = ("groups", "topics", "broker")
#: Made pages that are kept for other tabs.
_KEPT_PAGES: Final = 64
#: Streams of events at a time.
MOST_STREAMS: Final = 200
#: A stream says something so often; a browser that takes nothing for so long is given up, and comes again.
_QUIET_SECONDS: Final = 15.0
_SEND_SECONDS: Final = 30.0
#: Rows that one message has at most; a browser that has missed more reads the page again.
_MOST_ROWS: Final = 200


class Console:
    """The application of one console."""

    def __init__(self, access: Access, *, paths: Mapping[str, Handler], has_changes: bool) -> None:
        """Create it; `paths`: further ones with their handlers, which run on the loop of this console."""
        self.access: Final = access
        self.has_changes: Final = has_changes
        self._paths: Final = dict(paths)
        self._templates: Final = _environment()
        #: (token of the session's forms, address, version) -> the page.
        self._made: Final[dict[tuple[str, str, int], str]] = {}
        self.streams = 0

    def app(self) -> Starlette:
        """Build the ASGI application."""
        routes = [Route("/", self._start), Route("/login", self._login, methods=["GET", "POST"])]
        routes += [Route("/logout", self._logout, methods=["POST"]), Route("/events", EventStream(self))]
        for name in PAGES:
            page = self._told(partial(self._page, name=name))
            routes += [Route(path, page) for path in (f"/{name}", f"/{name}.json")]
        if self.has_changes:
            routes.append(Route("/change", self._told(self._change), methods=["GET", "POST"]))
        routes += [Route(path, partial(_answer, handler=handler)) for path, handler in self._paths.items()]
        static = StaticFiles(directory=_HERE / "static")
        return Starlette(
            routes=[*routes, Mount("/static", static)],
            middleware=[
                Middleware(Guard, access=self.access),
                # Level 6 took twice the time for pages that were 4 % smaller.
                Middleware(GZipMiddleware, minimum_size=1024, compresslevel=3),
            ],
            exception_handlers={404: self._not_found},
        )

    def prepare(self) -> None:
        """Compile the template of the first page, so that the first visitor does not wait for it."""
        self._templates.get_template("groups.html")

    async def _start(self, _: Request) -> Response:
        return RedirectResponse("/groups", 303)

    async def _page(self, request: Request, name: str) -> Response:
        session: Session = request.state.session
        is_json = request.url.path.endswith(".json") or _prefers_json(request)
        source = self._source(session, name, request)
        version = 0 if source is None else source.changed.version
        key = session.form_token, str(request.url), version
        if not is_json and source is not None and source.watchers and key in self._made:
            return HTMLResponse(self._made[key])
        if is_json and name in (*_OF_CLUSTER, "topic"):
            await session.reader.know()
        values = await PAGES[name](session.reader, request.query_params)
        if is_json:
            return _json(values)
        page = self._render(f"{name}.html", request, values)
        self._made[session.form_token, str(request.url), 0 if source is None else source.changed.version] = page
        if len(self._made) > _KEPT_PAGES:
            del self._made[next(iter(self._made))]
        return HTMLResponse(page)

    def _source(self, session: Session, name: str, request: Request) -> GroupReader | ClusterReader | None:
        group_id = request.query_params.get("id" if name == "group" else "group", "")
        return session.reader.group(group_id) if group_id else session.reader if name in _OF_CLUSTER else None

    def _render(self, template: str, request: Request, values: Mapping[str, Any]) -> str:
        session: Session | None = getattr(request.state, "session", None)
        return self._templates.get_template(template).render(
            page=values,
            path=request.url.path,
            address=str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
            json_address=f"{request.url.path}.json" + (f"?{request.url.query}" if request.url.query else ""),
            session=session,
            mode=self.access.mode,
            has_changes=self.has_changes,
            version=__version__,
        )

    def _problem(self, request: Request, said: str, status: int) -> Response:
        if request.url.path.endswith(".json") or _prefers_json(request):
            return _json({"error": said}, status)
        return HTMLResponse(self._render("problem.html", request, {"said": said, "status": status}), status)

    async def _not_found(self, request: Request, _: Exception) -> Response:
        return self._problem(request, "there is no such page", 404)

    def _told(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Let a page that cannot be made say why, within the policy of all answers."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except PageError as why:
                return self._problem(request, str(why), why.status)
            except UnknownTopicError as why:
                return self._problem(request, str(why), 404)
            except KohortError as why:
                return self._problem(request, str(why), getattr(why, "status", 502))
            except Exception:
                log.exception("event=console_failed path=%s", request.url.path)
                return self._problem(request, "the page could not be made; the console's log says why", 500)

        return answer

    async def _login(self, request: Request) -> Response:
        access, said, status = self.access, "", 200
        if request.method == "POST":
            try:
                fields = await form_of(request)
                if access.mode == "token":
                    cookie = access.take_token(fields.get("token", ""))
                    said = "" if cookie else "this is not the token"
                else:
                    cookie = await access.log_in(fields.get("name", ""), fields.get("password", ""))
            except KohortError as why:
                cookie, said = None, str(why)
            if cookie:
                return with_cookie(RedirectResponse("/groups", 303), cookie, scheme=request.url.scheme)
            # The cluster itself slows down guesses, and a token cannot be guessed.
            status = 403
        return HTMLResponse(self._render("login.html", request, {"said": said}), status)

    async def _change(self, request: Request) -> Response:
        """Answer GET with a preview of a change; carry it out for a POST with this session's form token."""
        session: Session = request.state.session
        is_done, said, rows = request.method == "POST", "", list[pages.Values]()
        params: pages.Params = request.query_params
        if is_done:
            params = await form_of(request)
            check_form_token(params, session)
        change = find_change(params)
        # What is optional is empty; without the rest there is nothing to show yet.
        is_asked = is_done or set(params) - {"kind", "group", "topic"} or set(change.fields) == {"group"}
        try:
            if is_asked:
                work = partial(change.carry_out, session.reader.admin, params, is_done)
                rows = await session.reader.call(work)
                if is_done:
                    asked = {name: params.get(name, "") for name in change.fields}
                    log.warning("event=console_change kind=%s user=%r %r", params["kind"], session.name, asked)
        except PageError as why:
            if why.status != 400:
                raise
            is_done, said = False, str(why)
        except (KohortError, TypeError) as why:
            is_done, said = False, str(why)
        values = change_values(change, params, rows, said=said, is_done=is_done)
        return HTMLResponse(
            self._render("change.html", request, values), 409 if said and request.method == "POST" else 200
        )

    async def _logout(self, request: Request) -> Response:
        session: Session | None = request.state.session
        if session is not None:
            try:
                check_form_token(await form_of(request), session)
            except FormError as why:
                return self._problem(request, str(why), why.status)
            await asyncio.to_thread(self.access.log_out, request.headers)
        return with_cookie(RedirectResponse("/login", 303), "", scheme=request.url.scheme)


async def _answer(request: Request, handler: Handler) -> Response:
    """Answer with one of the broker's own paths."""
    if request.method not in ("GET", "HEAD"):
        return PlainTextResponse("GET and HEAD are served\n", 405)
    query = dict(request.query_params)
    answer = await handler(Asked(request.method, request.url.path, query, dict(request.headers)))
    return Response(answer.body, answer.status.value, media_type=answer.content_type)


def _json(values: Any, status: int = 200) -> Response:
    return Response(json.dumps(plain(values)) + "\n", status, media_type="application/json")


def _prefers_json(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


class EventStream:
    """A stream of server-sent events: `row` for each new row of a group's history, `look` when the page changed."""

    def __init__(self, console: Console) -> None:
        self._console: Final = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the tab is gone, or takes none."""
        request, console = Request(scope), self._console
        refusal = PlainTextResponse("too many tabs are open\n", 503, {"Retry-After": "30"})
        if request.method != "GET":
            refusal = PlainTextResponse("GET is served\n", 405, {"Allow": "GET"})
        if request.method != "GET" or console.streams >= MOST_STREAMS:
            await refusal(scope, receive, send)
            return
        reader: ClusterReader = request.state.session.reader
        group_id = request.query_params.get("group", "")
        source: GroupReader | ClusterReader = reader.group(group_id) if group_id else reader
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        console.streams += 1
        source.watchers += 1
        gone = asyncio.create_task(_until_gone(receive))
        try:
            reader.keep_following()
            await self._stream(source, request.headers.get("last-event-id", ""), gone, send)
        except TimeoutError:
            log.info("event=tab_given_up path=%s", request.url.query)
        finally:
            gone.cancel()
            source.watchers -= 1
            console.streams -= 1

    async def _stream(
        self, source: GroupReader | ClusterReader, last: str, gone: asyncio.Task[None], send: Send
    ) -> None:
        version, text = source.changed.version, "retry: 2000\n\n"
        sequence = source.newest if isinstance(source, GroupReader) else 0
        if last.isdecimal() and len(last) < 20 and isinstance(source, GroupReader):
            sequence, version = int(last), -1
        while not gone.done():
            async with asyncio.timeout(_SEND_SECONDS):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            waiting = asyncio.ensure_future(source.changed.beyond(version, seconds=_QUIET_SECONDS))
            await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if source.changed.version <= version:
                text = ": still here\n\n"
                continue
            version = source.changed.version
            sequence, text = _news(source, sequence, version)


def _news(source: GroupReader | ClusterReader, sequence: int, version: int) -> tuple[int, str]:
    """Format the events after a sequence: an event for each new row, then one that the page has changed."""
    parts = []
    if isinstance(source, GroupReader):
        if sequence > source.newest:
            # A broker without a directory was started anew, and counts from the beginning.
            sequence = 0
        rows = [row for row in source.view.told[-_MOST_ROWS:] if row.sequence > sequence]
        for row in rows:
            data = json.dumps({"time_ms": row.time_ms, "said": row.said})
            parts.append(f"id: {row.sequence}\nevent: row\ndata: {data}\n\n")
        sequence = rows[-1].sequence if rows else sequence
    return sequence, "".join([*parts, f"event: look\ndata: {version}\n\n"])


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "ms": lambda value: "-" if value is None else show_duration(int(value)),
        "clock": lambda value: "-" if value is None else show_clock(value),
        "day": lambda value: f"{datetime.fromtimestamp(value / 1000):%Y-%m-%d %H:%M:%S}",
        "number": lambda value: "-" if value is None else f"{value:,}",
        "name": one_line,
    }
    found.globals |= {"link": link, "lanes": lambda picture: Markup(draw_lanes(picture)), "nav": NAV}
    return found
