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
#: Part of a request that an entry takes; Apache Kafka changes no more than 10,000 at once.
_PART: Final = 1 / 5_000


class AccessCalls(Calls):
    """The calls about access control lists."""

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add entries; one that is there already stays as it is. Brokers heed them a little later.

        Raises:
            PartlyDoneError: some of them were refused; of one alone it is the error itself.
            BrokerError: SECURITY_DISABLED: the cluster has no authorizer; CLUSTER_AUTHORIZATION_FAILED: this user may
                not change the lists; POLICY_VIOLATION, ...
            UnsupportedFeatureError: the broker keeps no access lists.
            ConfigError, TypeError: an entry cannot be one; nothing is changed.
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
        """Look up the entries that a filter lets through, all of them without one, by resource and principal.

        Raises:
            BrokerError: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED.
            UnsupportedFeatureError: the broker keeps no access lists.
        """
        request = describe_acls.DescribeAclsRequest(**results.filter_fields(results.to_filter(of)))
        during = "looking up the access lists"
        response = await self._ask(Question(request, describe_acls.DescribeAclsResponse, during=during))
        if (error := _error(response, during, operation="describe")) is not None:
            raise error
        return results.described(response)

    async def delete_acls(self, filters: Iterable[AclFilter | Acl]) -> list[list[Acl]]:
        """Remove all entries that filters let through; an `Acl` is a filter for itself.

        Returns:
            The entries that each filter has removed, in the order of `filters`; an entry that several let through is in
            the first.

        Raises:
            PartlyDoneError: some filters were refused; `done` says what the others have removed.
            BrokerError, UnsupportedFeatureError, ConfigError, TypeError: as of `create_acls`.
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
