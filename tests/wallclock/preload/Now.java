import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** For each line of input: prints the wall clock in seconds, and the nanoseconds that a wait was shorter than asked for. */
public final class Now {
    public static void main(String[] args) throws Exception {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (in.readLine() != null) {
            long wait = 100_000_000;
            long began = System.nanoTime();
            synchronized (in) {
                in.wait(wait / 1_000_000);
            }
            long early = Math.max(0, wait - (System.nanoTime() - began));
            System.out.println(System.currentTimeMillis() / 1_000 + " " + early);
        }
    }
}
