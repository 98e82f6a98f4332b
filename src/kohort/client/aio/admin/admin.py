"""The same as `client/admin/admin.py`, awaited.

Made of it by `python tools/aio_admin.py`: change it there.
"""

from __future__ import annotations

from kohort.client.aio.admin.access_calls import AccessCalls
from kohort.client.aio.admin.cluster_calls import ClusterCalls
from kohort.client.aio.admin.config_calls import ConfigCalls
from kohort.client.aio.admin.membership_calls import MembershipCalls
from kohort.client.aio.admin.move_calls import MoveCalls
from kohort.client.aio.admin.offset_calls import OffsetCalls
from kohort.client.aio.admin.quota_calls import QuotaCalls
from kohort.client.aio.admin.record_calls import RecordCalls
from kohort.client.aio.admin.topic_calls import TopicCalls
from kohort.client.aio.admin.transaction_calls import TransactionCalls
from kohort.client.aio.admin.user_calls import UserCalls
from kohort.client.elsewhere import ADMINS, answering


@answering(ADMINS)
class Admin(
    TopicCalls,
    RecordCalls,
    MoveCalls,
    OffsetCalls,
    MembershipCalls,
    ConfigCalls,
    ClusterCalls,
    TransactionCalls,
    AccessCalls,
    UserCalls,
    QuotaCalls,
):
    """Asks a cluster, and changes it, on the running loop; calls and options as those of `kohort.Admin`.

    May be shared by the tasks of a loop. A call that is cancelled is given up; what it has sent may be carried out.

    >>> import asyncio, kohort, kohort.aio
    >>> async def partitions(address):
    ...     async with kohort.aio.Admin(bootstrap_servers=address) as admin:
    ...         await admin.create_topic("orders", 3)
    ...         (topic,) = await admin.describe_topics(["orders"])
    ...         return len(topic.partitions)
    >>> with kohort.Broker() as broker:
    ...     asyncio.run(partitions(broker.bootstrap_servers))
    3
    """
