import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * The worker of Curator's InterProcessMutex: the commands and answers of _worker.py, which explains them. Unlike a
 * Python worker it stays after `stop`, so that what the JVM has compiled stays too; each `start` makes a new session.
 *
 * Arguments: hosts, the session timeout in seconds, and how the threads of a contended row have their mutex: "shared",
 * or an object "each".
 */
public final class CuratorWorker {

    private static final long STACK_BYTES = 512 * 1024;
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final int CONNECT_TIMEOUT_MILLIS = 15_000;

    private final CuratorFramework client;
    private final LongAdder cycles = new LongAdder();
    private final List<Thread> threads = new ArrayList<>();
    private Release go;
    private volatile boolean stopping;
    private volatile String failure;

    private interface Release {
        void release() throws Exception;
    }

    private interface Loop {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        String hosts = args[0];
        int sessionTimeoutMillis = (int) (1000 * Double.parseDouble(args[1]));
        boolean shared = args[2].equals("shared");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        CuratorWorker worker = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String answer = "{}";
            switch (words[0]) {
                case "start":
                    worker = new CuratorWorker(hosts, sessionTimeoutMillis);
                    worker.start(words[1], "/bench-curator/" + words[2], shared);
                    break;
                case "go":
                    worker.go.release();
                    break;
                case "sample":
                    answer = worker.sample();
                    break;
                case "stop":
                    worker.stop();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private CuratorWorker(String hosts, int sessionTimeoutMillis) throws InterruptedException {
        client = CuratorFrameworkFactory.newClient(
                hosts, sessionTimeoutMillis, CONNECT_TIMEOUT_MILLIS, new ExponentialBackoffRetry(100, 3));
        client.start();
        if (!client.blockUntilConnected(CONNECT_TIMEOUT_MILLIS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("not connected");
        }
    }

    private void start(String row, String path, boolean shared) throws Exception {
        int size = Integer.parseInt(row.substring(row.indexOf('-') + 1));
        if (row.startsWith("contended-")) {
            InterProcessMutex gate = new InterProcessMutex(client, path);
            gate.acquire();
            go = gate::release;
            for (int i = 0; i < size; i++) {
                InterProcessMutex mutex = shared ? gate : new InterProcessMutex(client, path);
                spawn(() -> cycle(mutex));
            }
        } else {
            CountDownLatch started = new CountDownLatch(1);
            go = started::countDown;
            for (int i = 0; i < size; i++) {
                InterProcessMutex mutex = new InterProcessMutex(client, path + "-" + i);
                spawn(() -> {
                    started.await();
                    cycle(mutex);
                });
            }
        }
    }

    private String sample() {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        String told = failure == null ? "null" : "\"" + failure.replaceAll("[^ -~]|[\"\\\\]", "?") + "\"";
        return String.format(
                Locale.ROOT,
                "{\"cycles\": %d, \"seconds\": %.9f, \"cpu\": %.9f, \"failure\": %s}",
                cycles.sum(), System.nanoTime() / 1e9, system.getProcessCpuTime() / 1e9, told);
    }

    private void stop() throws InterruptedException {
        stopping = true;
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        for (Thread thread : threads) {
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            if (left > 0) {
                thread.join(left);
            }
        }
        client.close();
        for (Thread thread : threads) {
            thread.interrupt();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void spawn(Loop loop) {
        Thread thread = new Thread(null, () -> {
            try {
                loop.run();
            } catch (Exception error) {
                if (!stopping) {
                    failure = error.toString();
                }
            }
        }, "contender", STACK_BYTES);
        thread.setDaemon(true);
        threads.add(thread);
        thread.start();
    }

    private void cycle(InterProcessMutex mutex) throws Exception {
        while (!stopping) {
            mutex.acquire();
            mutex.release();
            cycles.increment();
        }
    }
}
