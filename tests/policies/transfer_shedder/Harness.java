import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.extensions.BrokerRegistry;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.loadbalance.extensions.data.TopBundlesLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadCounter;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadDecision;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder;
import org.apache.pulsar.broker.loadbalance.extensions.store.LoadDataStore;

/**
 * Asks Pulsar's own TransferShedder: a line of standard input is a case of several rounds, a line of standard output its answers.
 *
 * <p>Brokers are kept in the order of their names, so that equal ones are taken by name. Nothing but the class itself is used: its
 * constructor for tests leaves isolation and anti-affinity out.
 */
public final class Harness {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Harness() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            System.out.println(JSON.writeValueAsString(answers(JSON.readTree(line))));
        }
    }

    private static List<Object> answers(JsonNode fleetCase) throws Exception {
        ServiceConfiguration settings = settings(fleetCase.get("settings"));
        TransferShedder shedder = new TransferShedder(new UnloadCounter());
        List<Object> rounds = new ArrayList<>();
        for (JsonNode round : fleetCase.get("rounds")) {
            rounds.add(answer(shedder, settings, round));
        }
        return rounds;
    }

    private static ServiceConfiguration settings(JsonNode from) {
        ServiceConfiguration settings = new ServiceConfiguration();
        settings.setLoadBalancerBrokerLoadTargetStd(from.get("target_std_ratio").asDouble());
        settings.setLoadBalancerBrokerOverloadedThresholdPercentage(from.get("overloaded_points").asInt());
        settings.setLoadBalancerSheddingConditionHitCountThreshold(from.get("hit_count").asInt());
        settings.setLoadBalancerMaxNumberOfBrokerSheddingPerCycle(from.get("max_brokers_count").asInt());
        settings.setLoadBalancerTransferEnabled(from.get("transfer").asBoolean());
        settings.setLoadBalanceSheddingDelayInSeconds(from.get("shedding_delay_s").asLong());
        settings.setLoadBalancerBrokerLoadDataTTLInSeconds(from.get("load_data_ttl_s").asLong());
        settings.setLoadBalancerDebugModeEnabled(false);
        return settings;
    }

    private static Object answer(TransferShedder shedder, ServiceConfiguration settings, JsonNode round)
            throws Exception {
        long now = System.currentTimeMillis();
        Map<String, BrokerLoadData> loads = new TreeMap<>();
        Map<String, TopBundlesLoadData> tops = new TreeMap<>();
        Map<String, BrokerLookupData> available = new HashMap<>();
        Map<String, Long> unloadedBundles = new HashMap<>();
        Map<String, Long> unloadedBrokers = new HashMap<>();
        for (Map.Entry<String, JsonNode> entry : (Iterable<Map.Entry<String, JsonNode>>) () -> round.get("brokers").fields()) {
            JsonNode broker = entry.getValue();
            available.put(entry.getKey(), null);
            if (broker.has("unloaded_age_s")) {
                unloadedBrokers.put(entry.getKey(), now - 1000 * broker.get("unloaded_age_s").asLong());
            }
            if (broker.has("missing")) {
                continue;
            }
            loads.put(entry.getKey(), load(broker, now));
            TopBundlesLoadData top = new TopBundlesLoadData();
            for (JsonNode bundle : broker.get("top")) {
                top.getTopBundlesLoadData().add(new TopBundlesLoadData.BundleLoadData(
                        bundle.get("name").asText(), stats(bundle.get("bytes_per_s").asDouble())));
                if (!bundle.get("movable").asBoolean()) {
                    unloadedBundles.put(bundle.get("name").asText(), now);
                }
            }
            if (top.getTopBundlesLoadData().size() > 0) {
                tops.put(entry.getKey(), top);
            }
        }
        LoadManagerContext context = as(LoadManagerContext.class, (proxy, method, given) -> switch (method.getName()) {
            case "brokerConfiguration" -> settings;
            case "brokerLoadDataStore" -> store(loads);
            case "topBundleLoadDataStore" -> store(tops);
            case "brokerRegistry" -> as(BrokerRegistry.class,
                    (registry, asked, none) -> CompletableFuture.completedFuture(available));
            default -> throw new UnsupportedOperationException(method.getName());
        });
        TreeSet<String> found = new TreeSet<>();
        for (UnloadDecision decision : shedder.findBundlesForUnloading(context, unloadedBundles, unloadedBrokers)) {
            found.add(decision.getUnload().serviceUnit() + " " + decision.getUnload().sourceBroker() + " "
                    + decision.getUnload().destBroker().orElse("-") + " " + decision.getReason());
        }
        var count = TransferShedder.class.getDeclaredField("unloadConditionHitCount");
        count.setAccessible(true);
        return Map.of("unloads", found, "hit_count", count.getInt(shedder));
    }

    private static BrokerLoadData load(JsonNode broker, long now) throws Exception {
        Map<String, Object> fields = new HashMap<>();
        fields.put("weightedMaxEMA", broker.get("usage_ratio").asDouble());
        fields.put("msgThroughputEMA", broker.get("smoothed_bytes_per_s").asDouble());
        fields.put("msgThroughputIn", broker.get("bytes_per_s").asDouble());
        fields.put("msgThroughputOut", 0.0);
        fields.put("updatedAt", now - 1000 * broker.get("age_s").asLong());
        return JSON.convertValue(fields, BrokerLoadData.class);
    }

    private static org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats stats(double bytesPerS) {
        var stats = new org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats();
        stats.msgThroughputIn = bytesPerS;
        return stats;
    }

    private static <T> LoadDataStore<T> store(Map<String, T> values) {
        return as(LoadDataStore.class, (proxy, method, given) -> switch (method.getName()) {
            case "get" -> Optional.ofNullable(values.get((String) given[0]));
            case "entrySet" -> values.entrySet();
            case "size" -> values.size();
            default -> throw new UnsupportedOperationException(method.getName());
        });
    }

    @SuppressWarnings("unchecked")
    private static <T> T as(Class<?> kind, InvocationHandler answers) {
        return (T) Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, answers);
    }
}
