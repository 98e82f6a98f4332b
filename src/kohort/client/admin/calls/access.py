"""The admin client's calls about access control lists.

Source: Kafka's Admin (createAcls, describeAcls, deleteAcls); KIP-11, KIP-290.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.client.admin.admin_machine import Question
from kohort.client.admin.questions import Calls, Coded, error_of
from kohort.client.admin.results import access as results
from kohort.client.admin.results.access import Acl, AclFilter
from kohort.client.arguments import to_several
from kohort.errors import ErrorCode, KohortError
from kohort.wire.messages import create_acls, delete_acls, describe_acls

_NO_LISTS: Final = "the cluster keeps no access lists; set authorizer.class.name of its brokers and controllers"
#: Share of one request for each entry; Apache Kafka changes no more than 10,000 at once.
_PART: Final = 1 / 5_000


class AccessCalls(Calls):
    """The calls about access control lists."""

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add ACL entries; existing entries stay as they are. Brokers apply the new ones a moment later.

        Raises:
            PartlyDoneError: some of them were refused; for a single entry its own error is raised.
            BrokerError: SECURITY_DISABLED: the cluster has no authorizer; CLUSTER_AUTHORIZATION_FAILED: this user may
                not change the lists; POLICY_VIOLATION, ...
            UnsupportedFeatureError: the broker does not support ACLs.
            ConfigError, TypeError: an entry is invalid; nothing is changed.
        """
        during = "adding entries to the access lists"
        chosen = [results.to_acl(acl) for acl in to_several(acls, "entries", "[kohort.Acl(...)]")]

        async def ask(part: Sequence[Acl]) -> Mapping[Acl, KohortError | None]:
            request = results.create_request(part)
            response = await self._ask(Question(request, create_acls.CreateAclsResponse, during=during))
            return {acl: _error(row, during) for acl, row in zip(part, response.results, strict=False)}

        if chosen:
            await self._questions.do_all(chosen, ask, during=during, per_request=lambda _: _PART)

    async def describe_acls(self, of: AclFilter | Acl | None = None) -> list[Acl]:
        """Return the ACL entries that match a filter, sorted by resource and principal; without one, all.

        Raises:
            BrokerError: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED.
            UnsupportedFeatureError: the broker does not support ACLs.
        """
        request = describe_acls.DescribeAclsRequest(**results.filter_fields(results.to_filter(of)))
        during = "looking up the access lists"
        response = await self._ask(Question(request, describe_acls.DescribeAclsResponse, during=during))
        if (error := _error(response, during, operation="describe")) is not None:
            raise error
        return results.described(response)

    async def delete_acls(self, filters: Iterable[AclFilter | Acl]) -> list[list[Acl]]:
        """Delete all ACL entries that match a filter; an `Acl` as a filter matches itself.

        Returns:
            The entries that each filter has deleted, in the order of `filters`; an entry that matches several filters
            is listed for the first.

        Raises:
            PartlyDoneError: some filters were refused; `done` has the entries that the others have deleted.
            BrokerError, UnsupportedFeatureError, ConfigError, TypeError: as for `create_acls`.
        """
        during = "removing entries from the access lists"
        chosen = [results.to_filter(each) for each in to_several(filters, "filters", "[kohort.AclFilter(...)]")]

        async def ask(part: Sequence[AclFilter]) -> Mapping[AclFilter, list[Acl] | KohortError]:
            chosen_rows = [delete_acls.DeleteAclsFilter(**results.filter_fields(each)) for each in part]
            request = delete_acls.DeleteAclsRequest(filters=chosen_rows)
            response = await self._ask(Question(request, delete_acls.DeleteAclsResponse, during=during))
            found: dict[AclFilter, list[Acl] | KohortError] = {}
            for each, row in zip(part, response.filter_results, strict=False):
                rows: list[Coded] = [row, *row.matching_acls]
                errors = (_error(said, during) for said in rows)
                found[each] = next((error for error in errors if error is not None), None) or results.deleted(row)
            return found

        if not chosen:
            return []
        done = await self._questions.do_all(chosen, ask, during=during, per_request=lambda _: _PART)
        return [done[each] for each in chosen]


def _error(said: Coded, during: str, *, operation: str = "alter") -> KohortError | None:
    text = _NO_LISTS if said.error_code == ErrorCode.SECURITY_DISABLED else None
    return error_of(said, during, text=text, operation=operation)
