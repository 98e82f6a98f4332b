"""Advice in error messages of the command line: options to change, verbs that help, similar names."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from kohort.cli.bootstrap import DEFAULT_BOOTSTRAP, ENVIRONMENT, open_admin
from kohort.errors import BrokerError, BrokersUnreachableError, ErrorCode, KohortError, UnknownTopicError


def explain(why: BaseException, options: argparse.Namespace) -> str:
    """Explain in one sentence an error of a verb that was run with these options."""
    if isinstance(why, OSError) and why.filename is not None and why.strerror:
        return f"{os.fsdecode(why.filename)} cannot be opened: {why.strerror}"
    if "bootstrap" not in options:
        return str(why)
    if isinstance(why, BrokersUnreachableError):
        return _unreachable(why, options)
    if isinstance(why, UnknownTopicError) and why.partition is None:
        return _no_topic(why, options)
    if isinstance(why, BrokerError) and why.code is ErrorCode.GROUP_ID_NOT_FOUND:
        return _no_group(why, options)
    return str(why)


def _no_topic(why: UnknownTopicError, options: argparse.Namespace) -> str:
    try:
        with open_admin(options) as admin:
            near = nearest(why.topic, [topic.name for topic in admin.list_topics() if not topic.is_internal])
    except KohortError:
        near = None
    if near:
        return f"topic {why.topic} does not exist; did you mean {near}?"
    if options.verb == "topic" and options.action == "delete":
        return f"topic {why.topic} does not exist; kohort topic list shows all"
    return str(why)


def _no_group(why: BrokerError, options: argparse.Namespace) -> str:
    asked = options.groups if "groups" in options else [options.group]
    try:
        with open_admin(options) as admin:
            known = [group.group_id for group in admin.list_groups()]
    except KohortError:
        return str(why)
    missing = next((group for group in asked if group not in known), asked[0])
    near = nearest(missing, known)
    return f"there is no group {missing}; " + (f"did you mean {near}?" if near else "kohort group list shows all")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to this one; `None` if none is similar."""
    others = {other.casefold(): other for other in known if other != name}
    return next((others[hit] for hit in get_close_matches(name.casefold(), others, n=1, cutoff=0.7)), None)


def _unreachable(why: BrokersUnreachableError, options: argparse.Namespace) -> str:
    if type(why) is not BrokersUnreachableError:
        return str(why).replace("bootstrap_servers", "--bootstrap")
    tried = ", ".join(f"{address} ({reason})" for address, reason in why.attempts)
    origin = f" (from {ENVIRONMENT})" if options.bootstrap == os.environ.get(ENVIRONMENT) else ""
    port = options.bootstrap.rpartition(":")[2]
    up = "kohort up" if port == DEFAULT_BOOTSTRAP.rpartition(":")[2] else f"kohort up --port {port}"
    return f"no broker can be reached: {tried}; check --bootstrap{origin}, or start one: {up}"


def own_command() -> str:
    """Return the command that runs this kohort: its name if the shell finds it, else its path."""
    own = Path(sys.executable).with_name("kohort")
    found = shutil.which("kohort")
    if not own.exists() or (found and os.path.samefile(found, own)):
        return "kohort"
    below = os.path.relpath(own)
    return str(own) if below.startswith("..") else below
