//! Links: reliable, ordered packets to one peer over one bearer. Spec: tipc.md §5.
//!
//! A [`Link`] is one endpoint of a link. Its inputs are the time, messages to send and received packets; it writes
//! frames, messages in order, wake-ups and signals to the [`LinkIo`] of the call. The node layer owns the links,
//! selects one by bearer, acts on its [`LinkSignal`]s and combines two of them (§5.11 to §5.13).
//!
//! `fsm` is the state table; `protocol` handles LINK_PROTOCOL, `supervise` is the timer, `send` and `deliver` are the
//! two directions of data, `tunnel` serves two links to one peer, `path` finds the size of packets. `receive`,
//! `transmit`, `window`, `backlog`, `fragment` and `unpack` implement a numbered sequence of packets, which the
//! broadcast link uses too.

mod accept;
mod backlog;
mod config;
mod deliver;
mod fragment;
mod fsm;
mod packet;
pub(crate) mod parts;
mod path;
mod protocol;
mod receive;
mod round_trip;
mod send;
mod session;
mod stats;
mod supervise;
mod transmit;
mod tunnel;
mod turns;
mod unpack;
mod window;

#[cfg(test)]
mod tests;

use crate::limits::{MAX_WINDOW, MIN_BEARER_MTU, TUNNEL_RESERVE, capability};
use crate::outbox::BearerId;

pub use self::{
    config::{
        Accepted, BcastStamp, DownReason, FIRST_SEQNO, LinkConfig, LinkIo, LinkSignal, MonitorVerdict,
        SendFault, Wakeup, base_name,
    },
    fsm::{Event, State, Transition},
    stats::{LinkStats, PROFILE_BOUNDS},
    tunnel::{Failover, failover_point, synch_point},
};

use session::Session;

pub(crate) use self::{
    backlog::{Backlog, Level, Queued},
    fragment::Fragments,
    packet::Outgoing,
    parts::Parts,
    path::{LargeLosses, is_large},
    receive::{Arrival, ReceiveQueue},
    round_trip::RoundTrip,
    transmit::TransmitQueue,
    unpack::{Carrier, UnpackStats, Unpacker},
    window::Window,
};

/// One endpoint of a link.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    state: State,
    /// Interface name of the peer; empty until known.
    peer_interface: String,
    own_session: u16,
    peer_session: u16,
    peer_bearer: BearerId,
    net_plane: u8,
    mtu: u16,
    /// Packets that wait for room in the window, and ports that wait for room here.
    backlog: Backlog,
    /// The peer has shown that it hears this node.
    is_heard: bool,
    interval_ms: u32,
    session: Session,
}

impl Link {
    /// A new endpoint in state RESET. Values of `config` outside their limits are clamped.
    #[must_use]
    pub fn new(mut config: LinkConfig) -> Self {
        config.max_window = config.max_window.min(MAX_WINDOW);
        config.min_window = config.min_window.clamp(1, config.max_window.max(1));
        let mut link = Self {
            state: State::Resetting,
            peer_interface: String::new(),
            own_session: config.session,
            peer_session: 0,
            peer_bearer: 0,
            net_plane: config.net_plane,
            mtu: config.mtu,
            backlog: Backlog::new(config.min_window, usize::from(config.mtu)),
            is_heard: false,
            interval_ms: supervise::interval_ms(config.tolerance_ms),
            session: Session::new(&config),
            config,
        };
        link.event(Event::LocalReset);
        link.reset(&mut Vec::new());
        link
    }

    /// Feeds an event to the state machine; an illegal event changes nothing. Spec: tipc.md §5.2.
    pub fn event(&mut self, event: Event) -> Transition {
        let transition = fsm::next(self.state, event);
        if let Transition::To(state) | Transition::Down(state) = transition {
            self.state = state;
        }
        transition
    }

    /// Starts a new session: drops the queues and wakes every waiting port. Does not change the state. Spec: tipc.md
    /// §6.6.
    pub fn reset(&mut self, wakeups: &mut Vec<Wakeup>) {
        self.own_session = self.own_session.wrapping_add(1);
        self.peer_session = self.peer_session.wrapping_sub(1);
        self.backlog.wake_all(wakeups);
        self.backlog.clear();
        self.session = Session::new(&self.config);
        self.set_mtu_in_use(self.session.path.size());
    }

    /// Brings the link up, after [`LinkSignal::Up`].
    pub fn establish(&mut self) -> Transition {
        self.is_heard = true;
        self.event(Event::Establish)
    }

    /// Fails the link for a reason known to the node; true if it was up.
    pub fn fail(&mut self) -> bool {
        matches!(self.event(Event::Failure), Transition::Down(_))
    }

    /// State of the endpoint.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// True if packets pass.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state.is_up()
    }

    /// True if protocol messages are neither sent nor processed.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.state.is_blocked()
    }

    /// True if the endpoint is reset.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.state.is_reset()
    }

    /// True while delivery waits for packets on the other link.
    #[must_use]
    pub fn is_synching(&self) -> bool {
        self.state == State::Synching
    }

    /// The configuration; its properties are kept up to date.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// `<self>:<interface>-<peer>:<peer's interface>`; the last part is `unknown` until the peer sends it. Spec:
    /// tipc.md §5.1.
    #[must_use]
    pub fn name(&self) -> String {
        let peer = if self.peer_interface.is_empty() { "unknown" } else { &self.peer_interface };
        format!("{}:{peer}", self.config.name)
    }

    /// Number that is unique among the links to all peers: peer's bearer and own bearer. Spec: tipc.md §5.1.
    #[must_use]
    pub fn id(&self) -> u32 {
        u32::from(self.peer_bearer) << 16 | u32::from(self.config.bearer)
    }

    /// Number of the next packet expected.
    #[must_use]
    pub fn rcv_nxt(&self) -> u16 {
        self.session.receive.rcv_nxt()
    }

    /// Memory of packets that wait for earlier ones, and of messages that wait for their last fragments, bytes.
    pub(crate) fn deferred_bytes(&self) -> usize {
        let inherited = self.session.inherited.as_ref().map_or(0, tunnel::Inherited::deferred_bytes);
        self.session.receive.deferred_bytes() + self.session.unpacker.reassembly.bytes() + inherited
    }

    /// Acknowledges no packet that arrives from now on, so that the peer's window fills, or all of them again.
    pub fn hold_ack(&mut self, on: bool) {
        self.session.acks.held = on.then(|| self.ack());
    }

    /// Number of the last packet that is acknowledged to the peer.
    fn ack(&self) -> u16 {
        self.session.acks.held.unwrap_or(self.rcv_nxt().wrapping_sub(1))
    }

    /// Number of the next packet to send.
    #[must_use]
    pub fn snd_nxt(&self) -> u16 {
        self.session.transmit.snd_nxt()
    }

    /// Largest packet, bytes.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Largest packet that bearer and peer allow, bytes; the path may carry less.
    #[must_use]
    pub fn mtu_limit(&self) -> u16 {
        self.session.path.limit()
    }

    /// Largest packet when a message is fragmented; leaves room for a tunnel header. Spec: tipc.md §5.9.
    #[must_use]
    pub fn mss(&self) -> usize {
        self.largest().saturating_sub(TUNNEL_RESERVE)
    }

    /// The largest packet that fits into a frame, bytes.
    fn largest(&self) -> usize {
        fit(self.mtu, self.config.overhead)
    }

    /// Sets the bytes that encryption adds to a packet; packets in flight keep their size, for which the reserve of a
    /// tunnel leaves room.
    pub fn set_overhead(&mut self, bytes: u16) {
        self.config.overhead = bytes;
    }

    /// The peer's bearer.
    #[must_use]
    pub fn peer_bearer(&self) -> BearerId {
        self.peer_bearer
    }

    /// Own session.
    #[must_use]
    pub fn session(&self) -> u16 {
        self.own_session
    }

    /// The peer's session, if there is one.
    #[must_use]
    pub fn peer_session(&self) -> Option<u16> {
        self.session.is_joined.then_some(self.peer_session)
    }

    /// Net plane in use, 0 for A.
    #[must_use]
    pub fn net_plane(&self) -> u8 {
        self.net_plane
    }

    /// Send window in use, packets.
    #[must_use]
    pub fn window(&self) -> u16 {
        self.session.window.size()
    }

    /// Packets in flight, and packets in the backlog.
    #[must_use]
    pub fn queue_lengths(&self) -> (usize, usize) {
        (self.session.transmit.len(), self.backlog.len())
    }

    /// Packets of this session that carry all that was accepted so far, and how many of them are acknowledged, with all
    /// before them.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.session.transmit.sent() + self.backlog.len() as u64, self.session.transmit.acknowledged())
    }

    /// The congested importance levels, one bit each; `before` is the previous result.
    pub(crate) fn congestion(&self, before: u8) -> u8 {
        self.backlog.congestion(before)
    }

    /// Number of ports waiting for a wake-up.
    #[must_use]
    pub fn waiting_ports(&self) -> usize {
        self.backlog.waiting()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        let mut stats = self.session.stats;
        let tunnelled = self.session.inherited.as_ref().map(|i| i.unpacker.stats).unwrap_or_default();
        for part in [self.session.unpacker.stats, tunnelled] {
            stats.rx_fragments += part.fragments;
            stats.rx_fragmented += part.fragmented;
            stats.rx_bundles += part.bundles;
            stats.rx_bundled += part.bundled;
            stats.refused += part.refused;
        }
        stats
    }

    /// Sets all counters to zero.
    pub fn clear_stats(&mut self) {
        self.session.stats = LinkStats::default();
        self.session.unpacker.stats = UnpackStats::default();
        if let Some(inherited) = &mut self.session.inherited {
            inherited.unpacker.stats = UnpackStats::default();
        }
    }

    /// Sets the peer's capabilities, learned from its discovery messages.
    pub fn set_peer_capabilities(&mut self, capabilities: u16) {
        self.config.peer_capabilities = capabilities;
    }

    /// Sets the bearer's MTU, bytes; it takes effect at the next reset.
    pub fn set_bearer_mtu(&mut self, mtu: u16) {
        self.config.mtu = mtu;
        self.config.max_receive = self.config.max_receive.max(mtu);
    }

    /// Sets the send window, packets.
    pub fn set_window(&mut self, min: u16, max: u16) {
        self.config.max_window = max.clamp(1, MAX_WINDOW);
        self.config.min_window = min.clamp(1, self.config.max_window);
        self.session.window = Window::new(self.config.min_window, self.config.max_window);
        self.backlog.set_limits(self.config.min_window, usize::from(self.mtu));
    }

    /// Sets the neighbour monitor's view of the peer.
    pub fn set_monitor(&mut self, verdict: MonitorVerdict) {
        self.session.monitor = verdict;
    }

    /// Sets the monitor record that STATE messages to the peer carry.
    pub fn set_monitor_record(&mut self, record: Vec<u8>) {
        self.session.monitor_record = record;
    }

    fn set_mtu_in_use(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.backlog.set_limits(self.config.min_window, usize::from(mtu));
    }

    /// Takes over what the search for the path's size has found.
    fn adopt_path(&mut self, io: &mut LinkIo<'_>) {
        let (from, to) = (self.mtu, self.session.path.size());
        if from != to {
            self.set_mtu_in_use(to);
            if self.is_up() {
                io.signals.push(LinkSignal::Mtu { from, to });
            }
        }
        if self.is_up() && self.session.path.take_report() {
            io.signals.push(LinkSignal::Path);
        }
    }

    fn peer_can(&self, capability: u16) -> bool {
        self.config.peer_capabilities & capability != 0
    }

    fn numbers_states(&self) -> bool {
        self.peer_can(capability::LINK_PROTO_SEQNO)
    }

    /// Fails the link and signals the node.
    fn fail_because(&mut self, reason: DownReason, io: &mut LinkIo<'_>) {
        if self.fail() {
            io.signals.push(LinkSignal::Down(reason));
        }
    }
}

/// The path of a link before anything is known of it.
fn path_of(config: &LinkConfig) -> path::Path {
    path::Path::new(config.mtu, config.base_mtu, config.min_mtu.saturating_sub(MIN_BEARER_MTU as u16))
}

/// The largest packet that fits into a frame of `mtu` bytes when encryption adds `overhead` bytes, which pads packets
/// to a multiple of 4 bytes.
fn fit(mtu: u16, overhead: u16) -> usize {
    match usize::from(overhead) {
        0 => usize::from(mtu),
        overhead => (usize::from(mtu) & !3).saturating_sub(overhead),
    }
}
