import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;

/** What is counted while an engine works, from the first delivery to the last end: the same as src/measure.rs. */
final class Tally {
    private static final com.sun.management.OperatingSystemMXBean PROCESS =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final long wanted;
    /** After how many nanoseconds it is over, whatever has ended. */
    private final long limit;
    private final AtomicBoolean isBegun = new AtomicBoolean();
    private volatile long began;
    private volatile long cpu;
    private final LongAdder firsts = new LongAdder();
    private final LongAdder ended = new LongAdder();
    private final LongAdder busy = new LongAdder();
    private final AtomicLong twice = new AtomicLong();
    /** A bit for each record that has ended, where each counts once. */
    private final AtomicLongArray seen;
    private long[] late = new long[1024];
    private int lates;
    /** When the first quarter was over: how many had ended, how many first runs had begun, how long it took, and the CPU time by then. */
    private long quarter = -1;
    private long quarterFirsts;
    private long quarterPassed;
    private long quarterCpu;
    private volatile String result;

    /** Until so many have ended, or for so many seconds; a limit of 0 is none. Without numbers nobody asks which have ended. */
    Tally(long wanted, long seconds, long numbered) {
        this.wanted = wanted;
        limit = seconds > 0 ? seconds * 1_000_000_000 : Long.MAX_VALUE;
        seen = numbered > 0 ? new AtomicLongArray((int) (numbered / 64 + 1)) : null;
    }

    void begin() {
        if (!isBegun.get()) {
            start();
        }
    }

    private synchronized void start() {
        if (!isBegun.get()) {
            cpu = PROCESS.getProcessCpuTime();
            began = System.nanoTime();
            isBegun.set(true);
        }
    }

    void first() {
        firsts.increment();
    }

    synchronized void late(long micros) {
        if (lates == late.length) {
            late = Arrays.copyOf(late, lates * 2);
        }
        late[lates++] = micros;
    }

    void busy(long nanos) {
        busy.add(nanos);
    }

    void end() {
        ended.increment();
    }

    void endOf(long number) {
        if (seen == null) {
            end();
            return;
        }
        int word = (int) (number / 64);
        long bit = 1L << (number % 64);
        if ((seen.getAndUpdate(word, it -> it | bit) & bit) != 0) {
            twice.incrementAndGet();
        } else {
            end();
        }
    }

    synchronized void finish() {
        double took = (System.nanoTime() - began) / 1e9;
        long now = PROCESS.getProcessCpuTime();
        long records = ended.sum();
        StringBuilder json = new StringBuilder("{");
        add(json, "took", took);
        add(json, "cpu", (now - cpu) / 1e9);
        if (quarter >= 0) {
            add(json, "later_took", took - quarterPassed / 1e9);
            add(json, "later_records", records - quarter);
            add(json, "later_cpu", (now - quarterCpu) / 1e9);
            if (firsts.sum() > 0) {
                add(json, "later_firsts", firsts.sum() - quarterFirsts);
            }
        }
        add(json, "rss", peakRss() / 1024.0);
        add(json, "twice", twice.get());
        if (firsts.sum() > 0) {
            add(json, "firsts", firsts.sum());
        }
        if (busy.sum() > 0) {
            add(json, "busy", busy.sum() / 1e9);
        }
        if (lates > 0) {
            long[] sorted = Arrays.copyOf(late, lates);
            Arrays.sort(sorted);
            add(json, "late_count", lates);
            add(json, "late_p50", part(sorted, 0.5));
            add(json, "late_p99", part(sorted, 0.99));
            add(json, "late_max", part(sorted, 1));
            add(json, "late_min", part(sorted, 0));
            add(json, "early", Arrays.stream(sorted).filter(it -> it < 0).count());
        }
        json.append("\"records\":").append(records).append('}');
        result = json.toString();
    }

    /** Waits until it is over, and writes down what was measured. */
    void await() throws InterruptedException {
        while (!isOver()) {
            Thread.sleep(2);
        }
        finish();
    }

    private boolean isOver() {
        if (!isBegun.get()) {
            return false;
        }
        long passed = System.nanoTime() - began;
        long records = ended.sum();
        if (quarter < 0 && (passed >= limit / 4 || records >= wanted / 4)) {
            quarter = records;
            quarterFirsts = firsts.sum();
            quarterPassed = passed;
            quarterCpu = PROCESS.getProcessCpuTime();
        }
        return passed >= limit || records >= wanted;
    }

    String result() {
        return result;
    }

    private static void add(StringBuilder json, String name, double value) {
        json.append('"').append(name).append("\":").append(value).append(',');
    }

    private static double part(long[] sorted, double share) {
        int index = Math.max(0, (int) Math.ceil(sorted.length * share) - 1);
        return sorted[Math.min(index, sorted.length - 1)] / 1000.0;
    }

    private static double peakRss() {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith("VmHWM:")) {
                    return Double.parseDouble(line.replaceAll("[^0-9]", ""));
                }
            }
        } catch (IOException ignored) {
            // Told as 0, which nobody takes for a measurement.
        }
        return 0;
    }
}
