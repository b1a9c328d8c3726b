import io.github.utipc.Message;
import io.github.utipc.Node;
import io.github.utipc.PacketSocket;
import io.github.utipc.ServiceAddress;
import io.github.utipc.ServiceRange;
import java.io.IOException;

/** Sends one message to all sockets bound in a range of instances. */
public final class Multicast {
    private static final int WEATHER = 1000;

    public static void main(String[] args) throws IOException {
        try (Node node = Node.start()) {
            int[] instances = {10, 20, 30};
            PacketSocket[] stations = new PacketSocket[instances.length];
            for (int at = 0; at < instances.length; at++) {
                stations[at] = node.packetSocket(new ServiceAddress(WEATHER, instances[at]));
            }
            // A socket may have many bindings, also of whole ranges.
            PacketSocket archive = node.packetSocket(new ServiceRange(WEATHER, 0, -1));
            PacketSocket sender = node.packetSocket();
            sender.send("rain in the south".getBytes(), new ServiceRange(WEATHER, 0, 25));
            sender.send("sun everywhere".getBytes(), new ServiceRange(WEATHER, 0, 99));

            for (int at = 0; at < instances.length; at++) {
                int reports = instances[at] <= 25 ? 2 : 1;
                for (int report = 0; report < reports; report++) {
                    System.out.println("station " + instances[at] + ": " + stations[at].receive().text());
                }
            }
            for (int report = 0; report < 2; report++) {
                Message message = archive.receive();
                System.out.println("archive: " + message.text() + " (sent to " + message.destination() + ")");
            }
        }
    }
}
