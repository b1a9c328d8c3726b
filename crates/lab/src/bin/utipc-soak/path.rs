//! Two daemons over a path that loses, delays, duplicates and reorders packets, and drops large ones: four kinds of
//! senders at the same time. No message may be lost or change its place, the link stays up, and no send waits long.

use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use utipc::{Connection, Node, Scope, ServiceAddress, ServiceRange, Socket, SocketKind};
use utipc_bench_kit::numbered::{Exact, HEAD, Head, check};
use utipc_netns::{Faults, Namespace, Relay};

use crate::daemon::{Watched, attach, configuration};
use crate::report::verdict;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
/// First service type of the receivers.
const SERVICE: u32 = 9600;
/// Longest wait for a message after the last one was sent, or for a connection.
const LIMIT: Duration = Duration::from_secs(60);

/// A path and its senders.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration, seconds
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Percentage of packets that are lost in each direction
    #[arg(long, default_value_t = 7.0)]
    loss: f64,
    /// Percentage of packets that are delayed, and overtaken by others
    #[arg(long, default_value_t = 30.0)]
    delayed: f64,
    /// Longest of these delays, milliseconds
    #[arg(long, default_value_t = 20)]
    delay: u64,
    /// Percentage of packets that arrive twice
    #[arg(long, default_value_t = 2.0)]
    duplicated: f64,
    /// Delay of every packet, milliseconds
    #[arg(long, default_value_t = 0)]
    latency: u64,
    /// MTU of the interfaces
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Largest IP packet that the path carries
    #[arg(long, default_value_t = 65_535)]
    width: usize,
    /// Seconds after which the path becomes narrow; from the start if absent
    #[arg(long)]
    narrow_after: Option<f64>,
    /// Messages that each sender sends in a second
    #[arg(long, default_value_t = 3000)]
    rate: u32,
    /// Largest message, bytes; each sender uses several sizes
    #[arg(long, default_value_t = 1400)]
    size: usize,
    /// Longest send, milliseconds
    #[arg(long, default_value_t = 1000)]
    longest: u64,
    /// Seed of the path's faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Options {
    fn faults(&self, width: usize) -> Faults {
        Faults {
            loss: self.loss / 100.0,
            duplicated: self.duplicated / 100.0,
            delayed: self.delayed / 100.0,
            delay: Duration::from_millis(self.delay),
            latency: Duration::from_millis(self.latency),
            width,
        }
    }
}

/// How a sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Rdm,
    Multicast,
    Stream,
    SeqPacket,
}

const KINDS: [Kind; 4] = [Kind::Rdm, Kind::Multicast, Kind::Stream, Kind::SeqPacket];

impl Kind {
    fn service(self) -> ServiceAddress {
        ServiceAddress::new(SERVICE + self as u32, 1)
    }

    /// The kind of its connection.
    fn connects(self) -> Option<SocketKind> {
        match self {
            Self::Rdm | Self::Multicast => None,
            Self::Stream => Some(SocketKind::Stream),
            Self::SeqPacket => Some(SocketKind::SeqPacket),
        }
    }
}

/// The result of a sender.
#[derive(Clone, Debug, Serialize)]
struct Done {
    kind: Kind,
    sent: u64,
    received: u64,
    longest_ms: u64,
    /// From the end of sending to the last message.
    late_ms: u64,
}

/// Largest message, bytes.
const SIZE_MAX: usize = 66_000;
/// Kind of the last message of a sender, and of the others.
const LAST: u8 = 1;
const OTHER: u8 = 0;

/// A message of a sender, with one of its sizes.
fn message(sender: Kind, number: u64, most: usize, kind: u8) -> Vec<u8> {
    let sizes = [64, most / 2, most, most / 4];
    let len = if kind == LAST { HEAD } else { sizes[(number % 4) as usize].max(HEAD) };
    Head { flow: sender as u64, number, len, kind }.message()
}

/// Where messages arrive.
enum Receiver {
    Socket(Socket),
    Connection(Connection, SocketKind),
}

impl Receiver {
    fn next(&mut self) -> Result<Vec<u8>> {
        match self {
            Self::Socket(socket) => Ok(socket.receive()?.data.to_vec()),
            Self::Connection(connection, SocketKind::Stream) => {
                let mut data = vec![0; HEAD];
                connection.read_exact(&mut data)?;
                let size = Head::read(&data).map_err(Error::msg)?.len;
                ensure!((HEAD..=SIZE_MAX).contains(&size), "a message of {size} bytes");
                data.resize(size, 0);
                connection.read_exact(&mut data[HEAD..])?;
                Ok(data)
            }
            Self::Connection(connection, _) => Ok(connection.receive()?.data.to_vec()),
        }
    }

    /// Receives all messages of a sender; returns their number, and when the last one arrived.
    fn receive_all(mut self, sender: Kind) -> Result<(u64, Instant)> {
        let (mut exact, mut number) = (Exact::at(sender as u64, 0), 0);
        loop {
            let data = self.next().with_context(|| format!("receive message {number}"))?;
            let head = check(&data).map_err(Error::msg)?;
            exact.see(&head).map_err(Error::msg)?;
            if head.kind == LAST {
                return Ok((number, Instant::now()));
            }
            number += 1;
        }
    }
}

/// Sends at the rate until the time is over; returns the number of messages, and the longest send.
fn send_all(
    options: &Options,
    kind: Kind,
    end: Instant,
    mut send: impl FnMut(&[u8]) -> utipc::Result<()>,
) -> Result<(u64, Duration)> {
    let (begun, mut number, mut longest) = (Instant::now(), 0_u64, Duration::ZERO);
    while Instant::now() < end {
        let due = begun + Duration::from_secs_f64(number as f64 / f64::from(options.rate));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let data = message(kind, number, options.size, OTHER);
        let before = Instant::now();
        send(&data)?;
        longest = longest.max(before.elapsed());
        number += 1;
    }
    send(&message(kind, number, options.size, LAST))?;
    Ok((number, longest))
}

/// Waits until a node knows a service of the other one.
fn wait_for_service(node: &Node, service: ServiceAddress) -> Result<()> {
    let begun = Instant::now();
    while node.lookup(service).is_none() {
        ensure!(begun.elapsed() < LIMIT, "the sender does not learn of the receiver in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// One sender and its receiver, from the first node to the second.
fn transfer(options: &Options, kind: Kind, nodes: [&Node; 2], end: Instant) -> Result<Done> {
    let service = kind.service();
    std::thread::scope(|scope| -> Result<Done> {
        let (receiving, client);
        if let Some(socket) = kind.connects() {
            let listener = nodes[1].listen(socket, service)?;
            receiving = scope.spawn(move || {
                let connection = listener.accept()?;
                connection.socket().set_receive_timeout(Some(LIMIT));
                Receiver::Connection(connection, socket).receive_all(kind)
            });
            wait_for_service(nodes[0], service)?;
            client = Some(nodes[0].connect(socket, service)?);
        } else {
            let socket = nodes[1].rdm()?;
            socket.bind(service, Scope::Cluster)?;
            socket.set_receive_timeout(Some(LIMIT));
            receiving = scope.spawn(move || Receiver::Socket(socket).receive_all(kind));
            wait_for_service(nodes[0], service)?;
            client = None;
        }
        let sender = nodes[0].rdm()?;
        let (sent, longest) = send_all(options, kind, end, |data| match (&client, kind) {
            (Some(client), _) => client.send(data),
            (None, Kind::Multicast) => sender.send_to(data, ServiceRange::from(service)).map(drop),
            (None, _) => sender.send_to(data, service).map(drop),
        })?;
        let ended = Instant::now();
        let (received, last) = receiving.join().map_err(|_| anyhow!("a receiver has failed"))??;
        Ok(Done {
            kind,
            sent,
            received,
            longest_ms: longest.as_millis() as u64,
            late_ms: last.saturating_duration_since(ended).as_millis() as u64,
        })
    })
    .with_context(|| format!("{kind:?}"))
}

/// Starts the daemon of a host.
fn daemon(host: &Namespace, number: usize, program: &Path) -> Result<Watched> {
    let name = format!("-path-{number}");
    Watched::start_by(host.command(program), &name, &configuration(number, &ADDRESSES, false))
}

/// Runs all senders; false if something is wrong.
pub(crate) fn run(options: &Options, program: &Path, as_json: bool) -> Result<bool> {
    ensure!(options.seconds > 0.0 && options.rate > 0, "nothing to do (give seconds and a rate)");
    ensure!((HEAD..=SIZE_MAX).contains(&options.size), "a message has {HEAD} to {SIZE_MAX} bytes");
    ensure!(rustix::process::geteuid().is_root(), "only root makes network namespaces with TUN devices");
    let wide = options.faults(usize::from(u16::MAX));
    let narrow = options.faults(options.width);
    let begin = if options.narrow_after.is_some() { wide } else { narrow };
    let (relay, hosts) = Relay::join(ADDRESSES, options.mtu, begin, options.seed)?;
    let mut daemons = [daemon(&hosts[0], 0, program)?, daemon(&hosts[1], 1, program)?];
    daemons.iter_mut().try_for_each(Watched::wait_for_link)?;
    let nodes = [attach(daemons[0].socket())?, attach(daemons[1].socket())?];
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    let done = std::thread::scope(|scope| -> Result<Vec<Done>> {
        let nodes = [&nodes[0], &nodes[1]];
        let all = KINDS.map(|kind| scope.spawn(move || transfer(options, kind, nodes, end)));
        if let Some(seconds) = options.narrow_after {
            std::thread::sleep(Duration::from_secs_f64(seconds));
            relay.set(narrow);
        }
        all.into_iter().map(|one| one.join().map_err(|_| anyhow!("a sender has failed"))?).collect()
    })?;
    let mut wrong = Vec::new();
    for Done { kind, sent, received, longest_ms, .. } in &done {
        if sent != received {
            wrong.push(format!("{kind:?}: {received} of {sent} messages arrived"));
        }
        if *longest_ms > options.longest {
            wrong.push(format!("{kind:?}: a send took {longest_ms} ms, the limit is {} ms", options.longest));
        }
    }
    let sizes: Vec<u16> = nodes.iter().flat_map(|node| node.links()).map(|link| link.mtu).collect();
    for daemon in &mut daemons {
        wrong.extend(daemon.traffic()?.wrong_links(1));
    }
    drop(nodes);
    daemons.into_iter().try_for_each(|daemon| daemon.end(&mut wrong))?;
    let passed = relay.passed();
    let line = |Done { kind, sent, received, longest_ms, late_ms }: &Done| {
        format!(
            "{kind:?}: {received} of {sent} messages, longest send {longest_ms} ms, last {late_ms} ms late"
        )
    };
    let mut lines: Vec<String> = done.iter().map(line).collect();
    lines.push(format!("packet sizes of the links {sizes:?}; {passed:?}"));
    let packets = json!({ "sent": passed.sent, "lost": passed.lost, "too_large": passed.too_large });
    let facts = json!({ "senders": done, "packet_sizes": sizes, "packets": packets });
    Ok(verdict("path", as_json, &wrong, facts, &lines))
}
