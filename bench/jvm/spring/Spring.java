import java.math.BigInteger;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConsumerAwareRebalanceListener;
import org.springframework.kafka.retrytopic.RetryTopicConfiguration;
import org.springframework.kafka.retrytopic.RetryTopicConfigurationBuilder;
import org.springframework.kafka.retrytopic.RetryTopicConfigurationSupport;
import org.springframework.kafka.retrytopic.RetryTopicHeaders;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** Spring Kafka's non-blocking retries: what `@RetryableTopic` sets up, by its builder. */
public final class Spring {
    private static final int PARTITIONS = 3;

    /** What the beans are made of: a context has no other way in. */
    private static Flags flags;
    private static Service service;
    private static boolean isTuned;

    public static void main(String[] args) throws Exception {
        flags = new Flags(args);
        isTuned = flags.is("tuned");
        if (flags.has("warm")) {
            AnnotationConfigApplicationContext warm = start(true);
            service.tally.await();
            warm.close();
        }
        AnnotationConfigApplicationContext context = start(false);
        if (flags.is("endless")) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                context.close();
                service.tally.finish();
                System.out.println(service.tally.result());
            }));
        }
        service.tally.await();
        System.out.println(service.tally.result());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static AnnotationConfigApplicationContext start(boolean isWarmUp) throws Exception {
        service = new Service(flags, isWarmUp);
        return new AnnotationConfigApplicationContext(Setup.class);
    }

    @Configuration
    @EnableKafka
    static class Setup extends RetryTopicConfigurationSupport {
        @Override
        protected void configureCustomizers(CustomizersConfigurer customizers) {
            if (isTuned) {
                // Else everything behind a record that failed is fetched again.
                customizers.customizeErrorHandler(it -> it.setSeekAfterError(false));
                // Else each record that failed costs a request for metadata; here all topics have equal partitions.
                customizers.customizeDeadLetterPublishingRecoverer(it -> it.setVerifyPartition(false));
            }
        }

        @Bean
        KafkaTemplate<byte[], byte[]> template() {
            Map<String, Object> writing = new HashMap<>();
            writing.put("bootstrap.servers", flags.text("kafka"));
            writing.put("acks", "all");
            writing.put("enable.idempotence", true);
            if (isTuned) {
                // Each record is waited for, so that lingering would only add to the wait.
                writing.put("linger.ms", 0);
                writing.put("batch.size", 262144);
            }
            return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(writing, new ByteArraySerializer(),
                    new ByteArraySerializer()));
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory() {
            Map<String, Object> reading = new HashMap<>();
            reading.put("bootstrap.servers", flags.text("kafka"));
            reading.put("auto.offset.reset", "earliest");
            reading.put("session.timeout.ms", (int) flags.number("session"));
            reading.put("heartbeat.interval.ms", (int) (flags.number("session") / 10));
            if (isTuned) {
                reading.put("max.poll.records", 5000);
                reading.put("max.partition.fetch.bytes", 4194304);
                reading.put("fetch.max.wait.ms", 10);
            }
            var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
            factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(reading, new ByteArrayDeserializer(),
                    new ByteArrayDeserializer()));
            if (isTuned) {
                factory.setConcurrency(PARTITIONS);
                factory.getContainerProperties().setPollTimeout(10);
                factory.getContainerProperties().setIdlePartitionEventInterval(10L);
                factory.getContainerProperties().setSyncCommits(false);
            }
            // A warm-up that is over does not go on with what it has fetched.
            factory.getContainerProperties().setStopImmediate(true);
            Service assigned = service;
            factory.getContainerProperties().setConsumerRebalanceListener(new ConsumerAwareRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Consumer<?, ?> consumer,
                        java.util.Collection<TopicPartition> partitions) {
                    assigned.assigned();
                }
            });
            return factory;
        }

        @Bean
        TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        RetryTopicConfiguration retries(KafkaTemplate<byte[], byte[]> template) {
            var builder = RetryTopicConfigurationBuilder.newInstance()
                    .maxAttempts(2)
                    .fixedBackOff(service.task.delay)
                    .useSingleTopicForSameIntervals()
                    .retryTopicSuffix("." + service.name + ".retry")
                    .dltSuffix("." + service.name + ".dlt")
                    .doNotAutoCreateRetryTopics()
                    .autoStartDltHandler(false);
            if (isTuned) {
                builder.concurrency(PARTITIONS);
            }
            return builder.create(template);
        }

        @Bean
        Listener listener() {
            return new Listener(service);
        }
    }

    static final class Listener {
        private final Service service;

        Listener(Service service) {
            this.service = service;
        }

        public String topic() {
            return service.topic;
        }

        public String group() {
            return service.group();
        }

        @KafkaListener(topics = "#{__listener.topic()}", groupId = "#{__listener.group()}")
        public void run(ConsumerRecord<byte[], byte[]> record) {
            Header due = record.headers().lastHeader(RetryTopicHeaders.DEFAULT_HEADER_BACKOFF_TIMESTAMP);
            int attempt = due == null ? 0 : 1;
            long micros = due == null ? 0 : new BigInteger(due.value()).longValue() * 1000;
            if (service.run(record.value(), attempt, micros)) {
                throw new Service.NotYet();
            }
        }
    }
}
