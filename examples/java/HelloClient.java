import io.github.utipc.Message;
import io.github.utipc.Node;
import io.github.utipc.PacketSocket;
import io.github.utipc.ServiceAddress;
import java.io.IOException;
import java.time.Duration;

/** Waits for the service of HelloServer, sends it a message, and prints the reply. */
public final class HelloClient {
    private static final ServiceAddress HELLO = new ServiceAddress(18888, 17);

    public static void main(String[] args) throws IOException {
        try (Node node = Node.start(); PacketSocket socket = node.packetSocket()) {
            System.out.println("client: node " + node + " waits for " + HELLO);
            node.waitFor(HELLO, Duration.ofSeconds(30));
            socket.send("Hello World!!!".getBytes(), HELLO);
            Message reply = socket.receive(Duration.ofSeconds(10));
            System.out.println("client: \"" + reply.text() + "\" from " + reply.source());
        }
    }
}
