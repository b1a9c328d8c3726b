//! `utipc demo`: the demo of TIPC's own slides, with a commentary. Two nodes live in this process, as separate as two
//! machines: they communicate only by UDP sockets on the loopback interface. On the kernel's engine they are the
//! kernel's, in two network namespaces.

mod host;
mod market;
mod narrator;
mod watch;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use utipc::{
    Change, Connection, Destination, Engine, Listener, Node, Scope, ServiceAddress, ServiceRange, SocketKind,
};

use host::Host;
use narrator::Narrator;
use watch::Watch;

/// The service type of TIPC's hello-world demo.
const HELLO: u32 = 18888;
const HELLO_WORLD: ServiceAddress = ServiceAddress::new(HELLO, 17);
const STREAM_SERVER: ServiceAddress = ServiceAddress::new(HELLO, 18);
const PACKET_SERVER: ServiceAddress = ServiceAddress::new(HELLO, 19);

/// Limit of every step, far above its normal time, so that the demo does not hang.
const LIMIT: Duration = Duration::from_secs(20);

/// Options of the demo.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of the cluster that the two nodes form [default: one that is rarely used]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=9999))]
    cluster: Option<u32>,
    /// `embedded`, or `kernel` (as root) [default: `kernel` if UTIPC_ENGINE is `kernel`, else `embedded`]
    #[arg(long, value_parser = ["embedded", "kernel"])]
    engine: Option<String>,
}

/// Runs the demo; fails at the first deviation.
pub(crate) fn run(options: &Options) -> Result<()> {
    let named = std::env::var("UTIPC_ENGINE").ok().filter(|name| *name == Engine::Kernel.to_string());
    let engine = options.engine.clone().or(named).map_or(Ok(Engine::Embedded), |name| name.parse())?;
    let cluster = options.cluster.unwrap_or_else(|| 5000 + std::process::id() % 4000);
    let mut out = Narrator::new();
    out.line(if engine == Engine::Kernel {
        "Two TIPC nodes, red and blue, on this machine: the same program on the kernel's own TIPC."
    } else {
        "Two TIPC nodes, red and blue, on this machine. No kernel module, no privileges, no configuration."
    });

    out.chapter("The nodes start");
    let (red, blue) =
        if engine == Engine::Kernel { host::kernel(&out)? } else { host::embedded(&out, cluster)? };
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
    market::run(&mut out, &red, &blue)?;
    farewell(&mut out, &red, blue, &mut watch)?;

    out.end();
    Ok(())
}

fn meet(out: &mut Narrator, red: &Host, blue: &Host) -> Result<Watch> {
    out.chapter("Topology: red subscribes to nodes, links, and services of type 18888");
    let mut watch = Watch::new("red", red.at(Node::topology)?.context("subscribe to red's topology server")?);
    watch.topology.nodes()?;
    watch.topology.links()?;
    watch.topology.services(ServiceRange::new(HELLO, 0, u32::MAX))?;
    let neighbour = blue.address();
    watch.until(out, LIMIT, &[Change::NodeUp(neighbour), Change::LinkUp(neighbour)])?;
    for link in red.at(Node::links)? {
        out.say("red", format_args!("my link is called {}", link.name));
    }
    Ok(watch)
}

fn datagrams(out: &mut Narrator, red: &Host, blue: &Host, watch: &mut Watch) -> Result<()> {
    out.chapter("Hello World by reliable datagram, to a service address");
    out.say("blue", format_args!("server: I bind a socket to {HELLO_WORLD}"));
    let server = blue.at(Node::rdm)??;
    server.bind(HELLO_WORLD, Scope::Cluster)?;
    watch.until(out, LIMIT, &[Change::ServiceUp])?;
    hello(out, ("red", red), ("blue", server))?;
    out.line("The server closes its socket; subscribers learn it at once:");
    watch.until(out, LIMIT, &[Change::ServiceDown])?;

    out.line("The same in the other direction:");
    out.say("red", format_args!("server: I bind a socket to {HELLO_WORLD}"));
    let server = red.at(Node::rdm)??;
    server.bind(HELLO_WORLD, Scope::Cluster)?;
    watch.until(out, LIMIT, &[Change::ServiceUp])?;
    blue.at(|node| node.wait_for_service(HELLO_WORLD, LIMIT))?.context("blue waits for the server on red")?;
    hello(out, ("blue", blue), ("red", server))?;
    watch.until(out, LIMIT, &[Change::ServiceDown])
}

fn hello(out: &mut Narrator, client: (&str, &Host), server: (&str, utipc::Socket)) -> Result<()> {
    let ((client_name, client), (server_name, server)) = (client, server);
    let socket = client.at(Node::rdm)??;
    server.set_receive_timeout(Some(LIMIT));
    socket.set_receive_timeout(Some(LIMIT));
    out.say(client_name, format_args!("client: \"Hello World!!!\" to {HELLO_WORLD}, wherever that is"));
    socket.send_to(b"Hello World!!!", HELLO_WORLD)?;
    let request = server.receive().context("receive the greeting")?;
    ensure!(request.data == b"Hello World!!!", "receive the greeting: its content has changed");
    out.say(server_name, format_args!("server: \"{}\" from socket {}", text(&request.data), request.source));
    server.send_to(b"Uh ?", request.source)?;
    let answer = socket.receive().context("receive the answer")?;
    ensure!(answer.data == b"Uh ?", "receive the answer: its content has changed");
    out.say(client_name, format_args!("client: \"{}\" from socket {}", text(&answer.data), answer.source));
    Ok(())
}

fn stream(out: &mut Narrator, red: &Host, blue: &Host, watch: &mut Watch) -> Result<()> {
    out.chapter("STREAM: a connection set up by its first data");
    let listener = listen(out, blue, SocketKind::Stream, STREAM_SERVER)?;
    watch.until(out, LIMIT, &[Change::ServiceUp])?;
    red.at(|node| node.wait_for_service(STREAM_SERVER, LIMIT))?.context("red waits for the stream server")?;
    out.say(
        "red",
        format_args!("client: \"Hello World\" to {STREAM_SERVER}: request and data in one message"),
    );
    let socket = red.at(Node::stream)??;
    let client = Connection::open_with(socket, STREAM_SERVER, b"Hello World").context("set the stream up")?;
    let server = listener.accept().context("accept the stream")?;
    exchange(out, &client, &server, "Hello World", "Hello yourself")?;
    drop(listener);
    watch.until(out, LIMIT, &[Change::ServiceDown])
}

fn packets(out: &mut Narrator, red: &Host, blue: &Host, watch: &mut Watch) -> Result<()> {
    out.chapter("SEQPACKET: connect and accept");
    let listener = listen(out, blue, SocketKind::SeqPacket, PACKET_SERVER)?;
    watch.until(out, LIMIT, &[Change::ServiceUp])?;
    red.at(|node| node.wait_for_service(PACKET_SERVER, LIMIT))?.context("red waits for the packet server")?;
    let acceptor = std::thread::spawn(move || listener.accept());
    out.say("red", format_args!("client: connect to {PACKET_SERVER}"));
    let client = red
        .at(|node| node.connect(SocketKind::SeqPacket, PACKET_SERVER))?
        .context("connect to the packet server")?;
    let Ok(server) = acceptor.join() else {
        bail!("accept a connection: the thread panicked (please report this)")
    };
    let server = server.context("accept a connection")?;
    client.send(b"one message")?;
    client.send(b"and another")?;
    exchange(out, &client, &server, "one message", "got the first")?;
    let second = server.receive().context("receive the second message")?;
    out.say("blue", format_args!("server: \"{}\": message boundaries are kept", text(&second.data)));
    ensure!(second.data == b"and another", "receive the second message: its content has changed");
    client.shutdown().context("shut the connection down")?;
    let end = server.receive().context("see the end of the connection")?;
    ensure!(end.data.is_empty(), "see the end of the connection: there is more data");
    out.say("blue", format_args!("server: the client has closed the connection"));
    watch.until(out, LIMIT, &[Change::ServiceDown])
}

fn listen(out: &mut Narrator, node: &Host, kind: SocketKind, service: ServiceAddress) -> Result<Listener> {
    let listener =
        node.at(|node| node.listen(kind, service))?.with_context(|| format!("listen on {service}"))?;
    listener.socket().set_receive_timeout(Some(LIMIT));
    out.say("blue", format_args!("server: I listen on {service}"));
    Ok(listener)
}

/// Lets the server receive `request` and answer it, on a connection that already carries the request.
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
    ensure!(got.data == request.as_bytes(), "receive the request: its content has changed");
    if let Some(peer) = server.peer() {
        out.say("blue", format_args!("server: \"{}\" on a connection from {peer}", text(&got.data)));
    }
    server.send(answer.as_bytes())?;
    let got = client.receive().context("receive the answer")?;
    ensure!(got.data == answer.as_bytes(), "receive the answer: its content has changed");
    if let Some(peer) = client.peer() {
        out.say("red", format_args!("client: \"{}\"; I am connected to {peer}", text(&got.data)));
    }
    Ok(())
}

fn remote_view(out: &mut Narrator, red: &Host, blue: &Host) -> Result<()> {
    out.chapter("The other node's view: red asks blue's topology server");
    let own = blue.address();
    let mut watch =
        Watch::new("blue's server", red.at(|node| node.topology_of(own))?.context("subscribe at blue")?);
    watch.topology.nodes()?;
    watch.topology.links()?;
    watch.topology.services(ServiceRange::new(HELLO, 0, u32::MAX))?;
    watch.until(
        out,
        LIMIT,
        &[Change::NodeUp(red.address()), Change::NodeUp(own), Change::LinkUp(red.address())],
    )?;
    out.say(
        "red",
        format_args!("I bind a socket to {HELLO_WORLD} on my node only, then one in the whole cluster"),
    );
    let hidden = red.at(Node::rdm)??;
    hidden.bind(HELLO_WORLD, Scope::Node)?;
    let visible = red.at(Node::rdm)??;
    visible.bind(HELLO_WORLD, Scope::Cluster)?;
    let event = watch.until_service_up(out, LIMIT)?;
    ensure!(
        event.port == visible.port(),
        "watch from blue: a binding of node scope is visible on another node"
    );
    let to_blue = Destination::from(HELLO_WORLD).on(own);
    red.at(Node::rdm)??.send_to(b"is anybody there?", to_blue)?;
    Ok(())
}

fn farewell(out: &mut Narrator, red: &Host, blue: Host, watch: &mut Watch) -> Result<()> {
    out.chapter("Blue leaves the cluster");
    let gone = blue.address();
    let _namespace = blue.leave()?;
    watch.until(out, LIMIT, &[Change::LinkDown(gone), Change::NodeDown(gone)])?;
    ensure!(red.at(Node::peers)?.iter().all(|peer| !peer.up), "check the neighbours: one is still up");
    out.say("red", format_args!("I am alone"));
    Ok(())
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}
