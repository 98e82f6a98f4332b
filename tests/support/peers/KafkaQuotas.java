import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * Throttle times as Apache Kafka's own classes compute them.
 *
 * One story per line: "rate" or "tokens", windows, their length in seconds, the limit, then pairs of time (ms) and
 * amount. The answer is one line: the throttle time after each pair, in ms.
 */
public class KafkaQuotas {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.trim().split(" ")));
            System.out.flush();
        }
    }

    private static String answer(String[] words) {
        boolean isRate = words[0].equals("rate");
        MetricConfig config = new MetricConfig()
            .samples(Integer.parseInt(words[1]))
            .timeWindow(Long.parseLong(words[2]), TimeUnit.SECONDS)
            .quota(Quota.upperBound(Double.parseDouble(words[3])));
        StringBuilder found = new StringBuilder();
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = metrics.sensor("story");
            MetricName name = metrics.metricName("story", "stories");
            sensor.add(name, isRate ? new Rate() : new TokenBucket(), config);
            for (int at = 4; at < words.length; at += 2) {
                long nowMs = Long.parseLong(words[at]);
                long waitMs = 0;
                try {
                    sensor.record(Double.parseDouble(words[at + 1]), nowMs, true);
                } catch (QuotaViolationException why) {
                    waitMs = isRate
                        ? QuotaUtils.throttleTime(why, nowMs)
                        : Math.round(-why.value() / why.bound() * 1000);
                }
                found.append(waitMs).append(' ');
            }
        }
        return found.toString().trim();
    }
}
