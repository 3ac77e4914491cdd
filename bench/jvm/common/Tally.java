import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/** What is counted while an engine works, from the first delivery to the last end: the same as src/measure.rs. */
final class Tally {
    private static final com.sun.management.OperatingSystemMXBean PROCESS =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final long wanted;
    private final AtomicBoolean isBegun = new AtomicBoolean();
    private volatile long began;
    private volatile long cpu;
    private volatile long main = -1;
    private final AtomicLong firsts = new AtomicLong();
    private final AtomicLong ended = new AtomicLong();
    private final AtomicLong twice = new AtomicLong();
    private final AtomicLong busy = new AtomicLong();
    private final AtomicLongArray seen;
    private long[] late = new long[1024];
    private int lates;
    private final CountDownLatch over = new CountDownLatch(1);
    private volatile String result;
    private double warmRate;

    Tally(long wanted, long numbered) {
        this.wanted = wanted;
        seen = new AtomicLongArray((int) (numbered / 64 + 1));
    }

    void begin() {
        if (!isBegun.get() && isBegun.compareAndSet(false, true)) {
            cpu = PROCESS.getProcessCpuTime();
            began = System.nanoTime();
        }
    }

    void first() {
        if (firsts.incrementAndGet() == wanted) {
            main = System.nanoTime() - began;
        }
    }

    synchronized void late(long micros) {
        if (lates == late.length) {
            late = Arrays.copyOf(late, lates * 2);
        }
        late[lates++] = micros;
    }

    void busy(long nanos) {
        busy.addAndGet(nanos);
    }

    void end() {
        if (ended.incrementAndGet() == wanted) {
            finish();
        }
    }

    void endOf(long number) {
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
        StringBuilder json = new StringBuilder("{");
        add(json, "took", took);
        add(json, "cpu", (PROCESS.getProcessCpuTime() - cpu) / 1e9);
        add(json, "rss", peakRss() / 1024.0);
        add(json, "twice", twice.get());
        add(json, "warm_rate", warmRate);
        if (main >= 0) {
            add(json, "main", main / 1e9);
        }
        if (busy.get() > 0) {
            add(json, "busy", busy.get() / 1e9);
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
        json.append("\"records\":").append(ended.get()).append('}');
        result = json.toString();
        over.countDown();
    }

    /** Records a second that had their first run by now. */
    double rate() {
        long records = Math.max(firsts.get(), ended.get());
        return isBegun.get() ? records / ((System.nanoTime() - began) / 1e9) : 0;
    }

    /** What another tally found, to be told with this one. */
    void warmedUp(double rate) {
        warmRate = rate;
    }

    /** Waits until all has ended, or for so long since the first delivery. */
    void await(long seconds) throws InterruptedException {
        while (!isBegun.get()) {
            Thread.sleep(10);
        }
        over.await(seconds, TimeUnit.SECONDS);
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
