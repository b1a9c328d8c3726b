import io.github.utipc.Event;
import io.github.utipc.Message;
import io.github.utipc.Node;
import io.github.utipc.PacketSocket;
import io.github.utipc.ServiceAddress;
import io.github.utipc.Topology;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.time.Duration;

/**
 * A server without a host or port number: it binds to a service address, and clients find it wherever it runs. Start it
 * in one terminal and HelloClient in another, in any order, with no arguments.
 */
public final class HelloServer {
    private static final ServiceAddress HELLO = new ServiceAddress(18888, 17);

    public static void main(String[] args) throws IOException {
        try (Node node = Node.start(); PacketSocket socket = node.packetSocket(HELLO)) {
            System.out.println("server: bound to " + HELLO + " on node " + node);
            Message request = socket.receive();
            System.out.println("server: \"" + request.text() + "\" from " + request.source());
            socket.send("Uh ?".getBytes(), request.source());
            if (request.source().node() != node.address()) {
                waitForEndOf(request.source().node(), node);
            }
        }
        System.out.println("server: done");
    }

    /** The reply to another node travels over a link: stay until that node has left, so that the reply arrives. */
    private static void waitForEndOf(int other, Node node) throws IOException {
        try (Topology topology = node.topology()) {
            topology.nodes();
            Event event;
            do {
                event = topology.next(Duration.ofSeconds(10));
            } while (event.change() != Event.Change.NODE_DOWN || event.node() != other);
        } catch (SocketTimeoutException itStays) {
            // The client continues with something else.
        }
    }
}
