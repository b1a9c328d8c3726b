import io.github.utipc.Connection;
import io.github.utipc.Listener;
import io.github.utipc.Node;
import io.github.utipc.ServiceAddress;
import io.github.utipc.Topology;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;

/** A server and its clients as virtual threads, none of which occupies a thread of the system while it waits. */
public final class AsyncEcho {
    private static final ServiceAddress ECHO = new ServiceAddress(4711, 2);

    public static void main(String[] args) throws Exception {
        try (Node node = Node.start(); Topology topology = node.topology()) {
            topology.services(ECHO);
            Listener listener = node.listen(ECHO);
            Thread.startVirtualThread(() -> serve(listener));
            topology.next();
            System.out.println("the service is up");
            for (int number = 0; number < 3; number++) {
                String question = "client " + number;
                Thread client = Thread.startVirtualThread(() -> ask(node, question));
                client.join();
            }
            // This withdraws the service.
            listener.close();
            topology.next();
            System.out.println("the service is gone");
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

    private static void ask(Node node, String question) {
        try (Connection connection = node.connect(ECHO)) {
            connection.send(question.getBytes());
            System.out.println(new String(connection.input().readNBytes(question.length())));
        } catch (IOException failure) {
            System.err.println("client: " + failure.getMessage());
        }
    }
}
