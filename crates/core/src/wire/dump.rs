//! Prints any frame in one line, for logs and tests.

use core::fmt;

use super::{
    ActivateSession, Addressing, Body, ConnControlKind, Data, Decoded, DiscoveryKind, Encrypted,
    EncryptedSource, Envelope, ErrorCode, FragmentKind, GapBlock, GroupControlKind, MediaAddr, MessageType,
    NameItem, NameUpdate, Restart, State, TunnelKind, View,
};

/// Name items, or messages of a bundle, shown in a line.
const SHOWN: usize = 3;

/// Prints a frame in one line: `1001001>1001002 STATE probe #9 ack 4 gap 5 [11+1 15+4 20+0] next 33 …`. Never fails: a
/// malformed frame prints its error.
#[derive(Clone, Copy, Debug)]
pub struct Dump<'a>(pub &'a [u8]);

/// [`Dump`] preceded by the medium and its addresses: `udp 10.0.0.1:6118 > 10.0.0.2:6118 …`.
#[derive(Clone, Copy, Debug)]
pub struct FrameDump<'a> {
    /// Source address.
    pub from: MediaAddr,
    /// Destination address; `None` for a broadcast.
    pub to: Option<MediaAddr>,
    /// The frame.
    pub bytes: &'a [u8],
}

impl fmt::Display for FrameDump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let medium = match self.from {
            MediaAddr::Ethernet(_) => "eth",
            MediaAddr::Udp(_) => "udp",
        };
        write!(f, "{medium} {} > ", self.from)?;
        match self.to {
            Some(to) => write!(f, "{to}")?,
            None => f.write_str("*")?,
        }
        write!(f, " {}", Dump(self.bytes))
    }
}

impl fmt::Display for Dump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if Encrypted::is_encrypted(self.0) {
            return match Encrypted::parse(self.0) {
                Ok(packet) => encrypted(f, &packet),
                Err(e) => write!(f, "malformed encrypted packet: {e}"),
            };
        }
        let view = match View::parse(self.0) {
            Ok(view) => view,
            Err(e) => return write!(f, "malformed: {e} ({} bytes)", self.0.len()),
        };
        match Decoded::parse(view) {
            Ok(decoded) => message(f, &decoded, view),
            Err(e) => write!(f, "malformed {view:?}: {e}"),
        }
    }
}

fn encrypted(f: &mut fmt::Formatter<'_>, p: &Encrypted<'_>) -> fmt::Result {
    match p.source {
        EncryptedSource::Node(node) => write!(f, "{node}")?,
        EncryptedSource::Identity(id) => write!(f, "{id}")?,
    }
    write!(f, " encrypted {:?} key {}/{} #{}", p.user, p.tx_slot, p.rx_slot, p.seqno)?;
    flag(f, p.destined, "destined")?;
    flag(f, p.keepalive, "keepalive")?;
    flag(f, p.has_master, "master")?;
    flag(f, p.no_rx_key, "no-rx-key")?;
    write!(f, " {} bytes", p.ciphertext.len())
}

fn message(f: &mut fmt::Formatter<'_>, m: &Decoded<'_>, view: View<'_>) -> fmt::Result {
    match &m.body {
        Body::Discovery(_) => {}
        Body::Data(d) => ports(f, &m.envelope, d.origin_port, d.dest_port)?,
        Body::Conn(c) => ports(f, &m.envelope, c.origin_port, c.dest_port)?,
        Body::Group(g) => ports(f, &m.envelope, g.origin_port, g.dest_port)?,
        _ => nodes(f, &m.envelope)?,
    }
    match &m.body {
        Body::Discovery(_) | Body::State(_) | Body::Restart(_) => {}
        _ if m.envelope.non_sequenced => write!(f, "bcast #{} ", m.envelope.seqno)?,
        _ => write!(f, "#{} ack {}/{} ", m.envelope.seqno, m.envelope.ack, m.envelope.bcast_ack)?,
    }
    body(f, m, view)?;
    if !m.residue.is_empty() {
        write!(f, " +{} unknown bytes", m.residue.bits.len().max(m.residue.trailing))?;
    }
    Ok(())
}

fn nodes(f: &mut fmt::Formatter<'_>, e: &Envelope) -> fmt::Result {
    write!(f, "{}>{} ", e.prev_node, e.dest_node)
}

fn ports(f: &mut fmt::Formatter<'_>, e: &Envelope, from: u32, to: u32) -> fmt::Result {
    match e.cluster {
        Some(_) => write!(f, "{}:{from}>{} ", e.origin_node, e.dest_node),
        None => write!(f, "{}:{from}>{}:{to} ", e.origin_node, e.dest_node),
    }
}

fn body(f: &mut fmt::Formatter<'_>, m: &Decoded<'_>, view: View<'_>) -> fmt::Result {
    match &m.body {
        Body::Data(d) => data(f, d),
        Body::Bcast(b) => write!(f, "BCAST_PROTOCOL last {}", b.last_bcast),
        Body::Bundle(b) => {
            write!(f, "BUNDLE of {} importance {}:", b.count, b.importance)?;
            for inner in b.messages().take(SHOWN) {
                match inner {
                    Ok(inner) => write!(f, " {{{inner:?}}}")?,
                    Err(e) => write!(f, " {{malformed: {e}}}")?,
                }
            }
            flag(f, usize::from(b.count) > SHOWN, "…")
        }
        Body::State(s) => state(f, &m.envelope, s),
        Body::Restart(r) => restart(f, r),
        Body::Conn(c) => {
            match c.kind {
                ConnControlKind::Probe => f.write_str("CONN_PROBE")?,
                ConnControlKind::ProbeReply => f.write_str("CONN_PROBE_REPLY")?,
                ConnControlKind::Ack { acked, window, nagle } => {
                    write!(f, "CONN_ACK {acked} window {window}")?;
                    flag(f, nagle, "nagle")?;
                }
            }
            error(f, c.error)
        }
        Body::Group(g) => group(f, g.extension, &g.kind),
        Body::Tunnel(t) => {
            match t.kind {
                TunnelKind::Synch => write!(f, "SYNCH bearer {} point {}", t.bearer, t.count)?,
                TunnelKind::Failover => write!(f, "FAILOVER bearer {} count {}", t.bearer, t.count)?,
            }
            if t.part != 0 {
                write!(f, " part {}/{}", t.part, t.parts)?;
            }
            match t.inner() {
                Ok(Some(inner)) => write!(f, " {{{inner:?} #{}}}", inner.seqno()),
                Ok(None) => Ok(()),
                Err(e) => write!(f, " {{malformed: {e}}}"),
            }
        }
        Body::Names(n) => names(f, n),
        Body::Fragment(p) => {
            let kind = match p.kind {
                FragmentKind::First => "first",
                FragmentKind::Middle => "middle",
                FragmentKind::Last => "last",
            };
            write!(f, "FRAGMENT {kind} {} importance {} {} bytes", p.number, p.importance, p.data.len())
        }
        Body::Discovery(d) => {
            let kind = match d.kind {
                DiscoveryKind::Request => "REQ",
                DiscoveryKind::Response => "RESP",
                DiscoveryKind::Trial => "TRIAL",
                DiscoveryKind::TrialFail => "TRIAL_FAIL",
            };
            write!(f, "{}>{} {kind} id {} cluster {}", d.source, d.dest_domain, d.identity, d.cluster.0)?;
            write!(f, " caps {:x} signature {:x} at {}", d.capabilities, d.signature, d.media)?;
            if !d.suggestion.is_none() {
                write!(f, " suggests {}", d.suggestion)?;
            }
            Ok(())
        }
        Body::KeyDistribution(k) => write!(f, "KEY_DISTR generation {} mode {}", k.generation, k.mode),
        Body::Unknown(_) => {
            let user = u8::from(view.user());
            write!(f, "user {user} type {} {} bytes", view.kind(), view.payload().len())
        }
    }
}

fn data(f: &mut fmt::Formatter<'_>, d: &Data<'_>) -> fmt::Result {
    match d.to {
        Addressing::Connection => f.write_str("CONN")?,
        Addressing::Multicast(range) => write!(f, "MCAST {range}")?,
        Addressing::Named(service) => write!(f, "NAMED {service}")?,
        Addressing::Direct => f.write_str("DIRECT")?,
        Addressing::Group(g) => {
            let kind = match g.kind {
                MessageType::GroupBcast => "GROUP_BCAST",
                MessageType::GroupMcast => "GROUP_MCAST",
                _ => "GROUP_UCAST",
            };
            write!(f, "{kind} {{{},{}}} number {}", g.group, g.instance, g.seqno)?;
            flag(f, g.ack_request, "ack-request")?;
        }
    }
    write!(f, " {:?}", d.importance)?;
    flag(f, d.syn, "syn")?;
    flag(f, d.dest_droppable, "d")?;
    flag(f, d.bit18, "s")?;
    if d.lookup_scope != 0 {
        write!(f, " scope {}", d.lookup_scope)?;
    }
    if d.reroute_count != 0 {
        write!(f, " rerouted {}", d.reroute_count)?;
    }
    error(f, d.error)?;
    write!(f, " {} bytes", d.data.len())
}

fn state(f: &mut fmt::Formatter<'_>, e: &Envelope, s: &State) -> fmt::Result {
    f.write_str("STATE")?;
    flag(f, s.probe, "probe")?;
    flag(f, s.keepalive && !s.probe, "reply")?;
    write!(f, " #{} ack {}", e.seqno, e.ack)?;
    if s.gap != 0 {
        write!(f, " gap {}", s.gap)?;
    }
    blocks(f, s.gaps.as_ref().map_or(&[], |g| &g.unicast))?;
    write!(f, " next {} session {}", s.link.next_sent, s.link.session)?;
    write!(f, " bcast ack {}", e.bcast_ack)?;
    flag(f, s.link.bcast_ack_invalid, "invalid")?;
    if s.bcast_gap != 0 {
        write!(f, " gap {}", s.bcast_gap)?;
    }
    blocks(f, s.gaps.as_ref().map_or(&[], |g| &g.broadcast))?;
    write!(f, " last {}", s.link.last_bcast)?;
    if s.link.tolerance_ms != 0 {
        write!(f, " tolerance {} ms", s.link.tolerance_ms)?;
    }
    if s.link.priority != 0 {
        write!(f, " priority {}", s.link.priority)?;
    }
    if let Some(m) = &s.monitor {
        write!(f, " monitor {}/{} {} members", m.generation, m.acked_generation, m.members.len())?;
    }
    Ok(())
}

fn blocks(f: &mut fmt::Formatter<'_>, blocks: &[GapBlock]) -> fmt::Result {
    for (n, (ack, gap)) in blocks.iter().enumerate() {
        write!(f, "{}{ack}+{gap}", if n == 0 { " [" } else { " " })?;
    }
    if blocks.is_empty() { Ok(()) } else { f.write_str("]") }
}

fn restart(f: &mut fmt::Formatter<'_>, r: &Restart) -> fmt::Result {
    match r.activate {
        None => f.write_str("RESET")?,
        Some(ActivateSession { valid: true, session }) => write!(f, "ACTIVATE of {session}")?,
        Some(ActivateSession { valid: false, .. }) => f.write_str("ACTIVATE")?,
    }
    write!(f, " session {} bearer {}", r.link.session, r.link.bearer)?;
    write!(f, " mtu {} {}", u32::from(r.max_packet) * 4, r.interface.text())?;
    flag(f, r.link.peer_stopping, "stopping")?;
    flag(f, r.link.redundant_link, "redundant")
}

fn group(f: &mut fmt::Formatter<'_>, extension: u32, kind: &GroupControlKind) -> fmt::Result {
    write!(f, "GROUP {extension} ")?;
    match kind {
        GroupControlKind::Join { sync_point, window } => write!(f, "JOIN at {sync_point} window {window}"),
        GroupControlKind::Leave { sync_point } => write!(f, "LEAVE at {sync_point}"),
        GroupControlKind::Advertise { window } => write!(f, "ADV {window}"),
        GroupControlKind::Ack { acked } => write!(f, "ACK {acked}"),
        GroupControlKind::Reclaim => f.write_str("RECLAIM"),
        GroupControlKind::Remit { window } => write!(f, "REMIT {window}"),
        GroupControlKind::Evict => f.write_str("EVICT"),
    }
}

fn names(f: &mut fmt::Formatter<'_>, n: &NameUpdate) -> fmt::Result {
    f.write_str(if n.withdrawal { "WITHDRAW" } else { "PUBLISH" })?;
    flag(f, n.bulk, "bulk")?;
    flag(f, n.last_bulk, "last")?;
    if n.numbered && (n.last_bulk || !n.bulk) {
        write!(f, " number {}", n.number)?;
    }
    write!(f, " {} items:", n.items.len())?;
    for NameItem { range, port, .. } in n.items.iter().take(SHOWN) {
        write!(f, " {range}:{port}")?;
    }
    flag(f, n.items.len() > SHOWN, "…")
}

fn error(f: &mut fmt::Formatter<'_>, code: ErrorCode) -> fmt::Result {
    if code == ErrorCode::Ok { Ok(()) } else { write!(f, " error {code:?}") }
}

fn flag(f: &mut fmt::Formatter<'_>, set: bool, text: &str) -> fmt::Result {
    if set { write!(f, " {text}") } else { Ok(()) }
}
