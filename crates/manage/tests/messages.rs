//! Requests and replies round-trip; malformed input is harmless.

use utipc_manage::capture::CaptureRequest;
use utipc_manage::{
    Bearer, Connection, Contact, Domain, Down, Entry, Errno, Family, FamilyRequest, Group, GroupMember,
    Header, KeyChange, KeyState, Link, Media, Messages, Monitor, MonitorPeer, Net, Node, Path, Process,
    Properties, Publication, Quota, REKEY_NOW, Refusal, Reply, ReplyWriter, Request, ResourceUse, Secret,
    Socket, Stats, Udp, Wide, family, flag, replies,
};

const HEADER: Header =
    Header { family: 30, flags: 0, sequence: 77, port: 4242, command: 0, version: family::EXTENDED };

fn udp() -> Udp {
    Udp {
        local: "10.0.0.1:6118".parse().unwrap(),
        remote: "[ff02::4711]:6118".parse().unwrap(),
        replicast: true,
    }
}

fn properties() -> Properties {
    Properties {
        priority: Some(1),
        tolerance: Some(2),
        window: Some(3),
        mtu: Some(4),
        broadcast: Some(5),
        ratio: Some(6),
    }
}

fn requests() -> Vec<Request> {
    let name = || "udp:U".to_owned();
    vec![
        Request::BearerDisable { name: name() },
        Request::BearerEnable { name: name(), domain: 0, priority: None, udp: None },
        Request::BearerEnable { name: name(), domain: 9, priority: Some(12), udp: Some(udp()) },
        Request::BearerGet { name: name() },
        Request::Bearers,
        Request::BearerSet { name: name(), properties: properties() },
        Request::BearerAdd { name: name(), remote: Some("10.0.0.3:6118".parse().unwrap()) },
        Request::BearerAdd { name: name(), remote: None },
        Request::BearerRemove { name: name(), remote: "10.0.0.3:6118".parse().unwrap() },
        Request::Remotes { name: name() },
        Request::Sockets,
        Request::Bindings { port: 5 },
        Request::LinkGet { name: name() },
        Request::Links { broadcast: false },
        Request::Links { broadcast: true },
        Request::LinkSet { name: name(), properties: properties() },
        Request::LinkReset { name: name() },
        Request::LinkHistory,
        Request::Counters,
        Request::Quotas,
        Request::Keys,
        Request::Groups,
        Request::GroupMembers { port: 7 },
        Request::MediaGet { name: name() },
        Request::Media,
        Request::MediaSet { name: name(), properties: properties() },
        Request::Nodes,
        Request::Net,
        Request::NetSet { id: Some(4711), address: None, identity: Some(*b"0123456789abcdef") },
        Request::NetSet { id: None, address: Some(1), identity: None },
        Request::LegacyAddress,
        Request::Names,
        Request::MonitorGet,
        Request::Monitors,
        Request::MonitorSet { threshold: Some(3) },
        Request::MonitorPeers { bearer: 2 },
        Request::PeerRemove { address: Some(1), identity: None },
        Request::PeerRemove { address: None, identity: Some([7; 16]) },
        Request::KeySet(KeyChange {
            key: Some(Secret { algorithm: "gcm(aes)".to_owned(), bytes: vec![7; 28].into() }),
            master: true,
            identity: Some(*b"0123456789abcdef"),
            rekeying: Some(1440),
        }),
        Request::KeySet(KeyChange { rekeying: Some(REKEY_NOW), ..KeyChange::default() }),
        Request::KeyFlush,
        Request::Capture(CaptureRequest::default()),
        Request::Capture(CaptureRequest {
            bearer: Some("udp:U".to_owned()),
            no_bearers: true,
            lanes: true,
            snap: Some(96),
        }),
    ]
}

fn entries() -> Vec<Entry> {
    let publication = Publication { service: 1, lower: 2, upper: 3, scope: 2, node: 4, port: 5, key: 6 };
    let socket = Socket { port: 1, node: 2, connection: None, bound: true, kind: Some(4), process: None };
    let mut stats = Stats::default();
    for which in 1..=family::stats::COUNT {
        stats.set(which, u64::from(which) << 31);
    }
    let link = Link {
        name: "alpha:U-beta:U".to_owned(),
        destination: 1,
        mtu: 1500,
        up: true,
        active: true,
        properties: properties(),
        stats,
        received: 8,
        sent: 9,
        down: Some(Down { reason: "reset by the peer".to_owned(), time: 1 << 40 }),
        up_since: Some(1 << 41),
        path: Some(Path { peer: 3, media: "10.0.0.2:6118".to_owned(), bearer: "udp:U".to_owned() }),
        wide: Some(Wide {
            bearer: 1,
            mtu_limit: 1500,
            received: 1 << 33,
            sent: 1 << 34,
            malformed: 1 << 35,
            queue_sum: 1 << 36,
            queue_samples: 1 << 37,
        }),
        ..Link::default()
    };
    vec![
        Entry::Bearer(Bearer { name: "udp:U".to_owned(), properties: properties(), udp: Some(udp()) }),
        Entry::Bearer(Bearer { name: "eth:e".to_owned(), properties: Properties::default(), udp: None }),
        Entry::Remote("10.0.0.3:6118".parse().unwrap()),
        Entry::Socket(socket.clone()),
        Entry::Socket(Socket {
            connection: Some(Connection { node: 3, port: 4, service: Some((5, 6)) }),
            bound: false,
            process: Some(Process {
                pid: 1,
                uid: 2,
                program: "echo".to_owned(),
                counters: [1, 2, 3, 4, 5, 6],
                wait: Some("the link is full".to_owned()),
                unread: 7,
                lanes: [1 << 40, 9],
            }),
            ..socket
        }),
        Entry::Binding(Publication { scope: 0, node: 0, port: 0, ..publication }),
        Entry::Name(publication),
        Entry::Link(link.clone()),
        Entry::Link(Link {
            name: family::BROADCAST_LINK.to_owned(),
            broadcast: true,
            destination: 0,
            mtu: 0,
            down: None,
            up_since: None,
            path: None,
            ..link.clone()
        }),
        Entry::History(link),
        Entry::Quota(Quota { user: None, resources: Vec::new() }),
        Entry::Quota(Quota {
            user: Some(1000),
            resources: ["sockets", "memory"]
                .map(|name| ResourceUse { name: name.to_owned(), used: 1, limit: u64::MAX, refused: 3 })
                .to_vec(),
        }),
        Entry::Key(KeyState { slot: 1, state: "active".to_owned(), ..KeyState::default() }),
        Entry::Key(KeyState {
            peer: Some([7; 16]),
            slot: 3,
            state: "pending".to_owned(),
            mode: "node".to_owned(),
            fingerprint: u64::MAX,
            age_ms: 5,
            users: 2,
            introduced_by: "peer".to_owned(),
        }),
        Entry::Group(Group { port: 1, service: 4300, instance: 7, scope: 2, ..Group::default() }),
        Entry::Group(Group {
            port: 2,
            service: 4300,
            instance: 8,
            scope: 3,
            loopback: true,
            events: true,
            members: 17,
            pid: 5,
            uid: 1000,
            program: "server".to_owned(),
            wait: Some("waiting for member".to_owned()),
            policy: Some("drop".to_owned()),
            evicted: Some("1001002:7".to_owned()),
        }),
        Entry::GroupMember(GroupMember {
            port: 1,
            node: 0x0100_1001,
            instance: 9,
            state: "active".to_owned(),
            window: 780,
            granted: 700,
            unread: 80,
            deferred: 1,
            dropped: 1 << 40,
            conflated: 2,
            kept: 3,
        }),
        Entry::Media(Media { name: "udp".to_owned(), properties: properties() }),
        Entry::Node(Node {
            address: 1,
            up: true,
            identity: Some([9; 16]),
            contact: Some(Contact { state: 1, capabilities: 7 }),
        }),
        Entry::Net(Net { id: 4711, identity: [3; 16], address: Some(5) }),
        Entry::LegacyAddress(true),
        Entry::Counters(b"{}".to_vec()),
        Entry::Threshold(32),
        Entry::Monitor(Monitor {
            bearer: 0,
            name: "udp:U".to_owned(),
            active: true,
            nodes: 2,
            generation: 3,
        }),
        Entry::MonitorPeer(MonitorPeer {
            address: 1,
            applied: 2,
            up: true,
            head: true,
            local: true,
            domain: Some(Domain { generation: 4, up: 5, members: vec![6, 7] }),
        }),
    ]
}

#[test]
fn requests_round_trip() {
    for request in requests() {
        let bytes = request.to_bytes(&HEADER);
        let (header, back) = Request::from_bytes(&bytes).unwrap();
        assert_eq!(back.unwrap(), request);
        assert_eq!((header.sequence, header.port, header.is_extended()), (77, 4242, true));
        assert_eq!((header.command, header.is_dump()), request.command());
    }
}

#[test]
fn entries_round_trip() {
    for entry in entries() {
        let mut reply = ReplyWriter::new(Header { flags: flag::DUMP, ..HEADER });
        reply.entry(&entry);
        reply.done();
        let back: Vec<_> = replies(reply.bytes()).collect();
        assert_eq!(back, [Ok(Reply::Entry(entry)), Ok(Reply::Done)]);
    }
}

#[test]
fn own_attributes_are_sent_only_on_request() {
    // The stock tool has exactly one slot for each of the kernel's attributes. It does not know utipc's own commands.
    for entry in entries().into_iter().filter(|entry| !matches!(entry, Entry::Key(_) | Entry::Counters(_))) {
        let mut reply = ReplyWriter::new(Header { version: family::VERSION, ..HEADER });
        reply.entry(&entry);
        let message = Messages::new(reply.bytes()).next().unwrap();
        assert!(largest(utipc_manage::Nest(message.body), 2) <= family::stats::COUNT, "{entry:?}");
        match replies(reply.bytes()).next().unwrap().unwrap() {
            Reply::Entry(Entry::Socket(socket)) => assert_eq!((socket.process, socket.kind), (None, None)),
            Reply::Entry(Entry::Link(link)) => {
                assert_eq!((link.down, link.wide), (None, None));
                assert_eq!(link.stats.wide(3), 3 << 31 & u64::from(u32::MAX));
            }
            Reply::Entry(Entry::Net(net)) => assert_eq!(net.address, None),
            _ => {}
        }
    }
}

fn largest(nest: utipc_manage::Nest<'_>, depth: u32) -> u16 {
    let inner = |a: utipc_manage::Attribute<'_>| {
        let below =
            if depth > 0 && a.value.len() > 8 { largest(utipc_manage::Nest(a.value), depth - 1) } else { 0 };
        a.kind.max(if below < 256 { below } else { 0 })
    };
    nest.iter().map(inner).max().unwrap_or(0)
}

#[test]
fn errors_have_errno_and_text() {
    let refusal = Refusal::new(Errno::INVALID, "bearer not found");
    let mut reply = ReplyWriter::new(HEADER);
    reply.refuse(&refusal);
    assert_eq!(replies(reply.bytes()).next(), Some(Ok(Reply::Refused(refusal))));
    let plain = replies(&utipc_manage::without_error_texts(reply.bytes())).next().unwrap().unwrap();
    assert_eq!(plain, Reply::Refused(Errno::INVALID.into()));
    let mut reply = ReplyWriter::new(Header { flags: flag::ACK, ..HEADER });
    reply.done();
    assert_eq!(replies(reply.bytes()).next(), Some(Ok(Reply::Done)));
    let mut reply = ReplyWriter::new(HEADER);
    reply.done();
    assert!(reply.bytes().is_empty(), "an unrequested acknowledgement");
}

#[test]
fn unknown_commands_are_not_supported() {
    for (command, dump) in [(0, false), (1, false), (26, true), (13, false), (2, true), (255, false)] {
        let header = Header { command, flags: if dump { flag::DUMP } else { 0 }, ..HEADER };
        let mut bytes = Request::Nodes.to_bytes(&header);
        bytes[6..8].copy_from_slice(&header.flags.to_ne_bytes());
        bytes[16] = command;
        let (_, request) = Request::from_bytes(&bytes).unwrap();
        assert_eq!(request.unwrap_err().errno, Errno::NOT_SUPPORTED, "{command}");
    }
    let header = Header { version: 1, ..HEADER };
    let groups = [Request::Groups, Request::GroupMembers { port: 7 }];
    let others = [Request::LinkHistory, Request::Counters, Request::Quotas, Request::Keys];
    for own in others.into_iter().chain(groups) {
        let (_, request) = Request::from_bytes(&own.to_bytes(&header)).unwrap();
        assert_eq!(request.unwrap_err().errno, Errno::NOT_SUPPORTED);
    }
}

#[test]
fn family_is_resolved_by_name() {
    let request = FamilyRequest::own(5);
    let decoded = FamilyRequest::from_bytes(&request).unwrap();
    assert_eq!(decoded.name.as_deref(), Some(family::NAME));
    assert_eq!(Family::from_bytes(&Family(31).to_bytes(&decoded.header)), Some(Family(31)));
    assert_eq!(FamilyRequest::from_bytes(&Request::Nodes.to_bytes(&HEADER)), None);
}

/// Changes each byte of each message to a few values, and truncates each message to each length: nothing panics, and
/// everything decoded can be encoded again.
#[test]
fn mutated_messages_do_not_panic() {
    let mut messages: Vec<Vec<u8>> = requests().iter().map(|r| r.to_bytes(&HEADER)).collect();
    for entry in entries() {
        let mut reply = ReplyWriter::new(HEADER);
        reply.entry(&entry);
        reply.refuse(&Refusal::new(Errno::BUSY, "text"));
        messages.push(reply.into_bytes());
    }
    messages.push(FamilyRequest::own(1));
    for message in messages {
        for at in 0..message.len() {
            decode_and_encode(&message[..at]);
            for value in [0, 1, 4, 0x7f, 0x80, 0xff, message[at].wrapping_add(1)] {
                let mut changed = message.clone();
                changed[at] = value;
                decode_and_encode(&changed);
            }
        }
    }
}

fn decode_and_encode(bytes: &[u8]) {
    if let Some((header, Ok(request))) = Request::from_bytes(bytes) {
        assert!(!request.to_bytes(&header).is_empty());
    }
    for reply in replies(bytes) {
        if let Ok(Reply::Entry(entry)) = reply {
            ReplyWriter::new(HEADER).entry(&entry);
        }
    }
    let _ = (FamilyRequest::from_bytes(bytes), Family::from_bytes(bytes));
}

#[test]
fn key_whose_length_does_not_match_is_refused_and_never_printed() {
    let key = |claimed: u32, len: usize| {
        let bytes = [&[0; 32][..], &claimed.to_ne_bytes(), &vec![0x5a; len]].concat();
        let mut out = Vec::new();
        out.extend_from_slice(&Request::KeyFlush.to_bytes(&HEADER));
        out.truncate(20);
        out[16] = family::command::KEY_SET;
        utipc_manage::Writer::for_request(&mut out).nest(family::top::NODE, |out| {
            out.bytes(family::node::KEY, &bytes);
        });
        let len = out.len() as u32;
        out[..4].copy_from_slice(&len.to_ne_bytes());
        Request::from_bytes(&out).unwrap().1
    };
    for (claimed, len) in [(20, 19), (19, 20), (20, 21), (u32::MAX, 20), (72, 72), (37, 37), (0, 20)] {
        assert_eq!(key(claimed, len).unwrap_err().errno, Errno::INVALID, "{claimed} {len}");
    }
    let good = key(20, 20).unwrap();
    let Request::KeySet(change) = &good else { panic!("{good:?}") };
    assert_eq!(*change.key.as_ref().unwrap().bytes, [0x5a; 20]);
    let shown = format!("{good:?}");
    assert!(!shown.contains("5a") && !shown.contains("90"), "{shown}");
}
