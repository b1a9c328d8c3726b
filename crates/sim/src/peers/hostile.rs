//! One hostile peer: it keeps a link up with as little as possible, and attacks over it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use utipc_core::discovery::{DiscoveryKind, DiscoveryMessage};
use utipc_core::wire::{
    ByteOrder, FOREVER, Filter, GapRecord, INTERNAL_HEADER, LinkProtocolType, MessageType, NameItem,
    Subscription, User,
};
use utipc_core::{ClusterId, MediaAddr, Message, NodeAddr, NodeId, Rng, ServiceRange, Target, View, limits};

use super::attack::Attack;

/// Data of a frame, bytes: fits every bearer.
const DATA: usize = 1300;
/// Items in a message of bindings.
const ITEMS: usize = DATA / 20;
/// First service type of forged bindings; honest ones have lower types.
const FORGED_TYPES: u32 = 100_000;
/// Connections to the topology server that one peer opens.
const CONNECTIONS: usize = 64;
/// Number of turns without a reply after which a peer begins again.
const PATIENCE: u64 = 3;
/// Difference between successive sessions of a peer that leaves its link.
const NEXT_SESSION: u16 = 1;

/// A frame of a hostile peer, and where it goes.
pub type Frame = (Target, Vec<u8>);

/// The node that is attacked, and what a hostile host can know about it.
#[derive(Clone, Debug)]
pub struct Victim {
    /// Its address.
    pub addr: NodeAddr,
    /// Its place on the network.
    pub media: MediaAddr,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Honest neighbours, whose addresses are forged too.
    pub neighbours: Vec<NodeAddr>,
}

impl Victim {
    /// A node over UDP in the default cluster.
    #[must_use]
    pub fn over_udp(addr: NodeAddr, at: SocketAddr, neighbours: Vec<NodeAddr>) -> Self {
        Self { addr, media: MediaAddr::Udp(at), cluster: ClusterId::default(), neighbours }
    }
}

/// A hostile peer on one network.
#[derive(Debug)]
pub struct Hostile {
    attack: Attack,
    addr: NodeAddr,
    media: MediaAddr,
    rng: Rng,
    session: u16,
    /// Whether the setup was sent in this session, and the victim has answered.
    begun: bool,
    heard: bool,
    /// Number of the next packet, STATE and broadcast.
    seqno: u16,
    state: u16,
    broadcast: u16,
    /// The state of the victim: the next packet of its link, its last broadcast.
    sent: u16,
    last_broadcast: u16,
    /// Number of calls of [`Self::speak`] in this session.
    step: u64,
    invented: u32,
    /// Own ports with a connection to the topology server, and its ports.
    asked: u32,
    connections: BTreeSet<(u32, u32)>,
}

impl Hostile {
    /// Peer `index`, with its own address.
    #[must_use]
    pub fn new(index: u32, attack: Attack, media: MediaAddr, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ u64::from(index) << 32);
        Self {
            attack,
            addr: NodeAddr::legacy(2, 1 + index / 4000, 1 + index % 4000),
            media,
            session: rng.next_u32() as u16,
            rng,
            begun: false,
            heard: false,
            seqno: 1,
            state: 1,
            broadcast: 1,
            sent: 1,
            last_broadcast: 0,
            step: 0,
            invented: 0,
            asked: 0,
            connections: BTreeSet::new(),
        }
    }

    /// [`Self::new`] for a host that has this place on a network of UDP.
    #[must_use]
    pub fn over_udp(index: u32, attack: Attack, at: SocketAddr, seed: u64) -> Self {
        Self::new(index, attack, MediaAddr::Udp(at), seed)
    }

    /// Its attack.
    #[must_use]
    pub fn attack(&self) -> Attack {
        self.attack
    }

    /// Learns from a frame of the victim.
    pub fn hear(&mut self, frame: &[u8]) {
        let Ok(view) = View::parse(frame) else { return };
        match view.user() {
            User::LinkProtocol if view.link_type() == LinkProtocolType::State => {
                self.sent = view.next_sent();
                self.heard = true;
                self.last_broadcast = view.last_bcast();
            }
            // The victim has taken the link down.
            User::LinkProtocol if view.peer_stopping() => self.restart(),
            User::LinkProtocol | User::LinkConfig => {}
            user => {
                self.sent = self.sent.max(view.seqno().wrapping_add(1));
                let is_reply = user.is_data() && view.message_type() == MessageType::Conn;
                if is_reply && self.connections.len() < CONNECTIONS {
                    self.connections.insert((view.dest_port(), view.origin_port()));
                }
            }
        }
    }

    fn restart(&mut self) {
        self.session = self.session.wrapping_add(NEXT_SESSION);
        (self.begun, self.heard) = (false, false);
        (self.seqno, self.state, self.broadcast, self.sent) = (1, 1, 1, 1);
        self.step = 0;
        self.asked = 0;
        self.connections.clear();
    }

    /// Appends its next frames, about `burst` of them.
    pub fn speak(&mut self, victim: &Victim, burst: usize, out: &mut Vec<Frame>) {
        if !self.heard && self.step >= PATIENCE {
            self.restart(); // discovery has refused it: too many unknown nodes at once
        }
        if !self.begun {
            self.begun = true;
            let request = self.discovery(victim, self.addr, self.media, 0x1235);
            self.push(victim, &request, out);
            for kind in [LinkProtocolType::Reset, LinkProtocolType::Activate] {
                let setup = self.setup(victim, kind);
                self.push(victim, &setup, out);
            }
            // Broadcasts of this peer begin with number 1.
            let mut start = self.message(victim, User::BcastProtocol, 0, INTERNAL_HEADER, &[]);
            start.set_last_bcast(0);
            self.push_numbered(victim, start, out);
            if self.attack == Attack::Bindings {
                self.end_bulk(victim, out);
            }
        }
        let state = self.state(victim, 0, GapRecord::default(), false);
        self.push(victim, &state, out);
        for _ in 0..burst {
            self.strike(victim, out);
        }
        self.step += 1;
    }

    fn strike(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        match self.attack {
            Attack::Deferred => self.early_packet(victim, out),
            Attack::BroadcastGaps => self.early_broadcast(victim, out),
            Attack::Discovery => self.forge_discovery(victim, out),
            Attack::Identities => self.invent_node(victim, out),
            Attack::Nacks => self.nack(victim, out),
            Attack::Silence => self.make_it_answer(victim, out),
            Attack::Bindings => self.flood_bindings(victim, out),
            Attack::Subscriptions => self.subscribe(victim, out),
            Attack::Fragments => self.fragment(victim, out),
            Attack::Tunnel => self.tunnel(victim, out),
        }
    }

    fn early_packet(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        let mut packet = self.dead_letter(victim, DATA);
        if self.step == 0 && self.seqno < 3 {
            return self.push_numbered(victim, packet, out); // in order: the peer counts as established
        }
        let ahead = 1 + self.rng.below(u64::from(limits::MAX_WINDOW));
        packet.set_seqno(self.seqno.wrapping_add(ahead as u16));
        self.push(victim, &packet, out);
    }

    fn early_broadcast(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        if self.rng.below(8) == 0 {
            let mut state = self.state(victim, 0, GapRecord::default(), false);
            state.set_last_bcast(self.rng.below(8000) as u16);
            return self.push(victim, &state, out);
        }
        let ahead = 1 + self.rng.below(u64::from(limits::MAX_WINDOW)) as u16;
        let data = [7; DATA];
        self.push_broadcast(victim, User::Low, MessageType::Mcast.into(), 44, &data, ahead, out);
    }

    fn invent_node(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        self.invented += 1;
        let random = self.rng.next_u32();
        let addr = NodeAddr::legacy(4, 1 + random % 4000, 1 + random / 4000 % 4000);
        let [_, a, b, c] = self.rng.next_u32().to_be_bytes();
        let media = match self.invented % 2 {
            0 => self.media,
            _ => MediaAddr::Udp(SocketAddr::from(([172, a, b, c], 6118))),
        };
        let message = self.discovery(victim, addr, media, random as u16);
        self.push(victim, &message, out);
    }

    fn forge_discovery(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        self.invented += 1;
        let random = self.rng.next_u32();
        let message = match self.invented % 6 {
            0 | 1 => {
                let addr = NodeAddr::legacy(3, 1 + random % 4000, 1 + random / 4000 % 4000);
                self.discovery(victim, addr, self.media, random as u16)
            }
            // The address of an honest neighbour, at another place.
            2 if !victim.neighbours.is_empty() => {
                let of = victim.neighbours[random as usize % victim.neighbours.len()];
                self.discovery(victim, of, self.media, random as u16)
            }
            3 => self.discovery(victim, victim.addr, self.media, random as u16),
            4 => self.discovery(victim, self.addr, self.media, random as u16),
            _ => self.discovery(victim, self.addr, victim.media, 0x1235),
        };
        self.push(victim, &message, out);
    }

    fn nack(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        let missing = self.sent.wrapping_sub(1).min(limits::MAX_WINDOW);
        let probe = self.rng.below(4) == 0;
        let state = if self.rng.below(2) == 0 {
            self.state(victim, missing, GapRecord::default(), probe)
        } else {
            // Every second packet is missing.
            let blocks: Vec<_> = (1..missing.min(128)).step_by(2).map(|n| (n + 1, 1)).collect();
            let blocks: Vec<_> = blocks.into_iter().filter(|(to, gap)| to + gap <= missing).collect();
            self.state(victim, missing.min(1), GapRecord::new(&blocks, &blocks), probe)
        };
        self.push(victim, &state, out);
    }

    /// A message for a port that does not exist: the victim returns it, and queues what is never acknowledged.
    fn make_it_answer(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        let mut message = self.message(victim, User::Low, MessageType::Direct.into(), 32, &[7; 1000]);
        message.set_origin_port(77);
        message.set_dest_port(self.rng.next_u32() | 1);
        self.push_numbered(victim, message, out);
    }

    fn end_bulk(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        let mut last = self.names(victim, 0, &[]);
        last.set_name_bulk(true);
        last.set_name_last_bulk(true);
        self.push_numbered(victim, last, out);
    }

    fn flood_bindings(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        let kind = self.rng.below(4);
        let mut items = Vec::with_capacity(DATA);
        for _ in 0..ITEMS {
            let (at, service) = (self.rng.next_u32(), FORGED_TYPES + self.rng.below(64) as u32);
            let range = match self.rng.below(3) {
                0 => ServiceRange::new(service, 0, u32::MAX - at % 1000),
                1 => ServiceRange::new(service, at, at.saturating_add(at % 100_000)),
                _ => ServiceRange::new(service, at, at),
            };
            let item = NameItem { range, port: at | 1, key: at };
            items.extend_from_slice(&item.to_bytes());
        }
        let mut message = self.names(victim, u8::from(kind == 0), &items);
        if kind == 1 {
            // Waits for number 0, which never comes.
            message.set_name_seqno(1 + self.rng.below(30_000) as u16);
        } else {
            message.set_name_bulk(true);
        }
        self.push_numbered(victim, message, out);
    }

    fn names(&mut self, victim: &Victim, kind: u8, items: &[u8]) -> Message {
        let mut message = self.message(victim, User::NameDistributor, kind, INTERNAL_HEADER, items);
        message.set_name_numbered(true);
        message.set_bcast_ack_invalid(true);
        message
    }

    fn subscribe(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        if (self.asked as usize) < CONNECTIONS && self.rng.below(2) == 0 {
            self.asked += 1;
            let mut request = self.message(victim, User::Low, MessageType::Named.into(), 40, &[]);
            request.set_syn(true);
            request.set_origin_port(1000 + self.asked);
            request.set_name_type(limits::TOPOLOGY_SERVER);
            request.set_name_instance(limits::TOPOLOGY_SERVER);
            return self.push_numbered(victim, request, out);
        }
        let at = self.rng.below(self.connections.len() as u64) as usize;
        let Some((own, server)) = self.connections.iter().nth(at).copied() else { return };
        let random = self.rng.next_u32();
        let filter =
            [Filter::PORTS, Filter::SERVICE, Filter::PORTS.with(Filter::CANCEL)][random as usize % 3];
        let service = [0, limits::LINK_STATE, 1000, FORGED_TYPES + random % 64][random as usize / 3 % 4];
        let range = ServiceRange::new(service, 0, u32::MAX);
        let handle = self.rng.next_u64().to_ne_bytes();
        let wish = Subscription { range, timeout_ms: FOREVER, filter, handle };
        let data = wish.to_bytes(ByteOrder::NATIVE);
        let mut message = self.message(victim, User::Low, MessageType::Conn.into(), 24, &data);
        message.set_origin_port(own);
        message.set_dest_port(server);
        self.push_numbered(victim, message, out);
    }

    /// Fills the reassembly of the link and of the broadcasts up to the largest message.
    fn fragment(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        // The data of the first one claims the largest message.
        let claim = self.message(victim, User::Low, MessageType::Direct.into(), 32, &[0; 60_000]);
        let slice = &claim.bytes()[..DATA];
        let (number, broadcast) = (self.seqno, self.broadcast);
        if self.step.is_multiple_of(2) && number < 48 {
            let kind = u8::from(number > 2);
            let fragment = self.message(victim, User::Fragmenter, kind, INTERNAL_HEADER, slice);
            self.push_numbered(victim, fragment, out);
        } else if broadcast < 46 {
            let kind = u8::from(broadcast > 1);
            self.push_broadcast(victim, User::Fragmenter, kind, INTERNAL_HEADER, slice, 0, out);
            self.broadcast += 1;
        }
    }

    fn tunnel(&mut self, victim: &Victim, out: &mut Vec<Frame>) {
        let random = self.rng.next_u32();
        let mut inner = self.dead_letter(victim, DATA - 100);
        inner.set_seqno(random as u16);
        let data = if random.is_multiple_of(5) { vec![0xff; 200] } else { inner.into_bytes() };
        let kind = u8::from(!(random / 8).is_multiple_of(4));
        let mut packet = self.message(victim, User::Tunnel, kind, INTERNAL_HEADER, &data);
        packet.set_bearer_id((random % 3) as u8);
        packet.set_message_count((random >> 16) as u16);
        if (random / 64).is_multiple_of(2) {
            packet.set_fragment_number(1 + (random % 3) as u16);
            packet.set_fragment_count(40);
        }
        self.push_numbered(victim, packet, out);
    }

    /// A message that the victim drops: it is marked as returned, and its port does not exist.
    fn dead_letter(&self, victim: &Victim, data: usize) -> Message {
        let mut message = self.message(victim, User::Low, MessageType::Direct.into(), 32, &vec![7; data]);
        message.set_error_code(utipc_core::wire::ErrorCode::NoPort);
        message
    }

    fn discovery(&self, victim: &Victim, source: NodeAddr, media: MediaAddr, signature: u16) -> Message {
        DiscoveryMessage {
            kind: DiscoveryKind::Request,
            dest_domain: NodeAddr::NONE,
            source,
            cluster: victim.cluster,
            capabilities: limits::CAPABILITIES,
            signature,
            media,
            net_hash: 99,
            suggestion: NodeAddr::NONE,
            identity: NodeId::from_legacy(source),
        }
        .build()
    }

    fn setup(&self, victim: &Victim, kind: LinkProtocolType) -> Message {
        let name = b"hostile\0\0\0\0\0\0\0\0\0";
        let mut setup = self.message(victim, User::LinkProtocol, kind.into(), INTERNAL_HEADER, name);
        setup.set_session(self.session);
        setup.set_max_packet(1500 / 4);
        setup
    }

    /// A STATE that acknowledges nothing.
    fn state(&mut self, victim: &Victim, gap: u16, record: GapRecord, probe: bool) -> Message {
        let (kind, data) = (LinkProtocolType::State.into(), record.to_bytes());
        let mut state = self.message(victim, User::LinkProtocol, kind, INTERNAL_HEADER, &data);
        state.set_session(self.session);
        state.set_seqno(self.state);
        self.state = self.state.wrapping_add(1);
        state.set_next_sent(self.seqno);
        state.set_last_bcast(self.broadcast.wrapping_sub(1));
        state.set_seq_gap(gap);
        state.set_probe(probe);
        // From the first acknowledgement on, the victim's broadcasts wait for this peer.
        state.set_ack(if gap == 0 && self.sent > 1 { 1 } else { 0 });
        state.set_bcast_ack(self.broadcast_ack());
        state
    }

    fn broadcast_ack(&self) -> u16 {
        if self.attack == Attack::Silence { 0 } else { self.last_broadcast }
    }

    fn message(&self, victim: &Victim, user: User, kind: u8, header: usize, data: &[u8]) -> Message {
        let mut message = Message::build(user, kind, header, data);
        message.set_prev_node(self.addr);
        if header >= 32 {
            message.set_origin_node(self.addr);
            message.set_dest_node(victim.addr);
        }
        message
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one frame")]
    fn push_broadcast(
        &self,
        victim: &Victim,
        user: User,
        kind: u8,
        header: usize,
        data: &[u8],
        ahead: u16,
        out: &mut Vec<Frame>,
    ) {
        let mut packet = self.message(victim, user, kind, header, data);
        packet.set_non_sequenced(true);
        packet.set_cluster_id(victim.cluster);
        packet.set_seqno(self.broadcast.wrapping_add(ahead));
        self.push(victim, &packet, out);
    }

    fn push_numbered(&mut self, victim: &Victim, mut message: Message, out: &mut Vec<Frame>) {
        message.set_seqno(self.seqno);
        message.set_bcast_ack(self.broadcast_ack());
        self.seqno = self.seqno.wrapping_add(1);
        self.push(victim, &message, out);
    }

    fn push(&self, victim: &Victim, message: &Message, out: &mut Vec<Frame>) {
        out.push((Target::Unicast(victim.media), message.bytes().to_vec()));
    }
}
