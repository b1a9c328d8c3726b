import io.github.utipc.Event;
import io.github.utipc.Node;
import io.github.utipc.PacketSocket;
import io.github.utipc.ServiceAddress;
import io.github.utipc.ServiceRange;
import io.github.utipc.Topology;
import java.io.IOException;
import java.time.Duration;

/** Watches the bindings of a service, as this node or another one sees them: ServiceWatch [NODE], in hexadecimal. */
public final class ServiceWatch {
    private static final ServiceRange WATCHED = new ServiceRange(2222, 0, 99);
    private static final Duration LIMIT = Duration.ofSeconds(30);

    public static void main(String[] args) throws IOException {
        try (Node node = Node.start()) {
            int server = args.length > 0 ? Integer.parseUnsignedInt(args[0], 16) : node.address();
            if (server != node.address()) {
                waitForNode(node, server);
            }
            // The topology server of another node is used like that of this node.
            try (Topology topology = node.topology(server)) {
                watch(node, server, topology);
            }
        }
        System.out.println("done");
    }

    private static void watch(Node node, int server, Topology topology) throws IOException {
        System.out.println("watching " + WATCHED + " as node " + Integer.toHexString(server) + " sees it");
        topology.services(WATCHED);
        PacketSocket socket = node.packetSocket(new ServiceAddress(WATCHED.type(), 5));
        Event event;
        do {
            event = topology.next(LIMIT);
            ServiceAddress service = new ServiceAddress(event.service().type(), event.service().lower());
            String state = event.change().isUp() ? "up" : "down";
            System.out.println("service " + service + " is " + state + " at " + event.port());
            // Closing the socket withdraws its bindings.
            socket.close();
        } while (event.change().isUp());
    }

    /** Waits for a node: a program that has just started does not know its peers yet. */
    private static void waitForNode(Node node, int wanted) throws IOException {
        try (Topology topology = node.topology()) {
            topology.nodes();
            Event event;
            do {
                event = topology.next(LIMIT);
            } while (event.change() != Event.Change.NODE_UP || event.node() != wanted);
        }
    }
}
