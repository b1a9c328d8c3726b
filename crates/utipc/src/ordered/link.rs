//! The transport of a member: a socket in a TIPC group, whose events are the peers of the protocol.
//!
//! Sending never waits, because a member that waits for others does not read, and all could wait for each other. What a
//! window refuses stays here, in order, and nothing more is taken from the protocol meanwhile. A peer that refuses for
//! too long is *muted*: the protocol is told that it is lost. Once it is heard again, RESET and its answer make both
//! ends forget the old path before either uses the new one. Spec: docs/spec/vsync.md §6.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use utipc_core::Time;
use utipc_os::reactor;
use utipc_vsync::{Member as Machine, MemberId, Target};

use super::control::Control;
use super::incoming::{id_of, port_of};
use crate::engine::Wait;
use crate::{Destination, Error, GroupIncoming, Member, PortId, Result, SendError, Socket};

/// Messages and events that are read at once.
const READS: usize = 64;
/// Up to this number of peers a message goes to each: a broadcast after messages to single members needs their
/// acknowledgement.
const FEW: usize = 3;
/// Time after which a refused broadcast goes to each peer, so that only those that do not read lack it.
const BROADCAST_LIMIT: Duration = Duration::from_millis(20);
/// Time after which a peer that does not read is muted. Longer than the tolerance of a link, which tells more.
const STALL_LIMIT: Duration = Duration::from_secs(2);
/// Shortest and longest pause before a refused message is tried again.
const PAUSES: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(5)];
/// Bytes that wait to be sent before nothing more is read, so that a member that asks and does not read is bounded.
const MAX_QUEUED: usize = 32 << 20;
/// Instances of members that are remembered, so that a view can still name them when they are gone.
const REMEMBERED: usize = 1024;

/// A member of the TIPC group.
#[derive(Debug, Default)]
struct Peer {
    /// It did not read: the protocol knows that it is lost.
    muted: bool,
    /// The number of the RESET that it has to answer.
    reset: Option<u32>,
}

/// A message that is being sent.
#[derive(Debug)]
struct Pending {
    bytes: Arc<[u8]>,
    to: To,
    since: Time,
    retry_at: Time,
    pause: Duration,
}

#[derive(Debug)]
enum To {
    All,
    /// The peers that have not taken it yet.
    Each(Vec<PortId>),
}

/// Why a link stopped reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing is left.
    Done,
    /// There may be more.
    More,
    /// Too much waits to be sent.
    Backlog,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkStats {
    /// Messages of sockets that are not known as members, or are muted.
    pub(super) ignored: u64,
    /// Peers muted.
    pub(super) stalled: u64,
}

/// The socket of a member and its peers.
#[derive(Debug)]
pub(super) struct Link {
    socket: Socket,
    peers: BTreeMap<PortId, Peer>,
    instances: BTreeMap<PortId, u32>,
    pending: Option<Pending>,
    next_reset: u32,
    stall_limit: Duration,
    stats: LinkStats,
}

impl Link {
    pub(super) fn new(socket: Socket, instance: u32, slow_limit: Duration) -> Self {
        let instances = BTreeMap::from([(socket.port(), instance)]);
        let stall_limit = slow_limit.min(STALL_LIMIT);
        let (peers, stats) = (BTreeMap::new(), LinkStats::default());
        Self { socket, peers, instances, pending: None, next_reset: 1, stall_limit, stats }
    }

    pub(super) fn stats(&self) -> LinkStats {
        self.stats
    }

    /// A member with its instance; 0 if that is not known any more.
    pub(super) fn member(&self, id: MemberId) -> Member {
        let port = port_of(id);
        Member { port, instance: self.instances.get(&port).copied().unwrap_or_default() }
    }

    /// Passes what has arrived to the protocol, at most [`READS`] messages.
    pub(super) fn receive(&mut self, machine: &mut Machine, now: Time) -> Result<Reading> {
        for _ in 0..READS {
            if machine.queued() > MAX_QUEUED {
                return Ok(Reading::Backlog);
            }
            // With a daemon, a receive that finds nothing costs a request.
            if self.socket.descriptor().is_ok_and(|descriptor| !reactor::is_readable(descriptor)) {
                return Ok(Reading::Done);
            }
            match self.socket.receive_in_group(Wait::Never) {
                Ok(GroupIncoming::Joined(member)) => self.joined(machine, now, member),
                Ok(GroupIncoming::Left(member) | GroupIncoming::Evicted(member)) => {
                    self.left(machine, now, self.global(member.port));
                }
                Ok(GroupIncoming::Message { data, from, .. }) => {
                    self.message(machine, now, self.global(from.port), &data);
                }
                Err(error) if error.is_would_block() => return Ok(Reading::Done),
                Err(error) => return Err(error),
            }
        }
        Ok(Reading::More)
    }

    /// The address of a member as other nodes know it.
    fn global(&self, port: PortId) -> PortId {
        port.on(self.socket.port().node)
    }

    fn joined(&mut self, machine: &mut Machine, now: Time, member: Member) {
        let port = self.global(member.port);
        self.instances.insert(port, member.instance);
        if self.instances.len() > REMEMBERED {
            let own = self.socket.port();
            let view: Vec<PortId> =
                machine.view().into_iter().flat_map(|v| v.members()).map(port_of).collect();
            let peers = &self.peers;
            let needed = |p: &PortId| *p == own || *p == port || peers.contains_key(p) || view.contains(p);
            self.instances.retain(|port, _| needed(port));
        }
        self.left(machine, now, port);
        self.peers.insert(port, Peer::default());
        machine.peer_up(now, id_of(port));
    }

    fn left(&mut self, machine: &mut Machine, now: Time, port: PortId) {
        if self.peers.remove(&port).is_some_and(|peer| !peer.muted) {
            machine.peer_down(now, id_of(port));
        }
    }

    fn message(&mut self, machine: &mut Machine, now: Time, from: PortId, data: &[u8]) {
        let Some(peer) = self.peers.get_mut(&from) else {
            self.stats.ignored += 1;
            return;
        };
        match Control::parse(data) {
            Some(Control::Reset(number)) => {
                if !peer.muted {
                    machine.peer_down(now, id_of(from));
                }
                // The answer goes first: the sender ignores everything before it.
                let answered = self.send_control(from, Control::ResetAck(number));
                self.peers.insert(from, Peer { muted: !answered, reset: None });
                if answered {
                    machine.peer_up(now, id_of(from));
                }
            }
            Some(Control::ResetAck(number)) => {
                if peer.reset == Some(number) {
                    *peer = Peer::default();
                    machine.peer_up(now, id_of(from));
                }
            }
            None if peer.muted => {
                self.stats.ignored += 1;
                if peer.reset.is_none() {
                    self.reset(from);
                }
            }
            None => machine.receive(now, id_of(from), data),
        }
    }

    /// Asks a muted peer, which has been heard again, to forget the old path.
    fn reset(&mut self, to: PortId) {
        let number = self.next_reset;
        self.next_reset = self.next_reset.wrapping_add(1);
        if self.send_control(to, Control::Reset(number))
            && let Some(peer) = self.peers.get_mut(&to)
        {
            peer.reset = Some(number);
        }
    }

    fn send_control(&mut self, to: PortId, control: Control) -> bool {
        self.socket.send_waiting(&control.encode(), Some(Destination::Port(to)), Wait::Never).is_ok()
    }

    /// Sends what the protocol has, as far as the windows of the peers allow.
    pub(super) fn send(&mut self, machine: &mut Machine, now: Time) -> Result<()> {
        loop {
            if self.pending.is_none() {
                let Some(transmit) = machine.poll_transmit() else { return Ok(()) };
                let to = self.receivers(transmit.to);
                let [pause, _] = PAUSES;
                self.pending = Some(Pending { bytes: transmit.bytes, to, since: now, retry_at: now, pause });
            }
            if !self.send_pending(now)? && !self.mute_stalled(machine, now) {
                return Ok(());
            }
            self.pending = None;
        }
    }

    fn receivers(&self, target: Target) -> To {
        let heard = |(port, peer): (&PortId, &Peer)| (!peer.muted).then_some(*port);
        match target {
            Target::One(id) => {
                let known = self.peers.get_key_value(&port_of(id)).and_then(heard);
                To::Each(known.into_iter().collect())
            }
            Target::All => {
                let peers: Vec<PortId> = self.peers.iter().filter_map(heard).collect();
                if peers.len() > FEW && peers.len() == self.peers.len() { To::All } else { To::Each(peers) }
            }
        }
    }

    /// Sends the pending message; returns false if a window does not allow it now.
    fn send_pending(&mut self, now: Time) -> Result<bool> {
        let Some(pending) = self.pending.as_mut() else { return Ok(true) };
        if matches!(pending.to, To::All) {
            if is_sent(&self.socket, &pending.bytes, None)? {
                return Ok(true);
            }
            if now.since(pending.since) >= BROADCAST_LIMIT {
                let peers = self.peers.iter().filter(|(_, peer)| !peer.muted);
                pending.to = To::Each(peers.map(|(port, _)| *port).collect());
            }
        }
        if let To::Each(peers) = &mut pending.to {
            let mut waiting = Vec::new();
            for peer in std::mem::take(peers) {
                if self.peers.get(&peer).is_some_and(|known| !known.muted)
                    && !is_sent(&self.socket, &pending.bytes, Some(peer))?
                {
                    waiting.push(peer);
                }
            }
            *peers = waiting;
            if peers.is_empty() {
                return Ok(true);
            }
        }
        pending.retry_at = now + pending.pause;
        let [_, longest] = PAUSES;
        pending.pause = (pending.pause * 2).min(longest);
        Ok(false)
    }

    /// Gives up the peers that have not read for too long; returns whether the pending message is done with that.
    fn mute_stalled(&mut self, machine: &mut Machine, now: Time) -> bool {
        let Some(Pending { to: To::Each(stalled), since, .. }) = &self.pending else { return false };
        if now.since(*since) < self.stall_limit {
            return false;
        }
        for port in stalled {
            if let Some(peer) = self.peers.get_mut(port) {
                *peer = Peer { muted: true, reset: None };
                self.stats.stalled += 1;
                machine.peer_down(now, id_of(*port));
            }
        }
        true
    }

    /// The next time to call [`Link::send`] although nothing has happened.
    pub(super) fn deadline(&self) -> Time {
        self.pending.as_ref().map_or(Time::NEVER, |pending| pending.retry_at)
    }

    /// A peer that does not read, if a message waits for one.
    pub(super) fn stalled(&self) -> Option<PortId> {
        match &self.pending.as_ref()?.to {
            To::Each(peers) => peers.first().copied(),
            To::All => None,
        }
    }
}

/// Sends a message; false if a window or queue does not allow it now. A receiver that is gone needs none: the event
/// that tells it follows.
fn is_sent(socket: &Socket, bytes: &[u8], to: Option<PortId>) -> Result<bool> {
    match socket.send_waiting(bytes, to.map(Destination::Port), Wait::Never) {
        Ok(_) => Ok(true),
        Err(error) if error.is_unreachable() => Ok(true),
        Err(Error::WouldBlock { .. } | Error::Send { why: SendError::NoBuffers, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
