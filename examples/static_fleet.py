"""A static group: new members are let in together, and a fleet that is restarted one by one moves no partition.

Run it with: python examples/static_fleet.py
"""

import kohort

NAMES = ("till-1", "till-2", "till-3")
quick = {"group.consumer.heartbeat.interval.ms": 200}


def till(address: str, name: str) -> kohort.Consumer:
    """A member by that name: the first of them makes the group a static one."""
    named = {"group_id": "tills", "member_name": name, "registration_timeout_ms": 900_000, "expansion_timeout_ms": 500}
    return kohort.Consumer("sales", bootstrap_servers=address, auto_offset_reset="earliest", **named)


with kohort.Broker(config=quick) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    admin.create_topic("sales", 6)
    tills = {name: till(broker.bootstrap_servers, name) for name in NAMES}

    def settle(share: int) -> None:
        """Until each of them has so many partitions."""
        while any(len(each.assignment()) != share for each in tills.values()):
            for each in tills.values():
                each.poll(0.05)

    settle(2)
    epoch = admin.describe_group("tills").group_epoch
    for name in NAMES:
        before = tills[name].assignment()
        tills[name].close()
        away = [row.instance_id for row in admin.describe_group("tills").members if row.offline_since_ms is not None]
        tills[name] = till(broker.bootstrap_servers, name)
        settle(2)
        print(f"{away[0]} was away, and has what it had: {tills[name].assignment() == before}")
    print(f"rebalances meanwhile: {admin.describe_group('tills').group_epoch - epoch}")
    for each in tills.values():
        each.close()
