"""`kohort.aio.Admin`: the calls of `kohort.Admin`, awaited; what only a loop brings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import kohort
import kohort.aio
from kohort.errors import (
    BrokerError,
    BrokersUnreachableError,
    ConfigError,
    ErrorCode,
    KohortError,
    KohortTimeoutError,
    StateError,
)
from kohort.testing import Cluster
from support.dialogues.scripted_broker import ScriptedBroker
from support.peers.awaited_admin import AwaitedAdmin
from support.scenarios.admin_day import play_day
from support.scenarios.many_groups import play_many_groups

CONFIG = {"group.consumer.heartbeat.interval.ms": 200}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker(config=CONFIG) as broker:
        yield broker.bootstrap_servers


def test_an_administrator_has_the_same_day(address: str) -> None:
    play_day({"bootstrap_servers": address}, "awaited-day", admin_of=AwaitedAdmin)


def test_many_groups_at_three_brokers_of_which_one_goes_away() -> None:
    with Cluster(3, config=CONFIG) as cluster:
        servers = {"bootstrap_servers": cluster.bootstrap_servers}
        play_many_groups(servers, "awaited", count=20, disturb=lambda: cluster.kill(2), admin_of=AwaitedAdmin)


def test_calls_of_many_tasks_are_under_way_together_and_without_a_thread(address: str) -> None:
    async def main() -> None:
        threads = threading.active_count()
        async with kohort.aio.Admin(bootstrap_servers=address) as admin:
            await asyncio.gather(*(admin.create_topic(f"together-{number}", 2) for number in range(20)))
            names = {topic.name for topic in await admin.list_topics()}
            assert threading.active_count() == threads
        assert names >= {f"together-{number}" for number in range(20)}

    asyncio.run(main())


def test_call_that_is_cancelled_is_given_up_and_nothing_else_is() -> None:
    """Nobody answers: the second call waits as long as it may."""

    async def main(address: str) -> None:
        async with kohort.aio.Admin(bootstrap_servers=address, default_api_timeout_ms=300) as admin:
            first = asyncio.create_task(admin.list_topics())
            second = asyncio.create_task(admin.describe_groups(["a", "b"]))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            found = await second
            assert [type(each) for each in found.values()] == [KohortTimeoutError, KohortTimeoutError]

    with ScriptedBroker(lambda *_: None) as silent:
        asyncio.run(main(str(silent.endpoint)))


def test_what_is_wrong_is_said_as_by_the_blocking_calls(address: str) -> None:
    async def main() -> None:
        admin = kohort.aio.Admin(bootstrap_servers=address)
        with pytest.raises(BrokerError) as missing:
            await admin.describe_group("nobody")
        assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        with pytest.raises(TypeError, match=r"like \['ab'\]"):
            await admin.delete_groups("ab")
        await admin.close()
        await admin.close()
        with pytest.raises(StateError, match="is closed"):
            await admin.list_topics()
        async with kohort.aio.Admin(bootstrap_servers="127.0.0.1:1") as nowhere:
            with pytest.raises(BrokersUnreachableError):
                await nowhere.describe_groups(["a"])

    asyncio.run(main())
    with pytest.raises(ConfigError, match="unknown"):
        kohort.aio.Admin(bootstrap_server="127.0.0.1:1")  # type: ignore[call-arg]


def test_it_belongs_to_one_loop(address: str) -> None:
    """Made outside of any; the first call says which."""
    admin = kohort.aio.Admin(bootstrap_servers=address)

    async def look() -> list[str]:
        return [topic.name for topic in await admin.list_topics()]

    async def look_and_close() -> None:
        await look()
        await admin.close()

    async def look_from_elsewhere() -> None:
        await look()
        with pytest.raises(StateError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, look())
        await admin.close()

    asyncio.run(look_from_elsewhere())
    with pytest.raises(KohortError, match="is closed"):
        asyncio.run(look_and_close())


def test_one_that_nobody_has_closed_is_told_of(address: str) -> None:
    async def main() -> None:
        await kohort.aio.Admin(bootstrap_servers=address).list_topics()

    with pytest.warns(ResourceWarning, match="admin client was not closed: use it in an async with statement"):
        asyncio.run(main())
