"""A scheduler outside of the group moves partitions by lag. Run it with: python examples/lag_scheduler.py"""

import kohort

GROUP, RECORDS = "billing", [60, 30, 20, 10]


def plan(admin):
    """Partition -> member, for what shall move: the longest lags first, each to who has least to read by then."""
    to_read = {member.member_id: 0 for member in admin.describe_group(GROUP).members}
    moves = {}
    for row in sorted(admin.group_offsets(GROUP), key=lambda row: row.end_offset - (row.committed or 0), reverse=True):
        chosen = min(to_read, key=lambda member: (to_read[member], member != row.member_id))
        to_read[chosen] += row.end_offset - (row.committed or 0)
        if chosen != row.member_id:
            moves[kohort.TopicPartition(row.topic, row.partition)] = chosen
    return moves


if __name__ == "__main__":
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", len(RECORDS))
        # The broker gives out only what nobody owns then: who joins a full group waits for the scheduler.
        admin.alter_group_configs(GROUP, {"group.assignor": "external"})
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for partition, count in enumerate(RECORDS):
                producer.send_many("orders", [b"order"] * count, partition=partition)
        here = {"bootstrap_servers": broker.bootstrap_servers, "group_id": GROUP, "auto_offset_reset": "earliest"}
        here |= {"enable_auto_commit": False, "heartbeat_interval_ms": 500}
        with kohort.Consumer("orders", **here) as early:
            while len(early.assignment()) < len(RECORDS):
                early.poll(0.05)
            with kohort.Consumer("orders", **here) as late:
                while len(admin.describe_group(GROUP).members) < 2:
                    late.poll(0.05)
                print("before:", len(early.assignment()), len(late.assignment()))
                moves = admin.submit_moves(GROUP, plan(admin))
                while len(late.assignment()) < len(moves):
                    early.poll(0.05), late.poll(0.05)
                print("after:", *(sorted(each.partition for each in one.assignment()) for one in (early, late)))
