import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/**
 * One member of a group by Kafka's own consumer: KafkaMember ADDRESS GROUP INSTANCE TOPIC [CONFIG=VALUE...]. INSTANCE
 * "-" is a dynamic member; a TOPIC that begins with "~" is a pattern for the broker to resolve. Prints "held t-0 t-1"
 * whenever what it holds changes and "error CLASS MESSAGE" when it fails; closes when a byte comes on its standard input.
 * With poll.ms=N it looks so often, and prints "joins" before it does so first.
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
        for (int i = 4; i < args.length; i++) {
            String[] option = args[i].split("=", 2);
            if (option[0].equals("poll.ms")) pollMs = Integer.parseInt(option[1]);
            else config.put(option[0], option[1]);
        }
        String before = null;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            if (args[3].startsWith("~")) consumer.subscribe(new SubscriptionPattern(args[3].substring(1)));
            else consumer.subscribe(List.of(args[3]));
            if (pollMs != 100) System.out.println("joins");
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(pollMs));
                TreeSet<String> held = new TreeSet<>();
                for (TopicPartition partition : consumer.assignment()) held.add(partition.toString());
                String now = "held " + String.join(" ", held);
                if (!now.equals(before)) System.out.println(now);
                before = now;
            }
        } catch (Exception error) {
            System.out.println("error " + error.getClass().getSimpleName() + " " + error.getMessage());
        }
        System.out.println("closed");
    }
}
