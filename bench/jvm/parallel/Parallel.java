import io.confluent.parallelconsumer.PCRetriableException;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.RecordContext;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Confluent's Parallel Consumer. */
public final class Parallel {
    private static final int MOST_BUFFERED = 20_000;

    public static void main(String[] args) throws Exception {
        Flags flags = new Flags(args);
        if (flags.has("warm")) {
            Service warm = new Service(flags, true);
            ParallelStreamProcessor<byte[], byte[]> consumer = start(flags, warm);
            warm.tally.await();
            consumer.closeDontDrainFirst();
        }
        Service service = new Service(flags, false);
        ParallelStreamProcessor<byte[], byte[]> consumer = start(flags, service);
        if (flags.is("endless")) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                consumer.closeDontDrainFirst();
                service.tally.finish();
                System.out.println(service.tally.result());
            }));
        }
        service.tally.await();
        if (flags.has("stuck")) {
            // Until what was done is committed.
            Thread.sleep(2000);
        }
        System.out.println(service.tally.result());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static ParallelStreamProcessor<byte[], byte[]> start(Flags flags, Service service) {
        Properties client = new Properties();
        client.put("bootstrap.servers", flags.text("kafka"));
        Properties reading = new Properties();
        reading.putAll(client);
        reading.put("group.id", service.group());
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("key.deserializer", ByteArrayDeserializer.class);
        reading.put("value.deserializer", ByteArrayDeserializer.class);
        reading.put("session.timeout.ms", flags.text("session"));
        reading.put("heartbeat.interval.ms", String.valueOf(flags.number("session") / 10));
        reading.put("max.poll.records", "5000");
        reading.put("max.partition.fetch.bytes", "4194304");
        reading.put("fetch.max.wait.ms", "100");
        KafkaConsumer<byte[], byte[]> kafka = new KafkaConsumer<>(reading);

        Properties writing = new Properties();
        writing.putAll(client);
        writing.put("acks", "all");
        writing.put("enable.idempotence", "true");
        writing.put("key.serializer", ByteArraySerializer.class);
        writing.put("value.serializer", ByteArraySerializer.class);
        // Only hopeless records are written by it: the library knows no dead letters.
        KafkaProducer<byte[], byte[]> producer = service.task.hopeless ? new KafkaProducer<>(writing) : null;
        String dead = service.group() + ".dlt";

        ParallelConsumerOptions<byte[], byte[]> options = ParallelConsumerOptions.<byte[], byte[]>builder()
                .consumer(kafka)
                .ordering(flags.is("ordered") ? ProcessingOrder.KEY : ProcessingOrder.UNORDERED)
                .maxConcurrency((int) flags.number("concurrency"))
                // Else it begins with twice as many records as may run, which may be of a few keys only.
                .messageBufferSize(MOST_BUFFERED)
                .commitInterval(Duration.ofSeconds(1))
                .retryDelayProvider(it -> Duration.ofMillis(service.task.delay(Task.number(it.value()))))
                .build();
        ParallelStreamProcessor<byte[], byte[]> consumer = ParallelStreamProcessor.createEosStreamProcessor(options);
        consumer.subscribe(List.of(service.topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                service.assigned();
            }
        });
        consumer.poll(it -> {
            RecordContext<byte[], byte[]> record = it.getSingleRecord();
            int attempt = record.getNumberOfFailedAttempts();
            long due = 0;
            if (attempt > 0) {
                var failed = record.getLastFailureAt().orElseThrow();
                due = failed.getEpochSecond() * 1_000_000 + failed.getNano() / 1000
                        + service.task.delay(Task.number(record.value())) * 1000;
            }
            if (service.run(record.value(), attempt, due)) {
                if (attempt > 0) {
                    producer.send(new ProducerRecord<>(dead, record.partition(), record.key(), record.value()));
                } else {
                    throw new Again();
                }
            }
        });
        return consumer;
    }

    /** What the library takes for a failure that it need not log. */
    private static final class Again extends PCRetriableException {
        @Override
        public synchronized Throwable fillInStackTrace() {
            return this;
        }
    }
}
