//! Wireshark's dissector reads the traffic of two nodes and finds nothing malformed except what it also finds malformed
//! in traffic of Linux kernels. Prints a message and skips if tshark is not installed.

mod common;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::lan::Lan;
use common::pcap;
use utipc_core::socket::{OptionValue, SocketOption};
use utipc_core::{Destination, NodeAddr, PortId, RecvOptions, Scope, ServiceRange, SocketKind, View};

/// User and type of a message.
type Kind = (u8, u8);

/// Result of tshark for a capture.
struct Verdict {
    /// Numbers of all frames that it recognised as TIPC, from 1.
    tipc: Vec<usize>,
    /// Numbers of those that it found malformed.
    malformed: Vec<usize>,
}

/// `None` if tshark is not installed.
fn tshark(capture: &Path) -> Option<Verdict> {
    let fields = ["-n", "-T", "fields", "-e", "frame.number", "-e", "tipc.usr", "-e", "_ws.malformed"];
    // Default preferences, not those of the user.
    let home = env!("CARGO_TARGET_TMPDIR");
    let output = Command::new("tshark")
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home)
        .env("WIRESHARK_CONFIG_DIR", home)
        .arg("-r")
        .arg(capture)
        .args(fields)
        .output();
    let output = match output {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            // Not println: the message must be visible when the test passes.
            let _ = writeln!(std::io::stderr(), "skipped: tshark is not installed (apt-get install tshark)");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut verdict = Verdict { tipc: Vec::new(), malformed: Vec::new() };
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut fields = line.split('\t');
        let number = fields.next().unwrap().parse().unwrap();
        if fields.next().is_some_and(|user| !user.is_empty()) {
            verdict.tipc.push(number);
        }
        if fields.next().is_some_and(|mark| !mark.is_empty()) {
            verdict.malformed.push(number);
        }
    }
    Some(verdict)
}

fn write(name: &str, frames: &[(usize, Vec<u8>)]) -> PathBuf {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for (from, bytes) in frames {
        let mut frame = vec![2, 0, 0, 0, 0, 1 - *from as u8, 2, 0, 0, 0, 0, *from as u8, 0x88, 0xca];
        frame.extend_from_slice(bytes);
        let len = (frame.len() as u32).to_le_bytes();
        file.extend_from_slice(&[[0; 8].as_slice(), &len, &len, &frame].concat());
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dissector-{name}.pcap"));
    std::fs::write(&path, file).unwrap();
    path
}

fn kind(frame: &[u8]) -> Kind {
    let view = View::parse(frame).unwrap();
    (view.user().into(), view.kind())
}

/// Kinds of messages that tshark finds malformed in a capture of kernels.
fn malformed_of_kernels(name: &str) -> Option<BTreeSet<Kind>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/{name}.pcap"));
    let verdict = tshark(&path)?;
    let frames = pcap::read(name).unwrap();
    let find = |number: &usize| kind(&frames.iter().find(|f| f.number == *number).unwrap().bytes);
    Some(verdict.malformed.iter().map(find).collect())
}

fn open(lan: &mut Lan, on: usize, kind: SocketKind) -> u32 {
    lan.nodes[on].open(lan.now, kind).unwrap()
}

fn serve(lan: &mut Lan, on: usize, kind: SocketKind, service: u32) -> u32 {
    let port = open(lan, on, kind);
    lan.nodes[on].bind(lan.now, port, ServiceRange::new(service, 1, 9), Scope::Cluster).unwrap();
    if matches!(kind, SocketKind::SeqPacket | SocketKind::Stream) {
        lan.nodes[on].listen(lan.now, port).unwrap();
    }
    lan.run(100);
    port
}

fn read_all(lan: &mut Lan, on: usize, port: u32) {
    let mut buffer = vec![0; 66_000];
    while lan.nodes[on].recv(lan.now, port, &mut buffer, RecvOptions::default()).is_ok() {}
}

/// Traffic that uses everything two nodes can exchange.
fn traffic() -> Vec<(usize, Vec<u8>)> {
    let mut lan = Lan::apart();
    lan.run(3000);
    datagrams(&mut lan);
    connections(&mut lan, SocketKind::SeqPacket, 300);
    connections(&mut lan, SocketKind::Stream, 400);
    topology(&mut lan);
    let id = lan.nodes[1].bearers()[0].id;
    lan.nodes[1].disable_bearer(lan.now, id);
    lan.run(5000);
    lan.sent.into_iter().map(|(from, _, bytes)| (from, bytes)).collect()
}

fn datagrams(lan: &mut Lan) {
    let server = serve(lan, 0, SocketKind::Rdm, 200);
    let client = open(lan, 1, SocketKind::Rdm);
    lan.nodes[1].set_option(lan.now, client, SocketOption::DestDroppable, OptionValue::Number(0)).unwrap();
    let port = Destination::Port(PortId { port: server, node: lan.nodes[0].own_node() });
    let nobody = Destination::Port(PortId { port: 99, node: lan.nodes[0].own_node() });
    let all = Destination::Range(ServiceRange::new(200, 1, 9));
    for to in [Destination::service(200, 5), port, nobody, all] {
        for size in [1, 1000, 1432, 3000, 66_000] {
            lan.nodes[1].send(lan.now, client, &vec![5; size], Some(to)).unwrap();
            lan.run(50);
            read_all(lan, 0, server);
        }
    }
    // A burst that fills the window, so that small messages are bundled.
    for _ in 0..150 {
        let sent = lan.nodes[1].send(lan.now, client, &[6; 40], Some(Destination::service(200, 5)));
        if sent.is_err() {
            break;
        }
    }
    lan.run(500);
    lan.nodes[0].close(lan.now, server);
    lan.run(500);
}

fn connections(lan: &mut Lan, kind: SocketKind, service: u32) {
    let listener = serve(lan, 0, kind, service);
    let client = open(lan, 1, kind);
    lan.nodes[1].connect(lan.now, client, Some(Destination::service(service, 1))).unwrap();
    lan.run(50);
    let (server, _) = lan.nodes[0].accept(lan.now, listener).unwrap();
    lan.run(50);
    for size in [3, 3, 3, 3, 3, 3, 1424, 3000, 20_000, 66_000] {
        lan.nodes[1].send(lan.now, client, &vec![7; size], None).unwrap();
        lan.run(20);
        read_all(lan, 0, server);
        lan.nodes[0].send(lan.now, server, b"answer", None).unwrap();
        lan.run(20);
    }
    lan.nodes[0].shutdown(lan.now, server).unwrap();
    lan.run(500);
    for (on, port) in [(0, server), (0, listener), (1, client)] {
        lan.nodes[on].close(lan.now, port);
    }
    lan.run(500);
}

fn topology(lan: &mut Lan) {
    use utipc_core::topology::{ByteOrder, FOREVER, Filter, Subscription};
    let client = open(lan, 1, SocketKind::SeqPacket);
    let domain: NodeAddr = lan.nodes[0].own_node();
    let server = Destination::Service { addr: utipc_core::ServiceAddr::new(1, 1), domain };
    lan.nodes[1].connect(lan.now, client, Some(server)).unwrap();
    lan.run(100);
    let wish = Subscription {
        range: ServiceRange::new(500, 0, 100),
        timeout_ms: FOREVER,
        filter: Filter::PORTS,
        handle: [1; 8],
    };
    lan.nodes[1].send(lan.now, client, &wish.to_bytes(ByteOrder::NATIVE), None).unwrap();
    lan.run(100);
    let bound = serve(lan, 0, SocketKind::Rdm, 500);
    lan.nodes[0].close(lan.now, bound);
    lan.run(100);
    assert!(lan.nodes[1].endpoint(client).is_some_and(|e| e.readiness().readable));
    lan.nodes[1].close(lan.now, client);
    lan.run(100);
}

#[test]
fn wireshark_finds_nothing_malformed_except_as_with_kernels() {
    let frames = traffic();
    let kinds: BTreeSet<Kind> = frames.iter().map(|(_, bytes)| kind(bytes)).collect();
    for wanted in [
        (13, 0),
        (13, 1),
        (7, 0),
        (7, 1),
        (7, 2),
        (5, 0),
        (11, 0),
        (11, 1),
        (12, 0),
        (12, 1),
        (12, 2),
        (6, 0),
        (8, 2),
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
    ] {
        assert!(kinds.contains(&wanted), "no {wanted:?} in the traffic: {kinds:?}");
    }
    let Some(verdict) = tshark(&write("sent", &frames)) else { return };
    assert_eq!(verdict.tipc.len(), frames.len(), "tshark recognises every frame as TIPC");
    let mut excused = BTreeSet::new();
    for name in ["rdm-fragments", "mcast", "seqpacket", "stream"] {
        excused.extend(malformed_of_kernels(name).unwrap());
    }
    for number in verdict.malformed {
        let (_, bytes) = &frames[number - 1];
        let line = utipc_core::wire::Dump(bytes);
        assert!(excused.contains(&kind(bytes)), "frame {number} is malformed for tshark: {line}");
    }
}

#[test]
fn wireshark_finds_a_damaged_packet_malformed() {
    let mut lan = Lan::apart();
    lan.run(1000);
    let (from, _, bytes) = lan.sent.iter().find(|(_, _, bytes)| kind(bytes).0 == 13).unwrap().clone();
    let damaged = bytes[..40].to_vec();
    let Some(verdict) = tshark(&write("damaged", &[(from, bytes), (from, damaged)])) else { return };
    assert_eq!(verdict.malformed, [2]);
}
