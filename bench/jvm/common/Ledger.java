import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Instant;

/** What handlers did, in a file that outlives them: the same as src/ledger.rs. */
final class Ledger {
    static final int START = 0;
    static final int DONE = 1;
    static final int FAIL = 2;
    static final int ASSIGNED = 3;
    static final long NONE = Long.MIN_VALUE;

    private final FileOutputStream file;

    Ledger(String path) throws IOException {
        file = new FileOutputStream(path, true);
    }

    void write(int what, long number, int attempt, long late) {
        byte[] entry = ByteBuffer.allocate(32).putLong(number).putLong(micros()).putLong(late).putInt(attempt)
                .putInt(what).array();
        try {
            file.write(entry);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The wall clock in microseconds. */
    static long micros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
    }
}
