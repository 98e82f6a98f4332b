import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Encodes messages with Apache Kafka's own classes.
 *
 * One request per line, separated by tabs: class, version, hexadecimal bytes, JSON of the same message. The answer is
 * one line: the bytes that Kafka makes of the JSON, those that it makes of what it read in the bytes, and whether it
 * holds the two for equal; or "error" and the reason.
 */
public class KafkaMessages {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split("\t", 4)));
            System.out.flush();
        }
    }

    private static String answer(String[] request) {
        try {
            short version = Short.parseShort(request[1]);
            Class<?> type = Class.forName(request[0]);
            Message built = (Message) Class.forName(request[0] + "JsonConverter")
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, JSON.readTree(request[3]), version);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(request[2]));
            Message read = (Message) type.getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) {
                return "error\t" + bytes.remaining() + " bytes were left unread";
            }
            return String.join("\t", encode(built, version), encode(read, version), "" + built.equals(read));
        } catch (Throwable thrown) {
            Throwable reason = thrown.getCause() == null ? thrown : thrown.getCause();
            return "error\t" + reason.toString().replaceAll("\\s", " ");
        }
    }

    private static String encode(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(bytes), cache, version);
        return HexFormat.of().formatHex(bytes.array(), 0, bytes.position());
    }
}
