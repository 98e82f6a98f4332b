"""The admin client's calls about configs: of topics, brokers, groups, client metrics and broker loggers.

Source: Kafka's Admin (describeConfigs, incrementalAlterConfigs).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kohort.client.admin.admin_machine import MovedError, Question
from kohort.client.admin.questions import Calls, Coded, error_of
from kohort.client.admin.results import configs as results
from kohort.client.admin.results.configs import ConfigEntry, ConfigResource
from kohort.client.admin.results.groups import GroupConfig
from kohort.client.arguments import to_names
from kohort.client.core.actions import Endpoint
from kohort.errors import BrokerError, ErrorCode, KohortError
from kohort.wire.messages.describe_configs import DescribeConfigsResponse
from kohort.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse

V = TypeVar("V")
_Said = dict[ConfigResource, V | KohortError]
Resources = tuple[str, str | int] | Iterable[tuple[str, str | int]]

#: Number of resources in one request.
_PER_REQUEST: Final = 200


class ConfigCalls(Calls):
    """The calls about configs."""

    async def describe_configs(
        self, resources: Resources, names: Sequence[str] | None = None
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """Describe the configs of topics, brokers, groups and other resources, including the defaults.

        Args:
            resources: `("topic", "orders")`, `("broker", 1)`, `("group", "billing")`, `("client-metrics", ...)`,
                `("broker-logger", 1)`, or a list of them. `("broker", "")` means the defaults of all brokers.
            names: only the configs with these names.

        Returns:
            The configs of each resource, sorted by name; resources are in the given order.

        Raises:
            UnknownTopicError: the topic does not exist.
            PartlyDoneError: some of several resources have failed; `done` has the others.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders")
        ...     admin.alter_configs(("topic", "orders"), {"retention.ms": 60_000}, append={"cleanup.policy": "compact"})
        ...     found = admin.describe_configs(("topic", "orders"), ["retention.ms", "cleanup.policy"])
        ...     [(row.name, row.value, row.default) for row in found["topic", "orders"]]
        [('cleanup.policy', 'delete,compact', 'delete'), ('retention.ms', '60000', '604800000')]
        """
        chosen = None if names is None else to_names(names, "names")

        async def ask(part: Sequence[ConfigResource], target: Endpoint | None) -> _Said[list[ConfigEntry]]:
            response = await self._ask(
                Question(
                    results.describe_request(part, chosen, include_synonyms=True),
                    DescribeConfigsResponse,
                    during=_during("describing the configs of", part),
                    target=target,
                )
            )
            named = {results.resource_of(row.resource_type, row.resource_name): row for row in response.results}
            doing = "describing the configs of"
            return {each: _error(row, doing, each) or results.entries(row.configs) for each, row in named.items()}

        return await self._of_each(results.to_resources(resources), ask, during="describing configs")

    async def alter_configs(
        self,
        resources: Resources,
        changes: Mapping[str, object] | None = None,
        *,
        delete: Iterable[str] = (),
        append: Mapping[str, object] | None = None,
        subtract: Mapping[str, object] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change some configs; all others stay as they are. Each resource gets all of the changes or none.

        Args:
            resources: as for `describe_configs`; each of several gets the same changes.
            changes: names and values; `None` resets a config to its default.
            delete: names of configs to reset to their defaults.
            append: entries to add to configs that are lists, e.g. `{"cleanup.policy": "compact"}`.
            subtract: entries to remove from configs that are lists.
            validate_only: only check whether the change is possible.

        Raises:
            BrokerError: INVALID_CONFIG; the message has the allowed values, ...
            UnknownTopicError: the topic does not exist.
            PartlyDoneError: of several resources some were not changed; `done` and `failed` say which.
        """
        rows = results.to_changes(changes, delete=delete, append=append, subtract=subtract)
        if not rows:
            return

        async def ask(part: Sequence[ConfigResource], target: Endpoint | None) -> _Said[None]:
            response = await self._ask(
                Question(
                    results.alter_request(part, rows, validate_only=validate_only),
                    IncrementalAlterConfigsResponse,
                    during=_during("altering the configs of", part),
                    target=target,
                )
            )
            named = {results.resource_of(row.resource_type, row.resource_name): row for row in response.responses}
            return {each: _error(row, "altering the configs of", each) for each, row in named.items()}

        await self._of_each(results.to_resources(resources), ask, during="altering configs")

    async def describe_group_configs(self, group: str) -> list[GroupConfig]:
        """Describe the configs of a group, with the broker's defaults, by name; the group need not exist."""
        (rows,) = (await self.describe_configs(("group", group))).values()
        return [
            GroupConfig(name=row.name, value=row.value, is_own=row.source == "DYNAMIC_GROUP_CONFIG", doc=row.doc)
            for row in rows
        ]

    async def alter_group_configs(
        self, group: str, changes: Mapping[str, object], *, validate_only: bool = False
    ) -> None:
        """Set configs of a group, all of them or none; `None` resets one. The group need not exist.

        Raises:
            BrokerError: INVALID_CONFIG; the message has the allowed values, ...
        """
        await self.alter_configs(("group", group), changes, validate_only=validate_only)

    async def _of_each(
        self,
        resources: Sequence[ConfigResource],
        ask: Callable[[Sequence[ConfigResource], Endpoint | None], Awaitable[_Said[V]]],
        *,
        during: str,
    ) -> dict[ConfigResource, V]:
        """Ask for each resource: about a broker and its loggers that broker itself, otherwise any broker."""
        brokers: dict[str, Endpoint] | None = None

        async def ask_part(part: Sequence[ConfigResource]) -> _Said[V]:
            nonlocal brokers
            one = part[0]
            if not _is_of_one_broker(one):
                return await ask(part, None)
            if brokers is None:
                brokers = {
                    str(row.node_id): Endpoint(row.host, row.port)
                    for row in (await self._questions.metadata(())).brokers
                }
            if one.name not in brokers:
                text = f"there is no broker {one.name}; the cluster has {', '.join(sorted(brokers, key=int))}"
                return {one: BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, text, during=during)}
            try:
                return await ask(part, brokers[one.name])
            except MovedError as moved:
                # The broker has left its address; the results of the others are kept.
                return {one: moved.why}

        return await self._questions.do_all(
            resources,
            ask_part,
            during=during,
            per_request=lambda each: 1.0 if _is_of_one_broker(each) else 1 / _PER_REQUEST,
        )


def _is_of_one_broker(resource: ConfigResource) -> bool:
    return resource.kind in ("broker", "broker-logger") and resource.name != ""


def _during(doing: str, part: Sequence[ConfigResource]) -> str:
    return f"{doing} {part[0]}" if len(part) == 1 else f"{doing} {len(part)} resources"


def _error(said: Coded, doing: str, resource: ConfigResource) -> KohortError | None:
    return error_of(said, f"{doing} {resource}", topic=resource.name if resource.kind == "topic" else None)
