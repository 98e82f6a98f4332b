"""The admin client's calls about quotas of clients.

Source: Kafka's Admin (describeClientQuotas, alterClientQuotas); KIP-546.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Final

from kohort.client.admin.admin_machine import Question
from kohort.client.admin.questions import Calls, error_of
from kohort.client.admin.results import quotas as results
from kohort.client.admin.results.quotas import ClientQuota, Entity
from kohort.client.arguments import to_several
from kohort.errors import ConfigError, KohortError
from kohort.wire.messages.alter_client_quotas import AlterClientQuotasResponse
from kohort.wire.messages.describe_client_quotas import DescribeClientQuotasResponse

#: Share of one request for each entity. Apache Kafka changes no more than 10,000 limits at once, and kohort's broker
#: accepts as many rows: an entity, its parts and its limits are up to eight rows.
_PART: Final = 1 / 1_000


class QuotaCalls(Calls):
    """The calls about quotas."""

    async def describe_client_quotas(
        self, of: Mapping[str, str | EllipsisType | None] | None = None, *, strict: bool = False
    ) -> list[ClientQuota]:
        """Return the quotas that are set, sorted by entity.

        Args:
            of: by "user", "client-id" or "ip", a name, `None` for the default, or `...` for any name and the default.
                An entity has to match all of them. Without `of`, all entities are returned.
            strict: only entities without other parts: with `{"user": ...}` not those of a user and a client id.

        Raises:
            AuthorizationError: the caller lacks `describe_configs` on the cluster.
            UnsupportedFeatureError: the broker does not support quotas.
        """
        during = "looking up quotas"
        request = results.describe_request(of, strict=strict)
        response = await self._ask(Question(request, DescribeClientQuotasResponse, during=during))
        error = error_of(response, during, operation="describe_configs")
        if error is not None:
            raise error
        return results.described(response)

    async def alter_client_quotas(self, quotas: Iterable[ClientQuota], *, validate_only: bool = False) -> None:
        """Set quotas, or remove them with `None`; others stay. Brokers apply the changes a moment later.

        Args:
            validate_only: only check whether the change is possible.

        Raises:
            PartlyDoneError: the change was refused for some entities; for a single one its own error is raised.
            BrokerError: INVALID_REQUEST: the quota does not exist, or not for such an entity.
            AuthorizationError: the caller lacks `alter_configs` on the cluster.
            UnsupportedFeatureError: the broker does not support quotas.
            ConfigError, TypeError: a quota is invalid; nothing is changed.
        """
        during = "changing quotas"
        wanted: dict[Entity, Mapping[str, float | None]] = {}
        for quota in to_several(quotas, "quotas", "[kohort.ClientQuota(...)]"):
            entity, limits = results.to_quota(quota)
            if entity in wanted:
                raise ConfigError(f"{entity} is named twice in one call: name it once")
            wanted[entity] = limits

        async def ask(part: Sequence[Entity]) -> Mapping[Entity, KohortError | None]:
            request = results.alter_request([(each, wanted[each]) for each in part], validate_only=validate_only)
            response = await self._ask(Question(request, AlterClientQuotasResponse, during=during))
            return {
                results.entity_of(row.entity): error_of(row, during, operation="alter_configs")
                for row in response.entries
            }

        if wanted:
            await self._questions.do_all(wanted, ask, during=during, per_request=lambda _: _PART)
