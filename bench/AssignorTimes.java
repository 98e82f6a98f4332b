import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Times Apache Kafka's own assignors. Each line on standard input is one run: assignor, members, topics, partitions per
 * topic, shape (same, teams, gaps), "full" or "join". The answer is the time of one computation, milliseconds, with
 * everything that it reads built before, and the virtual machine warm.
 */
public class AssignorTimes {
    private static final long WARM_UP_NANOS = 2_000_000_000L;
    private static final Map<String, GroupSpecImpl> SPECS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(time(line.split(" ")));
            System.out.flush();
        }
    }

    private static double time(String[] words) {
        ConsumerGroupPartitionAssignor assignor =
            words[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        int members = Integer.parseInt(words[1]);
        int topics = Integer.parseInt(words[2]);
        int partitions = Integer.parseInt(words[3]);
        Topics describer = new Topics(topics, partitions);
        String key = String.join(" ", words);
        if (!SPECS.containsKey(key)) {
            // One group at a time: the largest ones fill the heap.
            SPECS.clear();
            GroupSpecImpl spec = build(members, topics, words[4], Map.of());
            if (words[5].equals("join")) {
                Map<String, MemberAssignment> before = assignor.assign(spec, describer).members();
                spec = build(members + 1, topics, words[4], before);
            }
            SPECS.put(key, spec);
            long until = System.nanoTime() + WARM_UP_NANOS;
            while (System.nanoTime() < until) {
                assignor.assign(spec, describer);
            }
        }
        System.gc();
        long began = System.nanoTime();
        GroupAssignment found = assignor.assign(SPECS.get(key), describer);
        double took = (System.nanoTime() - began) / 1e6;
        if (found.members().isEmpty()) {
            throw new IllegalStateException("nothing was assigned");
        }
        return took;
    }

    private static GroupSpecImpl build(int count, int topics, String shape, Map<String, MemberAssignment> before) {
        Map<Integer, Set<Uuid>> choices = new HashMap<>();
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (int i = 0; i < count; i++) {
            String id = String.format("m%06d", i);
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            if (before.containsKey(id)) {
                before.get(id).partitions().forEach((topic, partitions) -> {
                    owned.put(topic, new HashSet<>(partitions));
                    partitions.forEach(each -> owners.computeIfAbsent(topic, unused -> new HashMap<>()).put(each, id));
                });
            }
            int team = shape.equals("same") ? 0 : i % 5;
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.empty(),
                choices.computeIfAbsent(team, unused -> choice(topics, shape, team)), new Assignment(owned)));
        }
        SubscriptionType type = shape.equals("same") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        return new GroupSpecImpl(members, type, owners);
    }

    /** The topics of a team: all of them, its own fifth, or all but a fifth. */
    private static Set<Uuid> choice(int topics, String shape, int team) {
        Set<Uuid> found = new HashSet<>();
        for (int i = 0; i < topics; i++) {
            if (shape.equals("same") || shape.equals("teams") == (i % 5 == team)) {
                found.add(new Uuid(1, i + 1));
            }
        }
        return found;
    }

    private record Topics(int topics, int partitions) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topicId) {
            return topicId.getLeastSignificantBits() <= topics ? partitions : -1;
        }

        @Override
        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Set.of();
        }
    }
}
