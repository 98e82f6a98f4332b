"""`kohort quota list|set`: limits of the bytes that clients send and fetch, and of their requests.

Source: kafka-configs (`--entity-type users`, `clients`, `ips`); KIP-546.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from kohort.cli.arguments import parse_pairs
from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common
from kohort.cli.output import print_json, show
from kohort.errors import ConfigError

_KINDS: Final = ("user", "client-id", "ip")


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    quota = subparsers.add_parser("quota", help="quotas of clients: list, set")
    actions = quota.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser(
        "list",
        help="the quotas that are set",
        description="Print the quotas of the entities that match the options; without an option all quotas.",
        run=run_list,
    )

    change = actions.add_parser(
        "set",
        help="set quotas, or remove them",
        description="Set quotas of a user, a client id, both together, or an address. NAME= removes one. Brokers "
        "apply them a moment later.",
        run=run_set,
    )
    change.add_argument(
        "limits",
        metavar="NAME=VALUE",
        nargs="+",
        help="producer_byte_rate, consumer_byte_rate (bytes per second and broker), request_percentage, "
        "controller_mutation_rate, connection_creation_rate (of addresses)",
    )
    change.add_argument("--validate-only", "--dry-run", action="store_true", help="only check whether this is possible")

    for parser in (listing, change):
        for kind in _KINDS:
            choice = parser.add_mutually_exclusive_group()
            choice.add_argument(f"--{kind}", metavar="NAME", help=f"this {kind}")
            choice.add_argument(
                f"--default-{kind}", action="store_true", help=f"every {kind} that has no quota of its own"
            )
        add_common(parser)


def run_list(options: argparse.Namespace) -> int:
    """Print a row for each limit of an entity: a user, a client id, an address or a pair of them."""
    from kohort.client.admin.results.quotas import show_entity

    with open_admin(options) as admin:
        found = admin.describe_client_quotas(_entity(options))
    rows = [
        (show_entity(row.entity), key, None if limit is None else f"{limit:.15g}")
        for row in found
        for key, limit in row.values.items()
    ]
    return show(options, found, ("OF", "LIMIT", "VALUE"), rows, empty="no limits")


def run_set(options: argparse.Namespace) -> int:
    """Change the limits of one entity."""
    from kohort import ClientQuota

    entity = _entity(options)
    if not entity:
        raise ConfigError("the user or client is missing: --user NAME, --default-user, --client-id NAME, ...")
    limits = {name: _limit(name, value) for name, value in parse_pairs(options.limits, option="limit").items()}
    quota = ClientQuota(entity=entity, values=limits)
    with open_admin(options) as admin:
        admin.alter_client_quotas([quota], validate_only=options.validate_only)
    if options.json:
        print_json({"executed": not options.validate_only, "quota": quota})
    else:
        print(f"{'could be set' if options.validate_only else 'set'}: {quota}")
    return 0


def _entity(options: argparse.Namespace) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for kind in _KINDS:
        dest = kind.replace("-", "_")
        name = getattr(options, dest)
        if name is not None or getattr(options, f"default_{dest}"):
            found[kind] = name
    return found


def _limit(name: str, text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"{name} cannot be {text!r}: a number above 0 is expected, or nothing, which removes it"
        ) from None
