//! `utipc demo`: the demo of TIPC's own slides, told as a story. Two nodes live in this process, as separate as two
//! machines: all that they know of each other has come through UDP sockets on the loopback interface.

mod narrator;
mod watch;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use utipc::{
    Change, Connection, Destination, Listener, Node, Scope, ServiceAddress, ServiceRange, SocketKind,
};

use narrator::Narrator;
use watch::Watch;

/// The service type of TIPC's hello-world demo.
const HELLO: u32 = 18888;
const HELLO_WORLD: ServiceAddress = ServiceAddress::new(HELLO, 17);
const STREAM_SERVER: ServiceAddress = ServiceAddress::new(HELLO, 18);
const PACKET_SERVER: ServiceAddress = ServiceAddress::new(HELLO, 19);

/// Far beyond what anything here takes: a machine may be busy, the demo must not hang.
const LIMIT: Duration = Duration::from_secs(20);

/// Options of the demo.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of the cluster that the two nodes form; by default one that other programs hardly use.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=9999))]
    cluster: Option<u32>,
}

/// Tells the story; fails at the first thing that is not as it should be.
pub(crate) fn run(options: &Options) -> Result<()> {
    let cluster = options.cluster.unwrap_or_else(|| 5000 + std::process::id() % 4000);
    let mut out = Narrator::new();
    out.line(
        "Two TIPC nodes, red and blue, on this machine. No kernel module, no privileges, no configuration.",
    );

    let (red, blue) = start(&mut out, cluster)?;
    let mut watch = meet(&mut out, &red, &blue)?;
    datagrams(&mut out, &red, &blue, &mut watch)?;
    stream(&mut out, &red, &blue, &mut watch)?;
    packets(&mut out, &red, &blue, &mut watch)?;
    remote_view(&mut out, &red, &blue)?;
    watch.until(
        &out,
        LIMIT,
        &[Change::ServiceUp, Change::ServiceUp, Change::ServiceDown, Change::ServiceDown],
    )?;
    farewell(&mut out, &red, blue, &mut watch)?;

    out.end();
    Ok(())
}

fn start(out: &mut Narrator, cluster: u32) -> Result<(Node, Node)> {
    out.chapter("The nodes start");
    out.line(
        "Each takes an address of 127.0.0.0/8, tries its node address for a second in case another node",
    );
    out.line("has it, and looks for neighbours.");
    let begin = |name: &'static str| {
        std::thread::spawn(move || {
            let identity = format!("{name}-{:x}", std::process::id());
            Node::builder().identity(&identity).label(name).cluster(cluster).start()
        })
    };
    let (red, blue) = (begin("red"), begin("blue"));
    let end = |name: &str, thread: std::thread::JoinHandle<utipc::Result<Node>>| match thread.join() {
        Ok(node) => node.with_context(|| format!("start node {name}")),
        Err(_) => bail!("start node {name}: its thread panicked (please report this)"),
    };
    let (red, blue) = (end("red", red)?, end("blue", blue)?);
    out.say("red", format_args!("I am node {} of cluster {cluster}", red.address()));
    out.say("blue", format_args!("I am node {} of cluster {cluster}", blue.address()));
    Ok((red, blue))
}

fn meet(out: &mut Narrator, red: &Node, blue: &Node) -> Result<Watch> {
    out.chapter("Topology: red subscribes to nodes, links, and services of type 18888");
    let mut watch = Watch::new("red", red.topology().context("subscribe to red's topology server")?);
    watch.topology.nodes()?;
    watch.topology.links()?;
    watch.topology.services(ServiceRange::new(HELLO, 0, u32::MAX))?;
    let neighbour = blue.address();
    watch.until(out, LIMIT, &[Change::NodeUp(neighbour), Change::LinkUp(neighbour)])?;
    for link in red.links() {
        out.say("red", format_args!("my link is called {}", link.name));
    }
    Ok(watch)
}

fn datagrams(out: &mut Narrator, red: &Node, blue: &Node, watch: &mut Watch) -> Result<()> {
    out.chapter("Hello World by reliable datagram, to a service address");
    out.say("blue", format_args!("server: I bind a socket to {HELLO_WORLD}"));
    let server = blue.rdm()?;
    server.bind(HELLO_WORLD, Scope::Cluster)?;
    watch.until(out, LIMIT, &[Change::ServiceUp])?;
    hello(out, ("red", red), ("blue", server))?;
    out.line("The server closes; who watches knows at once:");
    watch.until(out, LIMIT, &[Change::ServiceDown])?;

    out.line("And the other way round:");
    out.say("red", format_args!("server: I bind a socket to {HELLO_WORLD}"));
    let server = red.rdm()?;
    server.bind(HELLO_WORLD, Scope::Cluster)?;
    watch.until(out, LIMIT, &[Change::ServiceUp])?;
    blue.wait_for_service(HELLO_WORLD, LIMIT).context("blue waits for the server on red")?;
    hello(out, ("blue", blue), ("red", server))?;
    watch.until(out, LIMIT, &[Change::ServiceDown])
}

fn hello(out: &mut Narrator, client: (&str, &Node), server: (&str, utipc::Socket)) -> Result<()> {
    let ((client_name, client), (server_name, server)) = (client, server);
    let socket = client.rdm()?;
    server.set_receive_timeout(Some(LIMIT));
    socket.set_receive_timeout(Some(LIMIT));
    out.say(client_name, format_args!("client: \"Hello World!!!\" to {HELLO_WORLD}, wherever that is"));
    socket.send_to(b"Hello World!!!", HELLO_WORLD)?;
    let request = server.receive().context("receive the greeting")?;
    ensure!(request.data == b"Hello World!!!", "receive the greeting: it has changed on its way");
    out.say(server_name, format_args!("server: \"{}\" from socket {}", text(&request.data), request.source));
    server.send_to(b"Uh ?", request.source)?;
    let answer = socket.receive().context("receive the answer")?;
    ensure!(answer.data == b"Uh ?", "receive the answer: it has changed on its way");
    out.say(client_name, format_args!("client: \"{}\" from socket {}", text(&answer.data), answer.source));
    Ok(())
}

fn stream(out: &mut Narrator, red: &Node, blue: &Node, watch: &mut Watch) -> Result<()> {
    out.chapter("STREAM: a connection set up by its first data");
    let listener = listen(out, blue, SocketKind::Stream, STREAM_SERVER)?;
    watch.until(out, LIMIT, &[Change::ServiceUp])?;
    red.wait_for_service(STREAM_SERVER, LIMIT).context("red waits for the stream server")?;
    out.say(
        "red",
        format_args!("client: \"Hello World\" to {STREAM_SERVER}: request and data in one message"),
    );
    let client =
        Connection::open_with(red.stream()?, STREAM_SERVER, b"Hello World").context("set the stream up")?;
    let server = listener.accept().context("accept the stream")?;
    exchange(out, &client, &server, "Hello World", "Hello yourself")?;
    drop(listener);
    watch.until(out, LIMIT, &[Change::ServiceDown])
}

fn packets(out: &mut Narrator, red: &Node, blue: &Node, watch: &mut Watch) -> Result<()> {
    out.chapter("SEQPACKET: connect and accept");
    let listener = listen(out, blue, SocketKind::SeqPacket, PACKET_SERVER)?;
    watch.until(out, LIMIT, &[Change::ServiceUp])?;
    red.wait_for_service(PACKET_SERVER, LIMIT).context("red waits for the packet server")?;
    let acceptor = std::thread::spawn(move || listener.accept());
    out.say("red", format_args!("client: connect to {PACKET_SERVER}"));
    let client = red.connect(SocketKind::SeqPacket, PACKET_SERVER).context("connect to the packet server")?;
    let Ok(server) = acceptor.join() else {
        bail!("accept a connection: the thread panicked (please report this)")
    };
    let server = server.context("accept a connection")?;
    client.send(b"one message")?;
    client.send(b"and another")?;
    exchange(out, &client, &server, "one message", "got the first")?;
    let second = server.receive().context("receive the second message")?;
    out.say("blue", format_args!("server: \"{}\": messages keep their bounds", text(&second.data)));
    ensure!(second.data == b"and another", "receive the second message: it has changed on its way");
    client.shutdown().context("shut the connection down")?;
    let end = server.receive().context("see the end of the connection")?;
    ensure!(end.data.is_empty(), "see the end of the connection: there is more data");
    out.say("blue", format_args!("server: the client has hung up"));
    watch.until(out, LIMIT, &[Change::ServiceDown])
}

fn listen(out: &mut Narrator, node: &Node, kind: SocketKind, service: ServiceAddress) -> Result<Listener> {
    let listener = node.listen(kind, service).with_context(|| format!("listen on {service}"))?;
    listener.socket().set_receive_timeout(Some(LIMIT));
    out.say("blue", format_args!("server: I listen on {service}"));
    Ok(listener)
}

/// The server gets `request` and answers; on a connection whose request is on its way.
fn exchange(
    out: &mut Narrator,
    client: &Connection,
    server: &Connection,
    request: &str,
    answer: &str,
) -> Result<()> {
    for end in [client, server] {
        end.socket().set_receive_timeout(Some(LIMIT));
    }
    let got = server.receive().context("receive the request")?;
    ensure!(got.data == request.as_bytes(), "receive the request: it has changed on its way");
    if let Some(peer) = server.peer() {
        out.say("blue", format_args!("server: \"{}\" on a connection from {peer}", text(&got.data)));
    }
    server.send(answer.as_bytes())?;
    let got = client.receive().context("receive the answer")?;
    ensure!(got.data == answer.as_bytes(), "receive the answer: it has changed on its way");
    if let Some(peer) = client.peer() {
        out.say("red", format_args!("client: \"{}\"; I am connected to {peer}", text(&got.data)));
    }
    Ok(())
}

fn remote_view(out: &mut Narrator, red: &Node, blue: &Node) -> Result<()> {
    out.chapter("The other node's view: red asks blue's topology server");
    let mut watch =
        Watch::new("blue's server", red.topology_of(blue.address()).context("subscribe at blue")?);
    watch.topology.nodes()?;
    watch.topology.links()?;
    watch.topology.services(ServiceRange::new(HELLO, 0, u32::MAX))?;
    let (red, own) = (red, blue.address());
    watch.until(
        out,
        LIMIT,
        &[Change::NodeUp(red.address()), Change::NodeUp(own), Change::LinkUp(red.address())],
    )?;
    out.say(
        "red",
        format_args!("I bind a socket to {HELLO_WORLD} on my node only, then one in the whole cluster"),
    );
    let hidden = red.rdm()?;
    hidden.bind(HELLO_WORLD, Scope::Node)?;
    let visible = red.rdm()?;
    visible.bind(HELLO_WORLD, Scope::Cluster)?;
    let event = watch.until_service_up(out, LIMIT)?;
    ensure!(event.port == visible.port(), "watch from blue: a binding of node scope has left its node");
    let to_blue = Destination::from(HELLO_WORLD).on(own);
    red.rdm()?.send_to(b"is anybody there?", to_blue)?;
    Ok(())
}

fn farewell(out: &mut Narrator, red: &Node, blue: Node, watch: &mut Watch) -> Result<()> {
    out.chapter("Blue leaves the cluster");
    let gone = blue.address();
    drop(blue);
    watch.until(out, LIMIT, &[Change::LinkDown(gone), Change::NodeDown(gone)])?;
    ensure!(red.peers().iter().all(|peer| !peer.up), "look for neighbours: one is still up");
    out.say("red", format_args!("I am alone"));
    Ok(())
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}
