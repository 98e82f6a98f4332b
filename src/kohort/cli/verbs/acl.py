"""`kohort acl list|add|remove`: the access control entries of users.

Laws: without `--execute` nothing is removed; the output shows the entries that would be removed now.
Source: kafka-acls.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.bootstrap import open_admin
from kohort.cli.main import add_common, add_execute
from kohort.cli.output import print_json, show, show_plan
from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.client.admin.results.access import Acl, AclFilter


#: Option -> type of the resources that it names.
_RESOURCES: Final = {
    "topic": "topic",
    "group": "group",
    "transactional_id": "transactional_id",
    "delegation_token": "delegation_token",
    "user_principal": "user",
}
_COLUMNS: Final = ("RESOURCE", "NAME", "PATTERN", "PERMISSION", "PRINCIPAL", "OPERATION", "HOST")


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    acl = subparsers.add_parser("acl", help="rights: list, add, remove")
    actions = acl.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser(
        "list",
        help="entries of the access lists",
        description="Print the entries that match all options; without an option every entry.",
        run=run_list,
    )

    add = actions.add_parser(
        "add",
        help="allow an operation, or deny it",
        description="Add an entry for each combination of principal, operation and resource. Brokers apply it a moment "
        "later. An entry that denies wins over every entry that allows.",
        run=run_add,
    )
    add.add_argument("--deny", action="store_true", help="deny the operations instead of allowing them")

    remove = actions.add_parser(
        "remove",
        help="remove entries",
        description="Show the entries that match all options, and with --execute remove them.",
        run=run_remove,
    )
    remove.add_argument("--all", action="store_true", help="every entry of the cluster")
    add_execute(remove)

    for parser in (listing, add, remove):
        _add_words(parser, is_filter=parser is not add)
        add_common(parser)


def _add_words(parser: Any, *, is_filter: bool) -> None:
    parser.add_argument(
        "--principal", dest="principals", action="append", type=_principal, metavar="NAME", required=not is_filter,
        help="alice, or User:alice; * is every user; may be repeated, as all of these",
    )  # fmt: skip
    parser.add_argument(
        "--operation", dest="operations", action="append", metavar="WORD", required=not is_filter,
        help="read, write, create, delete, alter, describe, describe_configs, alter_configs, ..., or all",
    )  # fmt: skip
    for option, what in (
        ("topic", "a topic; * is every topic"),
        ("group", "a group"),
        ("transactional-id", "the transactional id of a producer"),
        ("delegation-token", "a token"),
        ("user-principal", "a user for whom tokens are made"),
    ):
        parser.add_argument(f"--{option}", action="append", default=[], metavar="NAME", help=what)
    parser.add_argument("--cluster", action="store_true", help="the cluster as a whole")
    patterns = parser.add_mutually_exclusive_group()
    patterns.add_argument("--prefix", action="store_true", help="the names of resources are prefixes of names")
    if is_filter:
        patterns.add_argument(
            "--match", action="store_true", help="all entries that apply to these resources, also by * or a prefix"
        )
        parser.add_argument("--permission", choices=("allow", "deny"), help="only entries that allow, or deny")
    parser.add_argument(
        "--host", dest="hosts", action="append", metavar="ADDRESS", help="the client's address; * is every address"
    )


def run_list(options: argparse.Namespace) -> int:
    """Print the entries by resource and principal."""
    with open_admin(options) as admin:
        found = _found(admin, list(_filters(options)))
    return show(options, found, _COLUMNS, _rows(found), empty="no such entries")


def run_add(options: argparse.Namespace) -> int:
    """Add entries, without `--execute`: adding an entry removes none."""
    from kohort import Acl

    resources = list(_resources(options))
    if not resources:
        raise ConfigError("the resource is missing: --topic NAME, --group NAME, --cluster, ...")
    permission = "deny" if options.deny else "allow"
    acls = [
        Acl(
            resource_type=kind,
            name=name,
            pattern_type="prefixed" if options.prefix and kind != "cluster" else "literal",
            principal=principal,
            host=host,
            operation=operation,
            permission=permission,
        )
        for (kind, name), principal, operation, host in product(
            resources, options.principals, options.operations, options.hosts or ["*"]
        )
    ]
    with open_admin(options) as admin:
        admin.create_acls(acls)
    if options.json:
        print_json({"added": acls})
    else:
        for acl in acls:
            print(f"added: {acl}")
    return 0


def run_remove(options: argparse.Namespace) -> int:
    """Show the entries that match, and remove them with `--execute`."""
    filters = list(_filters(options))
    if options.all == any(str(each) != "all entries" for each in filters):
        raise ConfigError("say which entries are to be removed, by --principal, --topic and so on, or --all")
    with open_admin(options) as admin:
        if options.execute:
            from kohort.client.admin.results.access import in_order

            found = in_order({acl for each in admin.delete_acls(filters) for acl in each})
        else:
            found = _found(admin, filters)
    shown = {"executed": options.execute, "acls": found}
    return show_plan(options, shown, _COLUMNS, _rows(found), empty="no such entries")


def _found(admin: Any, filters: Sequence[AclFilter]) -> list[Acl]:
    from kohort.client.admin.results.access import in_order

    return in_order({acl for each in filters for acl in admin.describe_acls(each)})


def _filters(options: argparse.Namespace) -> Iterator[AclFilter]:
    from kohort import AclFilter

    pattern = "prefixed" if options.prefix else "match" if options.match else None
    resources: list[tuple[str | None, str | None]] = [*_resources(options)]
    if options.match and not resources:
        raise ConfigError("--match needs a resource: --topic NAME, --group NAME, ...")
    for (kind, name), principal, operation, host in product(
        resources or [(None, None)], options.principals or [None], options.operations or [None], options.hosts or [None]
    ):
        yield AclFilter(
            resource_type=kind,
            name=name,
            pattern_type=pattern or ("literal" if name else None),
            principal=principal,
            host=host,
            operation=operation,
            permission=options.permission,
        )


def _resources(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for option, kind in _RESOURCES.items():
        for name in getattr(options, option):
            yield kind, name
    if options.cluster:
        yield "cluster", "kafka-cluster"


def _rows(acls: Sequence[Acl]) -> list[tuple[object, ...]]:
    return [
        (acl.resource_type, acl.name, acl.pattern_type, acl.permission, acl.principal, acl.operation, acl.host)
        for acl in acls
    ]


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"
