import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/**
 * One member of a group by Kafka's own consumer: KafkaMember ADDRESS GROUP INSTANCE TOPIC [CONFIG=VALUE...]. INSTANCE
 * "-" is a dynamic member; a TOPIC that begins with "~" is a pattern for the broker to resolve. Prints "held t-0 t-1"
 * whenever what it holds changes and "error CLASS MESSAGE" when it fails; closes when a line comes on its standard input.
 * With poll.ms=N it looks so often, and prints "joins" before it does so first.
 * With commit.ms=N it commits what it has read, so often whether there is more or not, with 0 what is new, and prints
 * "committed 0:5 1:7", or "error CLASS MESSAGE" and goes on; the lines "leave" and "return" do not close it, but
 * unsubscribe and subscribe, "often" and "seldom" change N to 100 and 0. With says.reads=true it prints how many records
 * it was handed of which partition, "read 0:5".
 */
public class KafkaMember {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[1]);
        config.put("group.protocol", "consumer");
        config.put("auto.offset.reset", "earliest");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        if (!args[2].equals("-")) config.put("group.instance.id", args[2]);
        int pollMs = 100;
        int commitMs = -1;
        boolean saysReads = false;
        for (int i = 4; i < args.length; i++) {
            String[] option = args[i].split("=", 2);
            if (option[0].equals("poll.ms")) pollMs = Integer.parseInt(option[1]);
            else if (option[0].equals("commit.ms")) commitMs = Integer.parseInt(option[1]);
            else if (option[0].equals("says.reads")) saysReads = Boolean.parseBoolean(option[1]);
            else config.put(option[0], option[1]);
        }
        String before = null;
        Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
        long committedAt = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            subscribe(consumer, args[3]);
            if (pollMs != 100) System.out.println("joins");
            while (true) {
                String word = System.in.available() == 0 ? "" : line();
                if (word.equals("leave")) consumer.unsubscribe();
                else if (word.equals("return")) subscribe(consumer, args[3]);
                else if (word.equals("often")) commitMs = 100;
                else if (word.equals("seldom")) commitMs = 0;
                else if (!word.isEmpty()) break;
                boolean isNew = false;
                if (!consumer.subscription().isEmpty() || args[3].startsWith("~")) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(pollMs))) {
                        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                        done.put(partition, new OffsetAndMetadata(record.offset() + 1));
                        isNew = true;
                        if (saysReads) System.out.println("read " + record.partition() + ":1");
                    }
                } else {
                    Thread.sleep(pollMs);
                }
                TreeSet<String> held = new TreeSet<>();
                for (TopicPartition partition : consumer.assignment()) held.add(partition.toString());
                String now = "held " + String.join(" ", held);
                if (!now.equals(before)) System.out.println(now);
                before = now;
                done.keySet().retainAll(consumer.assignment());
                boolean isDue = commitMs > 0 && System.currentTimeMillis() - committedAt >= commitMs;
                if (commitMs >= 0 && !done.isEmpty() && (isNew || isDue)) {
                    committedAt = System.currentTimeMillis();
                    commit(consumer, done);
                }
            }
        } catch (Exception error) {
            System.out.println("error " + error.getClass().getSimpleName() + " " + error.getMessage());
        }
        System.out.println("closed");
    }

    private static void subscribe(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        if (topic.startsWith("~")) consumer.subscribe(new SubscriptionPattern(topic.substring(1)));
        else consumer.subscribe(List.of(topic));
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, OffsetAndMetadata> done) {
        try {
            consumer.commitSync(done);
            TreeSet<String> told = new TreeSet<>();
            done.forEach((partition, offset) -> told.add(partition.partition() + ":" + offset.offset()));
            System.out.println("committed " + String.join(" ", told));
        } catch (org.apache.kafka.common.KafkaException error) {
            System.out.println("error " + error.getClass().getSimpleName() + " " + error.getMessage());
        }
    }

    /** What came in up to the next line's end; the end of all input is a word to close. */
    private static String line() throws java.io.IOException {
        StringBuilder found = new StringBuilder();
        for (int next = System.in.read(); next >= 0 && next != '\n'; next = System.in.read()) found.append((char) next);
        return found.length() == 0 ? "close" : found.toString();
    }
}
