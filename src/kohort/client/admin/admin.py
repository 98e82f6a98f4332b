"""The administration client: topics, groups and their offsets.

Source: Kafka's Admin; C9.
"""

from __future__ import annotations

from kohort.client.admin.config_calls import ConfigCalls
from kohort.client.admin.door import check
from kohort.client.admin.move_calls import MoveCalls
from kohort.client.admin.results import ClusterDescription
from kohort.client.admin.topic_calls import TopicCalls
from kohort.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse


class Admin(TopicCalls, MoveCalls, ConfigCalls):
    """Asks a cluster about topics and groups, and changes them. May be shared by threads.

    Options are Kafka's in snake_case, e.g. `request_timeout_ms`, `default_api_timeout_ms`, or by their dotted names in
    a mapping: `Admin({"request.timeout.ms": 5000})`.

    >>> import kohort
    >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    ...     _ = admin.create_topic("orders", 3)
    ...     [(topic.name, topic.partition_count) for topic in admin.list_topics() if not topic.is_internal]
    [('orders', 3)]
    """

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id and brokers."""
        response = self._ask(
            DescribeClusterRequest(include_cluster_authorized_operations=False),
            DescribeClusterResponse,
            during="describing the cluster",
            codes=lambda response: [response.error_code],
        )
        check(response.error_code, response.error_message, "describing the cluster")
        brokers = tuple(sorted((row.broker_id, row.host, row.port) for row in response.brokers))
        return ClusterDescription(cluster_id=response.cluster_id, controller_id=response.controller_id, brokers=brokers)
