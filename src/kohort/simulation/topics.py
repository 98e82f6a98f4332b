"""The topics of a simulated world, which are created, grown, deleted and created again.

Laws: a re-created topic has another id and another label; labels distinguish the two in stories.
"""

from __future__ import annotations

from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.ids import TopicId

#: Names of the topics of a coordinator's world.
TOPIC_NAMES = ("t", "u", "v")


def name_of(label: str) -> str:
    """Return the name of the topic that a label stands for."""
    return label.partition("'")[0]


class SimulatedTopics:
    """The present topics, and the labels of all topics so far.

    >>> shelf = SimulatedTopics()
    >>> shelf.create("t", 2)
    >>> shelf.delete("t")
    >>> shelf.create("t", 3)
    >>> [shelf.label_of(facts.topic_id) for facts in shelf.image.by_name.values()]
    ["t'1"]
    """

    def __init__(self) -> None:
        self.image = TopicImage()
        self._created: dict[str, int] = {}
        self._labels: dict[TopicId, str] = {}
        self._ids: dict[str, TopicId] = {}

    def create(self, name: str, partition_count: int) -> None:
        """Create a topic with an unused name."""
        assert name not in self.image.by_name
        number = self._created.get(name, 0)
        self._created[name] = number + 1
        topic_id = TopicId(len(self._labels).to_bytes(8, "big") + name.encode()[:8].ljust(8, b"."))
        label = f"{name}'{number}" if number else name
        self._labels[topic_id] = label
        self._ids[label] = topic_id
        self._replace(TopicFacts(name=name, topic_id=topic_id, partition_count=partition_count))

    def grow(self, name: str, partition_count: int) -> None:
        """Add partitions to a topic."""
        facts = self.image.by_name[name]
        assert partition_count > facts.partition_count
        self._replace(TopicFacts(name=name, topic_id=facts.topic_id, partition_count=partition_count))

    def delete(self, name: str) -> None:
        """Delete a topic; its name is free again."""
        left = [facts for facts in self.image.by_name.values() if facts.name != name]
        self.image = TopicImage.of(left, version=self.image.version + 1)

    def label_of(self, topic_id: TopicId) -> str:
        """Return the label of a topic in stories, also of a deleted one."""
        return self._labels.get(topic_id, "a topic that is forgotten")

    def is_first_of_its_name(self, label: str) -> bool:
        """Return whether this name never meant another topic."""
        return self._created.get(label) == 1

    def id_of(self, label: str) -> TopicId:
        """Return the topic id that a label stands for."""
        return self._ids[label]

    def partitions_of(self, names: tuple[str, ...]) -> list[tuple[str, int]]:
        """List (name, number) of every partition that a subscriber to `names` can get."""
        found = (self.image.by_name[name] for name in sorted(names) if name in self.image.by_name)
        return [(facts.name, number) for facts in found for number in range(facts.partition_count)]

    def _replace(self, facts: TopicFacts) -> None:
        others = [other for other in self.image.by_name.values() if other.name != facts.name]
        self.image = TopicImage.of([*others, facts], version=self.image.version + 1)
