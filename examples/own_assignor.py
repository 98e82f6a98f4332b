"""An assignor of your own: a topic is never split. Run it with: python examples/own_assignor.py

A package names it under [project.entry-points."kohort.assignors"]; a folder stands for that package's metadata here.
"""

import sys
import tempfile
from array import array
from pathlib import Path

import kohort


class WholeTopics:
    name = "wholetopics"

    def assign(self, group):
        """Each topic goes to the member that has least so far."""
        owner, loads = group.owner[:], [0] * len(group.members)
        for members, start, count in zip(group.subscribers, group.space.starts, group.space.counts, strict=True):
            chosen = min(members, key=loads.__getitem__)
            owner[start : start + count] = array("i", [chosen] * count)
            loads[chosen] += count
        return owner


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        entry_points = Path(folder, "own_assignor-1.0.dist-info", "entry_points.txt")
        entry_points.parent.mkdir()
        entry_points.write_text("[kohort.assignors]\nwholetopics = own_assignor:WholeTopics\n")
        sys.path.append(folder)
        with kohort.Broker(config={"group.consumer.assignors": "wholetopics", "num.partitions": 2}) as broker:
            to = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g"}
            with kohort.Consumer(**to) as one, kohort.Consumer(**to) as other:
                for consumer in (one, other):
                    consumer.subscribe(["clicks", "orders", "views"])
                while sorted([len(one.assignment()), len(other.assignment())]) != [2, 4]:
                    one.poll(0.1), other.poll(0.1)
                print(*sorted(",".join(sorted({row.topic for row in c.assignment()})) for c in (one, other)), sep="\n")
