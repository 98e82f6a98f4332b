import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs command line tools of Apache Kafka, one after the other, as their scripts do.
 *
 * One command per line: the class and its arguments, each in Base64. The answer is one line: the exit code, and what
 * the tool has printed to its output and to its error output, in Base64.
 */
public class KafkaTools {
    /** A stream that is kept by what has once looked at it, Scala's console for one. */
    private static final class Stream extends OutputStream {
        private ByteArrayOutputStream said = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int octet) {
            said.write(octet);
        }

        @Override
        public synchronized void write(byte[] octets, int offset, int length) {
            said.write(octets, offset, length);
        }

        private synchronized String take() {
            String taken = Base64.getEncoder().encodeToString(said.toByteArray());
            said = new ByteArrayOutputStream();
            return taken;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Stream out = new Stream();
        Stream err = new Stream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = new ArrayList<>();
            for (String word : line.split(" ", -1)) {
                words.add(new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8));
            }
            int code = run(words.get(0), words.subList(1, words.size()).toArray(new String[0]));
            answers.println(code + " " + out.take() + " " + err.take());
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** What exits stands still from then on: whatever comes behind it would not be run in a process of its own. */
    private static int run(String name, String[] arguments) throws Exception {
        CompletableFuture<Integer> code = new CompletableFuture<>();
        Exit.Procedure exit = (status, message) -> {
            code.complete(status);
            while (true) {
                LockSupport.park();
            }
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Thread thread = new Thread(() -> {
            try {
                Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
                code.complete(0);
            } catch (Throwable thrown) {
                thrown.printStackTrace();
                code.complete(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return code.get();
    }
}
