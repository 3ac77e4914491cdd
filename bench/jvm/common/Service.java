import java.io.IOException;
import java.util.concurrent.atomic.AtomicLongArray;

/** What the records are for: the same as the handler in src/engine/redrive.rs. */
final class Service {
    /** How long a Java machine warms up with the same work: longer where the first retry is later than that. */
    private static final long WARM_UP_SECONDS = 6;
    private static final long WARM_UP_AFTER_DELAY_SECONDS = 3;

    /** A first run that is to be retried. Without a stack trace, which would cost more than all the rest. */
    static final class NotYet extends RuntimeException {
        NotYet() {
            super("not yet", null, false, false);
        }
    }

    final Task task;
    final Tally tally;
    /** Where it reads, and what tells its group and its other topics from those of others. */
    final String topic;
    final String name;
    private final boolean isIdle;
    private final Ledger ledger;
    /** When each record failed, in microseconds: where all of few fail, and no ledger tells it. */
    private final AtomicLongArray failed;

    /** Of the flags' own topic, or of the one that is only there to warm up. */
    Service(Flags flags, boolean isWarmUp) throws IOException {
        task = new Task(flags);
        isIdle = flags.is("idle");
        if (isWarmUp) {
            topic = flags.text("warm");
            name = flags.text("name") + "-warm";
            long seconds = flags.number("delay") / 1000 + WARM_UP_AFTER_DELAY_SECONDS;
            tally = new Tally(flags.number("warm-records"), Math.max(WARM_UP_SECONDS, seconds), 0);
        } else {
            topic = flags.text("topic");
            name = flags.text("name");
            long records = flags.number("records");
            long seconds = flags.number("for");
            tally = new Tally(flags.is("endless") ? Long.MAX_VALUE : records, seconds,
                    isIdle || seconds > 0 ? 0 : records);
        }
        ledger = flags.has("ledger") && !isWarmUp ? new Ledger(flags.text("ledger")) : null;
        boolean isNoted = task.percent == 100 && flags.number("for") == 0 && ledger == null && !isWarmUp;
        failed = isNoted ? new AtomicLongArray((int) flags.number("records")) : null;
    }

    String group() {
        return topic + "." + name;
    }

    void assigned() {
        if (ledger != null) {
            ledger.write(Ledger.ASSIGNED, 0, 0, Ledger.NONE);
        }
    }

    /** Runs a record; `due` is in microseconds, where it was retried. True if it failed. */
    boolean run(byte[] value, int attempt, long due) {
        tally.begin();
        if (isIdle) {
            tally.end();
            return false;
        }
        long number = Task.number(value);
        long waitsUntil = attempt > 0 && failed != null ? failed.get((int) number) + task.delay(number) * 1000 : due;
        long late = attempt > 0 ? Ledger.micros() - waitsUntil : Ledger.NONE;
        write(Ledger.START, number, attempt, late);
        if (attempt > 0) {
            tally.late(late);
        } else {
            tally.first();
        }
        if (task.stuck == number) {
            sleep(Long.MAX_VALUE);
        }
        if (task.takes > 0) {
            long began = System.nanoTime();
            sleep(task.takes);
            tally.busy(System.nanoTime() - began);
        }
        boolean fails = task.fails(number, attempt);
        write(fails ? Ledger.FAIL : Ledger.DONE, number, attempt, Ledger.NONE);
        if (task.isEnd(number, attempt)) {
            tally.endOf(number);
        }
        if (fails && failed != null) {
            failed.set((int) number, Ledger.micros());
        }
        return fails;
    }

    private void write(int what, long number, int attempt, long late) {
        if (ledger != null) {
            ledger.write(what, number, attempt, late);
        }
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(interrupted);
        }
    }
}
