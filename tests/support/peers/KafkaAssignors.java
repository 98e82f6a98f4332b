import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Assigns partitions with Apache Kafka's own classes: those of the group coordinator and those of its clients.
 *
 * One request per line, JSON: "assignor"; "topics": name -> number of partitions; "members": id -> {"instance": static
 * name or null, "topics": names, "owned": topic -> partitions}. The answer is one line of JSON: member id -> topic ->
 * partitions; or "error" and the reason.
 */
public class KafkaAssignors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Node NODE = new Node(0, "localhost", 9092);

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(JSON.readTree(line)));
            System.out.flush();
        }
    }

    private static String answer(JsonNode request) throws Exception {
        try {
            switch (request.get("assignor").asText()) {
                case "uniform": return JSON.writeValueAsString(onServer(new UniformAssignor(), request));
                case "range": return JSON.writeValueAsString(onServer(new RangeAssignor(), request));
                case "roundrobin": return JSON.writeValueAsString(inClient("roundrobin", request));
                case "sticky": return JSON.writeValueAsString(inClient("sticky", request));
                case "cooperative-sticky": return JSON.writeValueAsString(inClient("cooperative-sticky", request));
                default: return "error: no such assignor";
            }
        } catch (RuntimeException thrown) {
            return "error: " + thrown.toString().replaceAll("\\s", " ");
        }
    }

    /** With an assignor of the group coordinator. */
    private static Map<String, Map<String, List<Integer>>> onServer(
        ConsumerGroupPartitionAssignor assignor, JsonNode request
    ) {
        Map<String, Uuid> ids = new HashMap<>();
        Map<Uuid, String> names = new HashMap<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (Map.Entry<String, JsonNode> topic : request.get("topics").properties()) {
            Uuid id = new Uuid(1, 1 + ids.size());
            ids.put(topic.getKey(), id);
            names.put(id, topic.getKey());
            counts.put(id, topic.getValue().asInt());
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> choices = new HashSet<>();
        for (Map.Entry<String, JsonNode> member : request.get("members").properties()) {
            Set<Uuid> topics = new HashSet<>();
            member.getValue().get("topics").forEach(name -> topics.add(ids.get(name.asText())));
            choices.add(topics);
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            for (Map.Entry<String, JsonNode> each : member.getValue().get("owned").properties()) {
                Uuid id = ids.get(each.getKey());
                each.getValue().forEach(partition -> {
                    owned.computeIfAbsent(id, unused -> new HashSet<>()).add(partition.asInt());
                    owners.computeIfAbsent(id, unused -> new HashMap<>()).put(partition.asInt(), member.getKey());
                });
            }
            members.put(member.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance(member.getValue()), topics,
                new org.apache.kafka.coordinator.group.modern.Assignment(owned)));
        }
        SubscriptionType type = choices.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Map<String, MemberAssignment> found = assignor.assign(
            new GroupSpecImpl(members, type, owners), new Counts(counts)).members();
        Map<String, Map<String, List<Integer>>> answer = new TreeMap<>();
        found.forEach((member, assignment) -> {
            Map<String, List<Integer>> topics = new TreeMap<>();
            assignment.partitions().forEach((id, partitions) -> topics.put(names.get(id), new ArrayList<>(partitions)));
            answer.put(member, topics);
        });
        return answer;
    }

    /** With an assignor of the consumer, as often as it takes until nothing waits for its owner to let go. */
    private static Map<String, Map<String, List<Integer>>> inClient(String name, JsonNode request) {
        List<PartitionInfo> partitions = new ArrayList<>();
        Set<String> subscribed = new HashSet<>();
        request.get("members").forEach(member -> member.get("topics").forEach(topic -> subscribed.add(topic.asText())));
        for (Map.Entry<String, JsonNode> topic : request.get("topics").properties()) {
            for (int i = 0; subscribed.contains(topic.getKey()) && i < topic.getValue().asInt(); i++) {
                partitions.add(new PartitionInfo(topic.getKey(), i, NODE, new Node[] {NODE}, new Node[] {NODE}));
            }
        }
        Cluster cluster = new Cluster("cluster", List.of(NODE), partitions, Set.of(), Set.of());
        Map<String, List<TopicPartition>> owned = new HashMap<>();
        for (Map.Entry<String, JsonNode> member : request.get("members").properties()) {
            List<TopicPartition> list = new ArrayList<>();
            for (Map.Entry<String, JsonNode> each : member.getValue().get("owned").properties()) {
                each.getValue().forEach(partition -> list.add(new TopicPartition(each.getKey(), partition.asInt())));
            }
            owned.put(member.getKey(), list);
        }
        for (int round = 0; round < 3; round++) {
            Map<String, Subscription> subscriptions = new HashMap<>();
            for (Map.Entry<String, JsonNode> member : request.get("members").properties()) {
                subscriptions.put(member.getKey(), subscription(name, member.getKey(), member.getValue(), owned));
            }
            Map<String, Assignment> found =
                make(name).assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
            found.forEach((member, assignment) -> owned.put(member, assignment.partitions()));
            if (owned.values().stream().mapToInt(List::size).sum() == partitions.size()) {
                break;
            }
        }
        Map<String, Map<String, List<Integer>>> answer = new TreeMap<>();
        owned.forEach((member, list) -> {
            Map<String, List<Integer>> topics = answer.computeIfAbsent(member, unused -> new TreeMap<>());
            list.forEach(each ->
                topics.computeIfAbsent(each.topic(), unused -> new ArrayList<>()).add(each.partition()));
        });
        return answer;
    }

    private static Subscription subscription(
        String name, String id, JsonNode member, Map<String, List<TopicPartition>> owned
    ) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        ConsumerPartitionAssignor assignor = make(name);
        // What a member of generation 1 tells about what it owns, each assignor in its own way.
        assignor.onAssignment(
            new Assignment(owned.get(id)), new ConsumerGroupMetadata("group", 1, id, instance(member)));
        ByteBuffer data = assignor.subscriptionUserData(new HashSet<>(topics));
        Subscription made = new Subscription(topics, data, owned.get(id), 1, Optional.empty());
        made.setGroupInstanceId(instance(member));
        return made;
    }

    private static ConsumerPartitionAssignor make(String name) {
        switch (name) {
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    private static Optional<String> instance(JsonNode member) {
        return member.get("instance").isNull() ? Optional.empty() : Optional.of(member.get("instance").asText());
    }

    private record Counts(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topicId) {
            return counts.getOrDefault(topicId, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Set.of();
        }
    }
}
