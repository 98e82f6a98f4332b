"""DescribeClientQuotas (key 48), KIP-546: the quotas of users, client ids and addresses.

Source: Apache Kafka's ClientQuotasImage: its rules of filters, in its words.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.chunked_responses import answer_rows, rows_at_once
from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode, Refused
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaEntity
from kohort.wire.messages import describe_client_quotas as wire

#: Kafka's kinds of comparison.
EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
_NAMES: Final = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}


def handle(
    context: BrokerContext, request: Request, message: wire.DescribeClientQuotasRequest
) -> wire.DescribeClientQuotasResponse | None:
    """Answer with the entities that the filter lets through, and their limits."""
    if not request.rights.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
        return wire.DescribeClientQuotasResponse(error_code=code, error_message=text, entries=None)
    try:
        exact, named = _parse(message.components)
    except Refused as why:
        return wire.DescribeClientQuotasResponse(error_code=why.code, error_message=str(why), entries=None)
    quotas = context.cluster.client_quotas
    found = [entity for entity in quotas if _matches(dict(entity), exact, named, strict=message.strict)]

    def row_of(entity: QuotaEntity) -> wire.EntryData:
        return wire.EntryData(
            entity=[wire.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[wire.ValueData(key=key, value=value) for key, value in quotas[entity].items()],
        )

    answer_rows(
        context,
        request,
        found,
        rows_at_once(row_of),
        lambda rows: wire.DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=rows),
    )
    return None


def _parse(components: list[wire.ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """Return the names to be compared by type, `None` for the default, and the types of which any name will do."""
    exact: dict[str, str | None] = {}
    named: set[str] = set()
    for each in components:
        kind, how = each.entity_type, each.match_type
        if not kind:
            raise Refused(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in named:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if how not in _NAMES:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown match type {how}")
        if how == EXACT and each.match is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Request specified {_NAMES[how]}, but set match string to null.")
        if how != EXACT and each.match is not None:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"Request specified {_NAMES[how]}, but also specified a match string."
            )
        if how == SPECIFIED:
            named.add(kind)
        else:
            exact[kind] = each.match
    kinds = exact.keys() | named
    if IP in kinds and kinds & {USER, CLIENT_ID}:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return exact, named


def _matches(parts: dict[str, str | None], exact: dict[str, str | None], named: set[str], *, strict: bool) -> bool:
    if strict and len(parts) != len(exact) + len(named):
        return False
    return named <= parts.keys() and all(kind in parts and parts[kind] == name for kind, name in exact.items())
