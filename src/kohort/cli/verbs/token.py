"""`kohort token mint|attenuate|inspect|rotate|list|revoke`: capability tokens, and the root keys of a broker.

Laws: no command line has a token, and only `mint` and `attenuate` print one. The root keys in a file are replaced only
with `--execute`, and are never printed.
Source: pymacaroons' and biscuit's command lines; users@kafka 2014-07-18.
"""

from __future__ import annotations

import argparse
import re
import secrets
import time
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.arguments import parse_datetime, parse_duration
from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute, add_json
from kohort.cli.output import print_json, show, show_plan
from kohort.cli.passwords import password_in_environment, password_in_file
from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.capabilities import Capability, Caveat, RootKeys

_KEYS_HELP: Final = "the broker's root keys: capability.keys in its data directory"
#: A topic and partitions of it: orders:0-9,12
_PARTITIONS: Final = re.compile(r"(.+):(\d{1,10}(?:-\d{1,10})?(?:,\d{1,10}(?:-\d{1,10})?)*)")


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    token = subparsers.add_parser("token", help="capability tokens: mint, attenuate, inspect, rotate, list, revoke")
    actions = token.add_subparsers(dest="action", metavar="ACTION", required=True)

    mint = actions.add_parser(
        "mint",
        help="make a token with a broker's root keys",
        description="Print a token that allows only what the options name; without any, everything. Clients log "
        "in as the user `token`, with the token as the password.",
        run=run_mint,
    )
    mint.add_argument("--keys", metavar="FILE", required=True, help=_KEYS_HELP)
    mint.add_argument("--id", metavar="ID", help="the id of an earlier token that this one replaces")

    attenuate = actions.add_parser(
        "attenuate",
        help="narrow a token, without keys and without a broker",
        description="Read a token and print a narrower one, limited by the options. The new token can be given "
        "away: the old one cannot be computed from it.",
        run=run_attenuate,
    )
    inspect = actions.add_parser(
        "inspect",
        help="the caveats of a token",
        description="Print the caveats of a token, with the id of each link of its chain. Revoking an id ends every "
        "token that has it. Without --keys only the first and the last id are known, and the token is not verified.",
        run=run_inspect,
    )
    inspect.add_argument("--keys", metavar="FILE", help=f"verify the token with {_KEYS_HELP}")

    rotate = actions.add_parser(
        "rotate",
        help="make a new root key, and keep the former one",
        description="Show the root keys, and with --execute add a new one. Tokens of the key "
        "before stay valid; those of the key before that end. A broker reads the file again when it changes.",
        run=run_rotate,
    )
    rotate.add_argument("--keys", metavar="FILE", required=True, help=f"{_KEYS_HELP}; made if it is missing")
    add_execute(rotate)

    _add_calls(actions)
    for parser in (attenuate, inspect):
        _add_source(parser)
    for parser in (mint, attenuate):
        _add_caveats(parser)
    for parser in (mint, attenuate, inspect, rotate):
        add_json(parser)


def _add_calls(actions: Any) -> None:
    """Add the actions that send requests to a broker: `list` and `revoke`."""
    listing = actions.add_parser(
        "list",
        help="tokens that clients are logged in with, and revoked ones",
        description="The tokens of a broker's connections by id, then the revocations that are in force.",
        run=run_list,
    )
    revoke = actions.add_parser(
        "revoke",
        help="end tokens before their leases do",
        description="Revoke tokens by an id of their chain, which also ends the tokens derived from them, or by label. "
        "Their connections end at once.",
        run=run_revoke,
    )
    revoke.add_argument(
        "ids",
        metavar="ID",
        nargs="*",
        help="as `inspect --keys` and `list` print it, or as in a principal, Token:ID: an id may begin with a dash",
    )
    revoke.add_argument("--label", dest="labels", action="append", default=[], metavar="TEXT", help="may be repeated")
    revoke.add_argument(
        "--not-after", type=parse_datetime, metavar="TIME",
        help="when the last of their leases ends; the broker then forgets the revocation (default: never)",
    )  # fmt: skip
    for parser in (listing, revoke):
        add_common(parser)


def _add_source(parser: Any) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--token-file", metavar="FILE", default="-", help="its first line is the token (default: -, the standard input)"
    )
    source.add_argument("--token-env", metavar="NAME", help="the environment variable with the token")
    parser.add_argument("shown", nargs="*", help=argparse.SUPPRESS)


def _add_caveats(parser: Any) -> None:
    several: Any = {"action": "append", "default": [], "metavar": "NAME"}
    words = parser.add_argument_group("caveats", "each narrows the token; what none limits is allowed")
    words.add_argument(
        "--operation", dest="operations", action="append", default=[], metavar="WORD",
        help="read, write, commit, describe, create, delete, alter, ...; may be repeated, as the next ones",
    )  # fmt: skip
    words.add_argument("--topic", dest="topics", help="a topic", **several)
    words.add_argument("--topic-prefix", dest="topic_prefixes", help="topics whose names have this prefix", **several)
    words.add_argument(
        "--partitions", action="append", default=[], type=_partitions, metavar="TOPIC:LIST", help="as in orders:0-9,12"
    )
    words.add_argument("--group", dest="groups", help="a group", **several)
    words.add_argument("--group-prefix", dest="group_prefixes", help="groups whose names have this prefix", **several)
    words.add_argument("--member", metavar="ID", help="one member of a group")
    words.add_argument("--epoch", type=int, metavar="N", help="one epoch of the member")
    words.add_argument("--peer", dest="peers", help="the client's address, or its network as in 10.0.0.0/8", **several)
    end = words.add_mutually_exclusive_group()
    end.add_argument("--lease", type=parse_duration, metavar="SPAN", help="how long the token is valid: 30m, 2h, 7d")
    end.add_argument("--not-after", type=parse_datetime, metavar="TIME", help="when the token expires")
    words.add_argument("--byte-rate", type=int, metavar="N", help="bytes per second; then clients are throttled")
    words.add_argument("--request-rate", type=int, metavar="N", help="requests per second; then clients are throttled")
    words.add_argument("--log-level", metavar="LEVEL", help="the log level for its requests: debug, info, ...")
    words.add_argument("--label", metavar="TEXT", help="a name of the token in histories and lists")


def run_mint(options: argparse.Namespace) -> int:
    """Print a new token."""
    from kohort.capabilities import CapabilityError, mint, verify

    keys = _keys(options.keys)
    try:
        token = mint(keys, *_caveats(options), token_id=_token_id(options.id))
        return _print_token(options, token, verify(token, keys))
    except CapabilityError as why:
        raise ConfigError(str(why)) from None


def run_attenuate(options: argparse.Namespace) -> int:
    """Print a narrower token."""
    from kohort.capabilities import CapabilityError, attenuate, parse

    before = _token(options)
    try:
        caveats = _caveats(options)
        if not caveats:
            raise ConfigError("the caveats are missing: --operation WORD, --topic NAME, --lease SPAN, ...")
        token = attenuate(before, *caveats)
        return _print_token(options, token, parse(token))
    except CapabilityError as why:
        raise ConfigError(str(why)) from None


def run_inspect(options: argparse.Namespace) -> int:
    """Print the caveats of a token, and verify the token if `--keys` is given."""
    from kohort.capabilities import CapabilityError, explain, parse, verify

    token = _token(options)
    try:
        capability = parse(token) if options.keys is None else verify(token, _keys(options.keys))
        rows = explain(token)
    except CapabilityError as why:
        raise ConfigError(str(why)) from None
    chain = capability.chain
    ids: dict[int, str] = {0: chain[0], len(rows): chain[-1]}
    if capability.is_verified:
        ids = dict(enumerate(chain))
    shown = {
        "verified": capability.is_verified,
        "id": capability.id if capability.is_verified else None,
        "chain": [ids.get(number) for number in range(len(rows) + 1)],
        "caveats": [{"link": row.link, "caveat": row.caveat, "value": row.value} for row in rows],
    }
    minted = (0, "minted", "verified" if capability.is_verified else "not verified", ids.get(0))
    table = [minted, *((row.link, row.caveat, row.value, ids.get(row.link)) for row in rows)]
    return show(options, shown, ("LINK", "CAVEAT", "VALUE", "ID"), table, empty="")


def run_rotate(options: argparse.Namespace) -> int:
    """Show the root keys, and put a new one in front of them with `--execute`."""
    from kohort.capabilities import RootKeys, write_keys

    secret = secrets.token_bytes(32)
    before = _keys(options.keys) if Path(options.keys).exists() else None
    after = RootKeys.of(secret) if before is None else before.rotated(secret)
    if options.execute:
        write_keys(options.keys, after)
    rows = [(after.current.id.hex() if options.execute else None, "mints", "new")]
    if before is not None:
        rows.append((before.current.id.hex(), "verifies", "former"))
        if before.former is not None:
            rows.append((before.former.id.hex(), "ends", "with its tokens"))
    shown = {
        "executed": options.execute,
        "file": options.keys,
        "keys": [{"id": key_id, "does": does} for key_id, does, _ in rows],
    }
    return show_plan(options, shown, ("KEY", "DOES", "REMARK"), rows, empty="")


def run_list(options: argparse.Namespace) -> int:
    """Print the tokens in use, and the revocations."""
    from kohort.client.admin.calls.tokens import show_end

    with open_admin(options) as admin:
        found = admin.describe_tokens()
    shown = {"in_use": [asdict(each) for each in found.in_use], "revoked": [asdict(each) for each in found.revoked]}
    rows = [
        ("in use", each.token_id, each.label or "", show_end(each.not_after_ms), str(each.connections))
        for each in found.in_use
    ]
    rows += [
        ("revoked", each.name if each.kind == "id" else "", each.name if each.kind == "label" else "",
         show_end(each.not_after_ms), "")
        for each in found.revoked
    ]  # fmt: skip
    headings = ("STATE", "ID", "LABEL", "LEASE ENDS", "CONNECTIONS")
    return show(options, shown, headings, rows, empty="no token is in use, and none is revoked")


def run_revoke(options: argparse.Namespace) -> int:
    """Revoke tokens by id or label."""
    ids = [each.removeprefix("Token:") for each in options.ids]
    with open_admin(options) as admin:
        admin.revoke_tokens(ids, labels=options.labels, not_after=options.not_after)
    if options.json:
        print_json({"revoked": {"ids": ids, "labels": options.labels}})
    else:
        print(f"revoked: {', '.join([*ids, *options.labels])}")
    return 0


def _print_token(options: argparse.Namespace, token: str, capability: Capability) -> int:
    if options.json:
        # The id of the holder of an attenuated token is known only with the root keys.
        known = {"id": capability.id} if capability.is_verified else {}
        print_json({"token": token, **known, "chain": [capability.chain[0], capability.chain[-1]]})
    else:
        print(token)
    return 0


def _token(options: argparse.Namespace) -> str:
    if options.shown:
        raise ConfigError(
            "a command line is seen by others: give a token by standard input, --token-file FILE or --token-env NAME"
        )
    if options.token_env is not None:
        return password_in_environment(options.token_env, "--token-env").strip()
    return password_in_file(options.token_file).strip()


def _token_id(text: str | None) -> bytes:
    from kohort.ids import parse_topic_id

    if text is None:
        return secrets.token_bytes(16)
    try:
        return parse_topic_id(text)
    except ValueError:
        raise ConfigError("--id is no id of a token: the 22 characters that inspect prints first are") from None


def _keys(path: str) -> RootKeys:
    from kohort.capabilities import read_keys

    return read_keys(path)


def _caveats(options: argparse.Namespace) -> list[Caveat]:
    """Return the caveats that the options name, in their order."""
    from kohort import capabilities

    found: list[Caveat] = []
    if options.operations:
        found.append(capabilities.operations(*options.operations))
    if options.topics or options.topic_prefixes:
        found.append(capabilities.topics(*options.topics, prefixes=options.topic_prefixes))
    if options.partitions:
        chosen: dict[str, list[int | tuple[int, int]]] = {}
        for topic, ranges in options.partitions:
            chosen.setdefault(topic, []).extend(ranges)
        found.append(capabilities.partitions(chosen))
    if options.groups or options.group_prefixes:
        found.append(capabilities.groups(*options.groups, prefixes=options.group_prefixes))
    if options.peers:
        found.append(capabilities.peers(*options.peers))
    found.extend(
        make(value)
        for make, value in (
            (capabilities.member, options.member),
            (capabilities.epoch, options.epoch),
            (capabilities.byte_rate, options.byte_rate),
            (capabilities.request_rate, options.request_rate),
            (capabilities.log_level, options.log_level),
            (capabilities.label, options.label),
        )
        if value is not None
    )
    if (end := _end_ms(options.lease, options.not_after)) is not None:
        found.append(capabilities.not_after(end))
    return found


def _end_ms(lease: timedelta | None, not_after: datetime | None) -> int | None:
    if not_after is not None:
        return int(not_after.timestamp() * 1000)
    return None if lease is None else int((time.time() + lease.total_seconds()) * 1000)


def _partitions(text: str) -> tuple[str, list[tuple[int, int]]]:
    found = _PARTITIONS.fullmatch(text) if len(text) <= 100_000 else None
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is no list of partitions: orders:0-9,12 is one")
    ends = [each.split("-") for each in found[2].split(",")]
    return found[1], [(int(each[0]), int(each[-1])) for each in ends]
