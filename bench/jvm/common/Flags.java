import java.util.HashMap;
import java.util.Map;

/** What an engine is told: pairs of --name and value, as src/turn.rs writes them. */
final class Flags {
    private final Map<String, String> flags = new HashMap<>();

    Flags(String[] args) {
        for (int i = 0; i + 1 < args.length; i += 2) {
            flags.put(args[i].substring(2), args[i + 1]);
        }
    }

    String text(String name) {
        String text = flags.get(name);
        if (text == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return text;
    }

    boolean has(String name) {
        return flags.containsKey(name);
    }

    long number(String name) {
        return Long.parseLong(text(name));
    }

    boolean is(String name) {
        return Boolean.parseBoolean(text(name));
    }
}
