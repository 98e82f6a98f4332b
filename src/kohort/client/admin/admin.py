"""The administration client: topics, groups and their offsets, clusters, transactions.

Source: Kafka's Admin; C9.
"""

from __future__ import annotations

from kohort.client.admin.access_calls import AccessCalls
from kohort.client.admin.cluster_calls import ClusterCalls
from kohort.client.admin.config_calls import ConfigCalls
from kohort.client.admin.membership_calls import MembershipCalls
from kohort.client.admin.move_calls import MoveCalls
from kohort.client.admin.offset_calls import OffsetCalls
from kohort.client.admin.quota_calls import QuotaCalls
from kohort.client.admin.record_calls import RecordCalls
from kohort.client.admin.topic_calls import TopicCalls
from kohort.client.admin.transaction_calls import TransactionCalls
from kohort.client.admin.user_calls import UserCalls
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
    """Asks a cluster about itself, topics and groups, and changes them. May be shared by threads.

    Options are Kafka's in snake_case, e.g. `request_timeout_ms`, `default_api_timeout_ms`, or by their dotted names in
    a mapping: `Admin({"request.timeout.ms": 5000})`.

    >>> import kohort
    >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    ...     _ = admin.create_topic("orders", 3)
    ...     [(topic.name, topic.partition_count) for topic in admin.list_topics() if not topic.is_internal]
    [('orders', 3)]
    """
