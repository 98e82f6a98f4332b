"""DeleteAcls (key 31): remove the entries of the access control lists that filters let through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.broker.apis.describe_acls import DENIED, NO_AUTHORIZER, check_sent, filter_of, refused_filter
from kohort.broker.chunked_responses import EncodedRows
from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.acls import MOST_CHANGED, AccessControlLists
from kohort.broker.topics.topic_operations import Outcome, code_of
from kohort.errors import ErrorCode, Refused
from kohort.security.access_control import AclOperation, ResourceType
from kohort.security.authorizer import Acl, Authorizer
from kohort.wire.messages import delete_acls as wire

#: Parts of a search, and results of filters, in one turn of the loop; and the entries that make a long one.
_PARTS_AT_ONCE: Final = 50
_FEW: Final = 20


def handle(context: BrokerContext, request: Request, message: wire.DeleteAclsRequest) -> wire.DeleteAclsResponse | None:
    """Carry out each filter independently, and answer with the entries that it has removed."""
    check_sent(message.filters)
    authorizer = context.authorization.authorizer
    refusal = wire.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    if not request.rights.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        refusal = wire.DeleteAclsFilterResult(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=DENIED)
    elif context.acls is not None and authorizer is not None:
        context.cooperative_work.run(_remove(context, context.acls, authorizer, request, message.filters))
        return None
    return wire.DeleteAclsResponse(filter_results=[refusal] * len(message.filters))


def _remove(
    context: BrokerContext,
    lists: AccessControlLists,
    authorizer: Authorizer,
    request: Request,
    filters: list[wire.DeleteAclsFilter],
) -> Iterator[None]:
    found: list[list[Acl] | Refused] = []
    removed: dict[Acl, None] = {}
    parts = 0
    for each in filters:
        if (words := refused_filter(each)) is not None:
            found.append(Refused(ErrorCode.INVALID_REQUEST, words))
            continue
        matching: list[Acl] = []
        for part in authorizer.scan(filter_of(each)):
            matching += part
            # A part may be one look for one name, or a thousand; a turn has some of them.
            parts = 0 if len(part) > _FEW else parts + 1
            if not parts % _PARTS_AT_ONCE:
                yield
                if not request.is_open:
                    return
            if len(matching) + len(removed) > MOST_CHANGED:
                break
        if len(matching) + len(removed) > MOST_CHANGED:
            text = f"Cannot remove more than {MOST_CHANGED} acls in a single delete operation."
            found.append(Refused(ErrorCode.INVALID_REQUEST, text))
            continue
        found.append(matching)
        removed.update(dict.fromkeys(matching))

    def done(why: Outcome) -> None:
        if request.is_open:
            context.cooperative_work.run(_answer(request, [each if why is None else why for each in found]))

    if removed:
        context.cluster.work.ask([lists.removal(removed, done)])
    else:
        done(None)


def _answer(request: Request, found: list[list[Acl] | Outcome]) -> Iterator[None]:
    rows = EncodedRows[wire.DeleteAclsFilterResult](
        request.route, lambda results: wire.DeleteAclsResponse(filter_results=results)
    )
    results: list[wire.DeleteAclsFilterResult] = []
    for each in found:
        results.append(_result(each))
        # A filter that has removed many fills a turn by itself.
        if len(results) == _PARTS_AT_ONCE or len(results[-1].matching_acls) > _FEW:
            rows.add(results)
            results = []
            yield
            if not request.is_open:
                return
    rows.add(results)
    request.answer(rows.body())


def _result(found: list[Acl] | Outcome) -> wire.DeleteAclsFilterResult:
    if not isinstance(found, list):
        assert found is not None, "a filter that was carried out has entries, or none"
        return wire.DeleteAclsFilterResult(error_code=code_of(found), error_message=str(found))
    matching = [
        wire.DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=acl.resource,
            resource_name=acl.name,
            pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in found
    ]
    return wire.DeleteAclsFilterResult(error_message=None, matching_acls=matching)
