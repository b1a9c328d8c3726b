import static io.github.utipc.Group.Option.EVENTS;

import io.github.utipc.Evicted;
import io.github.utipc.GroupIncoming;
import io.github.utipc.GroupMessage;
import io.github.utipc.Joined;
import io.github.utipc.Left;
import io.github.utipc.Member;
import io.github.utipc.Node;
import java.io.IOException;

/** A communication group: a coordinator, and workers that it knows by their membership. */
public final class Group {
    private static final int JOBS = 4300;
    private static final int COORDINATOR = 1;
    private static final int WORKER = 2;

    public static void main(String[] args) throws IOException {
        try (Node node = Node.start(); var coordinator = node.join(JOBS, COORDINATOR, EVENTS);
                var first = node.join(JOBS, WORKER); var second = node.join(JOBS, WORKER)) {
            report(coordinator.receive());
            report(coordinator.receive());

            // To all; then to one of the workers each, in turn.
            coordinator.broadcast("start".getBytes());
            coordinator.anycast("a task".getBytes(), WORKER);
            coordinator.anycast("a task".getBytes(), WORKER);
            for (int message = 0; message < 2; message++) {
                System.out.println("worker 1: " + text(first.receive()));
            }
            for (int message = 0; message < 2; message++) {
                System.out.println("worker 2: " + text(second.receive()));
            }

            // To one member.
            first.send("done".getBytes(), coordinator.member());
            report(coordinator.receive());
            first.close();
            report(coordinator.receive());
        }
    }

    private static void report(GroupIncoming incoming) {
        String what = switch (incoming) {
            case Joined(Member member) -> instance(member) + " has joined";
            case Left(Member member) -> instance(member) + " has left";
            case Evicted(Member member) -> instance(member) + " was evicted";
            case GroupMessage message -> message.text() + " from " + instance(message.member());
        };
        System.out.println("coordinator: " + what);
    }

    private static String instance(Member member) {
        return "instance " + Integer.toUnsignedString(member.instance());
    }

    /** Without events, all that a member receives is messages. */
    private static String text(GroupIncoming incoming) {
        return ((GroupMessage) incoming).text();
    }
}
