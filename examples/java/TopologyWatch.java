import io.github.utipc.Event;
import io.github.utipc.Node;
import io.github.utipc.Topology;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.time.Duration;

/** Prints events of nodes and links in the cluster: TopologyWatch [SECONDS]. */
public final class TopologyWatch {
    public static void main(String[] args) throws IOException {
        long seconds = args.length > 0 ? Long.parseLong(args[0]) : Integer.MAX_VALUE;
        long end = System.nanoTime() + Duration.ofSeconds(seconds).toNanos();
        try (Node node = Node.start(); Topology topology = node.topology()) {
            System.out.println("the view of node " + node);
            topology.nodes();
            topology.links();
            while (true) {
                Event event = topology.next(Duration.ofNanos(end - System.nanoTime()));
                boolean isLink = event.change() == Event.Change.LINK_UP || event.change() == Event.Change.LINK_DOWN;
                System.out.println((isLink ? "link to node " : "node ") + Integer.toHexString(event.node()) + " is "
                    + (event.change().isUp() ? "up" : "down"));
            }
        } catch (SocketTimeoutException over) {
            // The time is over.
        }
    }
}
