import java.nio.ByteBuffer;

/** What handlers do with a record: the same as src/task.rs. */
final class Task {
    final long percent;
    final long delay;
    final long delayMax;
    final boolean hopeless;
    final long takes;
    final long stuck;

    Task(Flags flags) {
        percent = flags.number("percent");
        delay = flags.number("delay");
        delayMax = flags.number("delay-max");
        hopeless = flags.is("hopeless");
        takes = flags.number("takes");
        stuck = flags.has("stuck") ? flags.number("stuck") : -1;
    }

    static long number(byte[] value) {
        return ByteBuffer.wrap(value).getLong();
    }

    private static long mix(long number) {
        return (number * 0x9E3779B97F4A7C15L) >>> 33;
    }

    boolean fails(long number, int attempt) {
        return (attempt == 0 || hopeless) && percent > 0 && mix(number) % 100 < percent;
    }

    long delay(long number) {
        return delay + mix(number ^ 0x55555555L) % (delayMax - delay + 1);
    }

    boolean isEnd(long number, int attempt) {
        return attempt > 0 || !fails(number, attempt);
    }
}
