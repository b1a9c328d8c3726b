// SPDX-License-Identifier: Apache-2.0 OR MIT
package io.github.utipc;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.Arrays;

/** Round trips of 64 bytes between two threads, over utipc and Java's own TCP in turn: `cargo xtask java --bench`. */
final class RoundTrip {
    private static final int SIZE = 64;
    private static final int TRIPS = 20_000;
    private static final int ROUNDS = 5;

    private RoundTrip() {
    }

    /** A connection's two streams. */
    private record Ends(InputStream input, OutputStream output) {
    }

    public static void main(String[] args) throws Exception {
        for (boolean virtual : new boolean[] {false, true}) {
            double[] tcp = new double[ROUNDS];
            double[] tipc = new double[ROUNDS];
            for (int round = 0; round < ROUNDS; round++) {
                tcp[round] = tcp(virtual);
                tipc[round] = tipc(virtual);
            }
            double own = median(tcp);
            double ours = median(tipc);
            System.out.printf("%s threads: TCP %.1f us, utipc %.1f us, %.2f x (medians of %d rounds of %d trips)%n",
                virtual ? "virtual" : "platform", own, ours, own / ours, ROUNDS, TRIPS);
        }
    }

    private static double median(double[] values) {
        Arrays.sort(values);
        return values[values.length / 2];
    }

    private static double tcp(boolean virtual) throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                java.net.Socket client = new java.net.Socket(listener.getInetAddress(), listener.getLocalPort());
                java.net.Socket server = listener.accept()) {
            client.setTcpNoDelay(true);
            server.setTcpNoDelay(true);
            return trips(virtual, new Ends(client.getInputStream(), client.getOutputStream()),
                new Ends(server.getInputStream(), server.getOutputStream()));
        }
    }

    private static double tipc(boolean virtual) throws Exception {
        ServiceAddress service = Rig.service();
        try (Node node = Node.start(); Listener listener = node.listen(service);
                Rig.Pair pair = Rig.connected(listener, () -> node.connect(service))) {
            pair.client().setNoDelay(true);
            pair.server().setNoDelay(true);
            return trips(virtual, new Ends(pair.client().input(), pair.client().output()),
                new Ends(pair.server().input(), pair.server().output()));
        }
    }

    /** The mean time of a round trip, us. */
    private static double trips(boolean virtual, Ends client, Ends server) throws Exception {
        Rig.Task echo = new Rig.Task(virtual, () -> serve(server));
        double[] mean = new double[1];
        Rig.Task asks = new Rig.Task(virtual, () -> {
            ask(client, TRIPS / 4);
            long begun = System.nanoTime();
            ask(client, TRIPS);
            mean[0] = (System.nanoTime() - begun) / 1e3 / TRIPS;
        });
        for (Rig.Task task : new Rig.Task[] {asks, echo}) {
            Exception failure = task.end();
            if (failure != null) {
                throw failure;
            }
        }
        return mean[0];
    }

    private static void serve(Ends ends) throws IOException {
        byte[] data = new byte[SIZE];
        for (int trip = 0; trip < TRIPS + TRIPS / 4; trip++) {
            ends.input().readNBytes(data, 0, SIZE);
            ends.output().write(data);
        }
    }

    private static void ask(Ends ends, int trips) throws IOException {
        byte[] data = new byte[SIZE];
        for (int trip = 0; trip < trips; trip++) {
            ends.output().write(data);
            if (ends.input().readNBytes(data, 0, SIZE) != SIZE) {
                throw new IOException("the connection ended");
            }
        }
    }
}
