"""Members read what lies near them. Run it with: python examples/local_assignor.py

A topic belongs to the region that its name begins with: eu.orders, us.orders.
"""

import kohort


class NearFirst:
    """For members that run it themselves, or for brokers: it is the same object."""

    name = "nearfirst"

    def assign(self, group):
        """Each partition goes to a subscriber of its region, if there is one, and among those to who has least."""
        owner, loads = group.owner[:], [0] * len(group.members)
        for name, members, start, count in zip(
            group.topic_names, group.subscribers, group.space.starts, group.space.counts, strict=True
        ):
            near = [each for each in members if group.members[each].rack_id == name.partition(".")[0]]
            for place in range(start, start + count):
                chosen = min(near or members, key=lambda each: (loads[each], each != group.owner[place]))
                owner[place] = chosen
                loads[chosen] += 1
        return owner


if __name__ == "__main__":
    with kohort.Broker(config={"num.partitions": 3}) as broker:
        topics = ["eu.orders", "us.orders"]
        here = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "group_local_assignors": NearFirst()}
        both = [kohort.Consumer(*topics, **here, client_rack=rack) for rack in ("eu", "us")]
        with both[0] as eu, both[1] as us:
            while (len(eu.assignment()), len(us.assignment())) != (3, 3):
                eu.poll(0.05), us.poll(0.05)
            print("eu:", *sorted(eu.assignment()))
            print("us:", *sorted(us.assignment()))
