//! One peer node: its links, which of them carry traffic, and the state of contact. Spec: tipc.md §5.11, §6.

use std::collections::VecDeque;

use super::state::{Event, State};
use crate::addr::{NodeAddr, NodeId};
use crate::limits::{DEFAULT_TOLERANCE_MS, MAX_BEARERS, MAX_LINKS_PER_PEER};
use crate::link::{self, Accepted, BcastStamp, DownReason, Link, LinkIo, LinkSignal, SendFault, Wakeup};
use crate::monitor::MonitorSession;
use crate::outbox::{BearerId, FrameBatch, FrameSink, Target};
use crate::pool::Pool;
use crate::time::Time;
use crate::wire::{MediaAddr, Message, User, View};

/// Interval of the node timer without links, milliseconds. Spec: tipc.md §5.6.
const IDLE_TICK_MS: u32 = 10_000;
/// Longest interval of the node timer with links, milliseconds. Spec: tipc.md §5.6.
const MAX_TICK_MS: u32 = 500;

/// Context of every operation on a peer: time, destination of frames, and the broadcast state to stamp.
pub(crate) struct Ctx<'a> {
    pub(crate) now: Time,
    pub(crate) frames: &'a mut FrameBatch,
    pub(crate) pool: &'a mut Pool,
    pub(crate) stamp: &'a BcastStamp,
    /// Memory that the peer's links may still use for packets that arrive early, bytes.
    pub(crate) deferral_room: usize,
    /// The switch needs no tick in which the links do nothing.
    pub(crate) skips_idle_ticks: bool,
}

/// Events of a peer that the switch must handle, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    LinkUp {
        bearer: BearerId,
        mtu: u16,
    },
    LinkDown {
        bearer: BearerId,
        mtu: u16,
        name: String,
        reason: DownReason,
    },
    /// The size of packets of a link that is up has changed.
    Mtu {
        bearer: BearerId,
        from: u16,
        to: u16,
    },
    /// A search for the size that the path carries is over.
    Path(BearerId),
    ContactUp,
    ContactLost,
    /// The link that came up with this id is down; its link-state binding must be withdrawn.
    LinkGone(u32),
}

/// A link and the media address it sends to.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) link: Link,
    pub(crate) media: MediaAddr,
    /// The link's id when it came up; a peer that returns may use another bearer.
    pub(super) up_as: u32,
    /// The link's MTU as the last notice named it, bytes.
    pub(super) mtu: u16,
    /// State of the link in the bearer's monitor.
    pub(crate) monitor: MonitorSession,
}

/// A peer node.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) addr: NodeAddr,
    pub(crate) id: NodeId,
    pub(crate) capabilities: u16,
    /// Signature of the peer's last accepted discovery message.
    pub(crate) signature: Option<u16>,
    pub(crate) state: State,
    /// Most peers have one link: a place without one takes no room.
    pub(super) slots: [Option<Box<Slot>>; MAX_BEARERS],
    /// Bearers of the links that carry traffic, by link selector.
    pub(super) active: [Option<BearerId>; 2],
    /// Messages in order from all links, to be dispatched by the switch.
    pub(crate) delivered: VecDeque<Message>,
    pub(crate) wakeups: Vec<Wakeup>,
    pub(crate) notices: Vec<Notice>,
    pub(super) signals: Vec<LinkSignal>,
    pub(super) sync_point: u16,
    pub(crate) next_tick: Time,
    /// Idle ticks before the next one, which are not called.
    skipped: u32,
    /// Time at which contact was lost, or the node was first seen.
    pub(crate) down_since: Time,
}

impl Peer {
    pub(crate) fn new(now: Time, addr: NodeAddr, id: NodeId, capabilities: u16) -> Self {
        Self {
            addr,
            id,
            capabilities,
            signature: None,
            state: State::SelfDownPeerLeaving,
            slots: Default::default(),
            active: [None; 2],
            delivered: VecDeque::new(),
            wakeups: Vec::new(),
            notices: Vec::new(),
            signals: Vec::new(),
            sync_point: 0,
            next_tick: now.plus_millis(u64::from(IDLE_TICK_MS)),
            skipped: 0,
            down_since: now,
        }
    }

    pub(crate) fn has(&self, capability: u16) -> bool {
        self.capabilities & capability != 0
    }

    /// Sets the capabilities of a peer that restarted, perhaps with another version.
    pub(crate) fn set_capabilities(&mut self, capabilities: u16) {
        self.capabilities = capabilities;
        for slot in self.slots.iter_mut().flatten() {
            slot.link.set_peer_capabilities(capabilities);
        }
    }

    /// Sets the bytes that encryption adds to a packet of its links.
    pub(crate) fn set_overhead(&mut self, bytes: u16) {
        self.slots.iter_mut().flatten().for_each(|slot| slot.link.set_overhead(bytes));
    }

    pub(crate) fn is_up(&self) -> bool {
        self.active[0].is_some()
    }

    pub(crate) fn slot(&self, bearer: BearerId) -> Option<&Slot> {
        self.slots.get(usize::from(bearer))?.as_deref()
    }

    pub(crate) fn slot_mut(&mut self, bearer: BearerId) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(bearer))?.as_deref_mut()
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = (BearerId, &Slot)> {
        (0..).zip(&self.slots).filter_map(|(id, slot)| Some((id, slot.as_deref()?)))
    }

    /// Bearer of the link that carries traffic with this selector.
    pub(crate) fn active_bearer(&self, selector: u32) -> Option<BearerId> {
        self.active.get((selector & 1) as usize).copied().flatten()
    }

    /// Largest packet that the link with this selector sends.
    pub(crate) fn mss(&self, selector: u32) -> Option<usize> {
        Some(self.slot(self.active_bearer(selector)?)?.link.mss())
    }

    /// Memory of packets that wait for earlier ones, bytes.
    pub(crate) fn deferred_bytes(&self) -> usize {
        self.slots.iter().flatten().map(|slot| slot.link.deferred_bytes()).sum()
    }

    /// True while both ends see the contact, and a link has delivered a packet in order.
    pub(crate) fn is_established(&self) -> bool {
        let has_delivered = |(_, slot): (BearerId, &Slot)| {
            slot.link.is_up() && slot.link.rcv_nxt() != slot.link.config().first_seqno
        };
        self.state == State::SelfUpPeerUp && self.links().any(has_delivered)
    }

    /// Holds the acknowledgements of all links, or no longer; see [`Link::hold_ack`].
    pub(crate) fn hold_acks(&mut self, on: bool) {
        for slot in self.slots.iter_mut().flatten() {
            slot.link.hold_ack(on);
        }
    }

    /// True if packets are waiting on the link with this selector.
    pub(crate) fn has_backlog(&self, selector: u32) -> bool {
        let slot = self.active_bearer(selector).and_then(|bearer| self.slot(bearer));
        slot.is_some_and(|slot| slot.link.queue_lengths().1 > 0)
    }

    /// Whether the link with this selector can take another message.
    pub(crate) fn takes(&self, selector: u32) -> bool {
        let slot = self.active_bearer(selector).and_then(|bearer| self.slot(bearer));
        slot.is_none_or(|slot| slot.link.takes())
    }

    /// The congested levels by link selector (4 bits each) and importance; `before` is the previous result.
    pub(crate) fn congestion(&self, before: u8) -> u8 {
        let of = |selector: u8| {
            let slot = self.active_bearer(selector.into()).and_then(|bearer| self.slot(bearer));
            slot.map_or(0, |slot| slot.link.congestion(before >> (4 * selector) & 0xf) << (4 * selector))
        };
        of(0) | of(1)
    }

    /// True if one more link is allowed.
    pub(crate) fn can_link(&self) -> bool {
        self.slots.iter().flatten().count() < MAX_LINKS_PER_PEER
    }

    /// Adds a link on a bearer and sends its first message at once instead of at the next tick: contact is faster, and
    /// a peer that does not know this node yet ignores the message.
    pub(crate) fn add_link(&mut self, bearer: BearerId, link: Link, media: MediaAddr, ctx: &mut Ctx<'_>) {
        if let Some(slot) = self.slots.get_mut(usize::from(bearer)) {
            let monitor = MonitorSession::default();
            *slot = Some(Box::new(Slot { link, media, up_as: 0, mtu: 0, monitor }));
        }
        self.arm(ctx);
        self.send_setup(bearer, false, ctx);
    }

    /// The peer moved to another media address: restarts its link.
    pub(crate) fn move_link(&mut self, bearer: BearerId, media: MediaAddr, ctx: &mut Ctx<'_>) {
        self.take_down(bearer, DownReason::AddressChange, ctx);
        if let Some(slot) = self.slot_mut(bearer) {
            slot.media = media;
            slot.link.has_moved();
        }
    }

    /// Takes the link of a bearer down and removes it.
    pub(crate) fn remove_link(&mut self, bearer: BearerId, reason: DownReason, ctx: &mut Ctx<'_>) {
        self.take_down(bearer, reason, ctx);
        if let Some(slot) = self.slots.get_mut(usize::from(bearer)) {
            *slot = None;
        }
    }

    /// Interval of the node timer, milliseconds. Spec: tipc.md §5.6.
    pub(crate) fn tick_ms(&self) -> u32 {
        let interval =
            |(_, slot): (BearerId, &Slot)| (slot.link.config().tolerance_ms / 4).clamp(1, MAX_TICK_MS);
        self.links().map(interval).min().unwrap_or(IDLE_TICK_MS)
    }

    /// Longest tolerance of the links, milliseconds.
    pub(crate) fn tolerance_ms(&self) -> u32 {
        self.slots
            .iter()
            .flatten()
            .map(|s| s.link.config().tolerance_ms)
            .max()
            .unwrap_or(DEFAULT_TOLERANCE_MS)
    }

    pub(crate) fn arm(&mut self, ctx: &Ctx<'_>) {
        let interval_ms = self.tick_ms();
        for slot in self.slots.iter_mut().flatten() {
            slot.link.set_interval_ms(interval_ms);
        }
        self.skipped = if ctx.skips_idle_ticks { self.idle_ticks() } else { 0 };
        self.next_tick = ctx.now.plus_millis(u64::from(interval_ms) * u64::from(self.skipped + 1));
    }

    /// Number of coming ticks in which no link does anything. Forged discovery messages make the node know thousands
    /// of nodes that do not exist: their ticks would cost more than the messages.
    fn idle_ticks(&self) -> u32 {
        self.slots.iter().flatten().map(|slot| slot.link.idle_ticks()).min().unwrap_or(0)
    }

    /// Sends RESET or ACTIVATE, depending on the link's state. `stopping`: this end has just gone down.
    pub(super) fn send_setup(&mut self, bearer: BearerId, stopping: bool, ctx: &mut Ctx<'_>) {
        self.with_link(bearer, ctx, |link, io| link.send_setup(stopping, io));
    }

    /// The peer looks for this node: sends a setup message, if the next one is due much later.
    pub(crate) fn try_again(&mut self, bearer: BearerId, ctx: &mut Ctx<'_>) {
        self.with_link(bearer, ctx, |link, io| {
            if link.hesitates() {
                link.send_setup(false, io);
            }
        });
    }

    /// [`Link::tell_session`].
    pub(crate) fn tell_session(&mut self, bearer: BearerId, ctx: &mut Ctx<'_>) {
        self.with_link(bearer, ctx, Link::tell_session);
    }

    /// Sends a STATE, which reports missing packets.
    pub(crate) fn send_state(&mut self, bearer: BearerId, ctx: &mut Ctx<'_>) {
        self.with_link(bearer, ctx, |link, io| {
            if link.is_up() {
                link.send_state(io);
            }
        });
    }

    /// Asks the peer on all links for its acknowledgements.
    pub(crate) fn probe(&mut self, ctx: &mut Ctx<'_>) {
        for bearer in 0..MAX_BEARERS as BearerId {
            self.with_link(bearer, ctx, Link::probe);
        }
    }

    /// Proves the sizes of all paths again: the peer lacks large broadcasts.
    pub(crate) fn distrust_paths(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now;
        for bearer in 0..MAX_BEARERS as BearerId {
            self.with_link(bearer, ctx, |link, io| link.distrust_path(now, io));
        }
    }

    /// The links that are up.
    pub(crate) fn up_links(&self) -> impl Iterator<Item = (BearerId, &Link)> {
        self.links().map(|(bearer, slot)| (bearer, &slot.link)).filter(|(_, link)| link.is_up())
    }

    /// Runs `f` on the link of a bearer, then processes its signals.
    pub(crate) fn with_link<R>(
        &mut self,
        bearer: BearerId,
        ctx: &mut Ctx<'_>,
        f: impl FnOnce(&mut Link, &mut LinkIo<'_>) -> R,
    ) -> Option<R> {
        let slot = self.slots.get_mut(usize::from(bearer))?.as_mut()?;
        let mut io = LinkIo {
            frames: FrameSink::new(ctx.frames, bearer, Target::Unicast(slot.media)).for_peer(self.addr),
            pool: ctx.pool,
            bcast: ctx.stamp,
            deferral_room: ctx.deferral_room,
            delivered: &mut self.delivered,
            wakeups: &mut self.wakeups,
            signals: &mut self.signals,
        };
        let result = f(&mut slot.link, &mut io);
        if !self.signals.is_empty() {
            for signal in core::mem::take(&mut self.signals) {
                match signal {
                    LinkSignal::Up => self.link_up(bearer, ctx),
                    LinkSignal::Down(reason) => self.take_down(bearer, reason, ctx),
                    LinkSignal::Mtu { from, to } => {
                        if let Some(slot) = self.slot_mut(bearer) {
                            slot.mtu = to;
                        }
                        self.notices.push(Notice::Mtu { bearer, from, to });
                    }
                    LinkSignal::Path => self.notices.push(Notice::Path(bearer)),
                }
            }
        }
        if self.skipped > 0 && self.idle_ticks() == 0 {
            self.arm(ctx); // the peer answers
        }
        Some(result)
    }

    /// Passes a packet to the link of a bearer.
    pub(crate) fn receive(&mut self, view: View<'_>, bearer: BearerId, ctx: &mut Ctx<'_>) {
        let now = ctx.now;
        self.with_link(bearer, ctx, |link, io| {
            if view.user() != User::LinkProtocol {
                return link.receive(now, view, io);
            }
            let before = link.state();
            link.receive_protocol(now, view, io);
            if link.state() == link::State::Establishing && before != link::State::Establishing {
                link.send_setup(false, io); // at once, not at the next tick
            }
        });
    }

    /// [`Link::take_middle`], in full contact.
    pub(crate) fn take_middle(&mut self, view: View<'_>, bearer: BearerId) -> bool {
        let in_contact = self.state == State::SelfUpPeerUp && self.is_up() && self.skipped == 0;
        in_contact && self.slot_mut(bearer).is_some_and(|slot| slot.link.take_middle(view))
    }

    /// One tick of the node timer.
    pub(crate) fn tick(&mut self, ctx: &mut Ctx<'_>) {
        let skipped = core::mem::take(&mut self.skipped);
        for slot in self.slots.iter_mut().flatten() {
            slot.link.skip_ticks(skipped);
        }
        for bearer in 0..MAX_BEARERS as BearerId {
            let now = ctx.now;
            self.with_link(bearer, ctx, |link, io| link.tick(now, io));
        }
        self.arm(ctx);
    }

    /// Sends a message over the link given by its selector; `None` without contact.
    pub(crate) fn send(
        &mut self,
        message: Message,
        selector: u32,
        ctx: &mut Ctx<'_>,
    ) -> Option<Result<Accepted, SendFault>> {
        let bearer = self.active_bearer(selector)?;
        let now = ctx.now;
        self.with_link(bearer, ctx, |link, io| link.send(now, message, io))
    }

    pub(super) fn event(&mut self, event: Event) {
        if let Ok(next) = self.state.next(event) {
            self.state = next;
        }
    }
}
