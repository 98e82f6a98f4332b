"""The admin client's calls about access control lists.

Source: Kafka's Admin (createAcls, describeAcls, deleteAcls); KIP-11, KIP-290.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.client.admin.questions import Calls
from kohort.client.admin.results import access as shapes
from kohort.client.admin.results.access import Acl, AclFilter
from kohort.client.arguments import to_several
from kohort.errors import KohortError
from kohort.wire.messages.create_acls import CreateAclsResponse
from kohort.wire.messages.delete_acls import DeleteAclsResponse
from kohort.wire.messages.describe_acls import DescribeAclsResponse

#: Which part of a request an entry takes; Apache Kafka changes no more than 10,000 at once.
_PART: Final = 1 / 5_000


class AccessCalls(Calls):
    """Who may do what."""

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Add entries; one that is there already stays as it is. Brokers heed them a little later.

        Raises:
            PartlyDoneError: some of them were refused; of one alone it is the error itself.
            BrokerError: SECURITY_DISABLED: the cluster has no authorizer; CLUSTER_AUTHORIZATION_FAILED: this user may
                not change who may do what; POLICY_VIOLATION, ...
            UnsupportedFeatureError: the broker keeps no access lists, as kohort's own.
            ConfigError, TypeError: an entry cannot be one; nothing is changed.
        """
        during = "adding entries to the access lists"
        chosen = [shapes.to_acl(acl) for acl in to_several(acls, "entries", "[kohort.Acl(...)]")]

        async def ask(part: Sequence[Acl]) -> Mapping[Acl, KohortError | None]:
            response = await self._questions.ask(shapes.create_request(part), CreateAclsResponse, during=during)
            rows = zip(part, response.results, strict=False)
            return {acl: shapes.error_of(row.error_code, row.error_message, during, "alter") for acl, row in rows}

        if chosen:
            await self._questions.do_all(chosen, ask, during=during, per_request=lambda _: _PART)

    async def describe_acls(self, of: AclFilter | Acl | None = None) -> list[Acl]:
        """The entries that a filter lets through, all of them without one, by resource and principal.

        Raises:
            BrokerError: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED.
            UnsupportedFeatureError: the broker keeps no access lists.
        """
        chosen = shapes.to_filter(of)
        during = "looking up the access lists"
        response = await self._questions.ask(shapes.describe_request(chosen), DescribeAclsResponse, during=during)
        error = shapes.error_of(response.error_code, response.error_message, during, "describe")
        if error is not None:
            raise error
        return shapes.described(response)

    async def delete_acls(self, filters: Iterable[AclFilter | Acl]) -> list[list[Acl]]:
        """Remove all entries that filters let through; an `Acl` is a filter for itself.

        Returns:
            What each filter has removed, in the order of `filters`; an entry that several let through is in the first.

        Raises:
            PartlyDoneError: some filters were refused; `done` says what the others have removed.
            BrokerError, UnsupportedFeatureError, ConfigError, TypeError: as of `create_acls`.
        """
        during = "removing entries from the access lists"
        chosen = [shapes.to_filter(each) for each in to_several(filters, "filters", "[kohort.AclFilter(...)]")]

        async def ask(part: Sequence[AclFilter]) -> Mapping[AclFilter, list[Acl] | KohortError]:
            response = await self._questions.ask(shapes.delete_request(part), DeleteAclsResponse, during=during)
            found: dict[AclFilter, list[Acl] | KohortError] = {}
            for each, row in zip(part, response.filter_results, strict=False):
                said = [(row.error_code, row.error_message)]
                said += [(entry.error_code, entry.error_message) for entry in row.matching_acls]
                errors = (shapes.error_of(code, text, during, "alter") for code, text in said)
                found[each] = next((error for error in errors if error is not None), None) or shapes.deleted(row)
            return found

        if not chosen:
            return []
        done = await self._questions.do_all(chosen, ask, during=during, per_request=lambda _: _PART)
        return [done[each] for each in chosen]
