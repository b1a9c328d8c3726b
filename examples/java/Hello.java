import io.github.utipc.Node;
import io.github.utipc.PacketSocket;
import io.github.utipc.ServiceAddress;

/** Sends a message to a service address. */
public final class Hello {
    public static void main(String[] args) throws Exception {
        ServiceAddress hello = new ServiceAddress(18888, 1);
        try (Node node = Node.start(); PacketSocket server = node.packetSocket(hello);
                PacketSocket client = node.packetSocket()) {
            client.send("Hello World".getBytes(), hello);
            System.out.println(server.receive().text() + " at " + hello);
        }
    }
}
