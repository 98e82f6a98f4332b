"""Changes of configs while the broker runs: of topics, groups and this broker, for both APIs.

Laws: a resource is changed as a whole or not at all, and answered when the change is in force; a request that only
validates changes nothing.
Source: Apache Kafka's AlterConfigs and IncrementalAlterConfigs (KIP-339).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kohort.broker.topics.topic_operations import Outcome, code_of
from kohort.broker.topics.topicconfigs import check_topic_configs, log_idle
from kohort.coordinator.commands import admin as commands
from kohort.coordinator.commands.base import Done, Refusal
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.groupconfigs import LONGEST_TEXT
from kohort.errors import ConfigError, ErrorCode, Refused
from kohort.ids import CauseId
from kohort.storage.topics.topicchanges import Topic

if TYPE_CHECKING:
    from kohort.broker.context import BrokerContext

#: Called with the outcome of the change of a resource.
Answer = Callable[[ReplyBody], None]
#: Configs that an answer names.
_MOST_NAMED: Final = 10


def outcome_reply(why: Outcome) -> ReplyBody:
    """Return the reply to a change that is in force, or that was refused."""
    return Done() if why is None else Refusal(code=code_of(why), message=str(why))


def alter_group(
    context: BrokerContext, group_id: str, changes: Mapping[str, str | None], answer: Answer, *, validate_only: bool
) -> None:
    """Ask the group's coordinator to change configs; `None` deletes a config."""
    token = context.runtime.next_token()
    command = commands.AlterGroupConfigs(
        cause=CauseId(token), request=token, group_id=group_id, changes=dict(changes), validate_only=validate_only
    )
    context.runtime.ask(command, answer)


def alter_topic(
    context: BrokerContext,
    name: str,
    changed: Callable[[Mapping[str, str]], Mapping[str, str | None]],
    names: Sequence[str],
    answer: Answer,
    *,
    validate_only: bool,
) -> None:
    """Change the configs of a topic.

    Args:
        changed: from the configs that the topic has when the change is carried out to its new ones.
        names: the configs in the request; a log line names those of them that have no effect.
    """

    def checked(topic: Topic) -> dict[str, str]:
        return check_topic_configs(changed(topic.configs))

    if validate_only:
        try:
            checked(context.cluster.known(name))
        except (Refused, ConfigError) as why:
            answer(outcome_reply(why))
        else:
            answer(Done())
        return

    def done(why: Outcome) -> None:
        if why is None:
            log_idle(name, context.cluster.topics[name].configs, names)
        answer(outcome_reply(why))

    context.cluster.work.ask([context.cluster.config_change(name, checked, done)])


def refuse_nulls(names: Iterable[str]) -> None:
    """Refuse configs that are set to null, as Kafka does; deletions say so explicitly."""
    if missing := [name[:LONGEST_TEXT] for name in names]:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {', '.join(missing[:_MOST_NAMED])}")


def alter_broker(
    context: BrokerContext,
    name: str,
    changed: Callable[[Mapping[str, str]], Mapping[str, str | None]],
    answer: Answer,
    *,
    validate_only: bool,
) -> None:
    """Change the configs of this broker; an empty name stands for every broker."""
    # An empty name is Kafka's for the configs of all brokers; here both levels are one.
    if name not in ("", str(context.leadership.node_id)):
        raise Refused(ErrorCode.INVALID_REQUEST, f"this is broker {context.leadership.node_id}, not {name}")
    configs = context.broker_configs
    if validate_only:
        try:
            configs.checked(changed(configs.given))
        except ConfigError as why:
            answer(outcome_reply(why))
        else:
            answer(Done())
        return
    wanted = configs.change(changed, lambda why: answer(outcome_reply(why)))
    context.cluster.work.ask([wanted])
