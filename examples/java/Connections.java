import io.github.utipc.Connection;
import io.github.utipc.Listener;
import io.github.utipc.Node;
import io.github.utipc.ServiceAddress;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;

/** Three ways to set up a connection. */
public final class Connections {
    private static final ServiceAddress ECHO = new ServiceAddress(4711, 1);

    public static void main(String[] args) throws Exception {
        // Both ends are on one node for demonstration; they could also be on two nodes.
        try (Node node = Node.start(); Listener listener = node.listen(ECHO)) {
            Thread.startVirtualThread(() -> serve(listener));

            // 1. As with TCP: connect, wait until the server has accepted, then talk.
            try (Connection connection = node.connect(ECHO)) {
                String reply = ask(connection, "first");
                System.out.println("1. by request: connected to " + connection.peer() + ", answer \"" + reply + "\"");
            }

            // 2. By data: the first message is the connection request, which saves a round trip.
            try (Connection connection = node.connectWith(ECHO, "second".getBytes())) {
                System.out.println("2. by data: answer \"" + receive(connection, "second".length()) + "\"");
            }

            // 3. Without waiting: another thread connects.
            Callable<Connection> connect = () -> node.connect(ECHO);
            FutureTask<Connection> connecting = new FutureTask<>(connect);
            Thread.startVirtualThread(connecting);
            System.out.println("3. without waiting: something else is done meanwhile");
            try (Connection connection = connecting.get()) {
                String reply = ask(connection, "third");
                System.out.println("3. without waiting: connected to " + connection.peer() + ", answer \"" + reply + "\"");
            }
        }
    }

    /** Ends when the listener is closed. */
    private static void serve(Listener listener) {
        try {
            while (true) {
                Connection connection = listener.accept();
                Thread.startVirtualThread(() -> echo(connection));
            }
        } catch (IOException closed) {
            // The program ends.
        }
    }

    private static void echo(Connection connection) {
        try (connection) {
            connection.input().transferTo(connection.output());
        } catch (ClosedChannelException programEnds) {
            // The node is closed.
        } catch (IOException lost) {
            System.err.println("echo: " + lost.getMessage());
        }
    }

    private static String ask(Connection connection, String question) throws IOException {
        connection.send(question.getBytes());
        return receive(connection, question.length());
    }

    private static String receive(Connection connection, int size) throws IOException {
        return new String(connection.input().readNBytes(size));
    }
}
