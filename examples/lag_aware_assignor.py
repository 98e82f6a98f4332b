"""Members balance their group by lag themselves. Run it with: python examples/lag_aware_assignor.py"""

import json

import kohort


class LagAware:
    name, lags = "lagaware", None  # lags: partition -> records that this member has not read

    def metadata(self):
        """What this member tells."""
        return json.dumps(self.lags or {}).encode()

    def assign(self, group):
        """The longest lags first, each to who has least to read by then; of equals to its owner."""
        lags = {name: lag for each in group.members for name, lag in json.loads(each.metadata).items()}
        owner, to_read = group.owner[:], [0] * len(group.members)
        rows = [(topic, number) for topic, count in enumerate(group.space.counts) for number in range(count)]
        rows = [(lags.get(f"{group.topic_names[topic]}-{number}", 0), topic, number) for topic, number in rows]
        for lag, topic, number in sorted(rows, key=lambda row: -row[0]):
            place = group.space.starts[topic] + number
            owner[place] = min(group.subscribers[topic], key=lambda each: (to_read[each], each != group.owner[place]))
            to_read[owner[place]] += lag
        return owner


if __name__ == "__main__":
    with kohort.Broker(config={"num.partitions": 4}) as broker:
        here = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
        mine = LagAware()
        with kohort.Consumer("orders", **here, group_local_assignors=mine) as early:
            while len(early.assignment()) < 4:
                early.poll(0.05)
            mine.lags = {"orders-0": 60, "orders-1": 30, "orders-2": 20, "orders-3": 10}  # say, from early.lag()
            early.enforce_rebalance("lags have changed")
            with kohort.Consumer("orders", **here, group_local_assignors=LagAware()) as late:
                while len(late.assignment()) < 3:
                    early.poll(0.05), late.poll(0.05)
                print(*(sorted(each.partition for each in one.assignment()) for one in (early, late)))
