//! Sending anycasts: of the receivers that are next in turn to the least loaded one. Decision 50.
//!
//! A lane shows what its reader has not read, the binding table's segment which links are congested. Receivers on this
//! node without a lane are known to the node only, which chooses among them.

use std::time::Instant;

use utipc_attach::{Failure, Request, SocketCall};
use utipc_core::Load;
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr};
use utipc_core::names::Lookup;
use utipc_core::names::replica::Choice;
use utipc_core::socket::{Destination, SendError};
use utipc_lanes::{Address, LaneError, Route, Sender};

use crate::attachment::lookup::Found;
use crate::error::Error;
use crate::send::SendPath;
use crate::send::outbox::SendHalf;

/// Receivers that one message tries. Each attempt but the last finds one full that was not known to be so.
const ATTEMPTS: u32 = 16;

/// The message.
#[derive(Clone, Copy, Debug)]
struct Anycast<'a> {
    addr: ServiceAddr,
    domain: NodeAddr,
    data: &'a [u8],
}

/// What a call has learnt about the receivers of its message.
#[derive(Debug, Default)]
struct Seen {
    /// Full sockets to which lanes lead, and whose readers are worth a wait; 0 for the lane to the node.
    full: Vec<u32>,
    /// Sockets whose lanes do not take a message of this size.
    refused: Vec<u32>,
    /// The node takes no message for its sockets without lanes.
    node_is_full: bool,
    /// The node takes no message for other nodes.
    others_are_full: bool,
    /// A receiver on another node, the link to which is congested.
    congested: Option<PortId>,
}

impl Seen {
    fn note_full(&mut self, port: u32) {
        if !self.full.contains(&port) {
            self.full.push(port);
        }
    }
}

/// What a lane has done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    Taken,
    /// There is none, or it does not take it now.
    Refused(LaneError),
}

/// What has become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Done,
    /// It waits for any of its receivers.
    Waits,
    /// This receiver did not take it: try another one.
    Not,
}

impl SendPath {
    /// Sends to one of the sockets bound to a service.
    pub(super) fn send_anycast(
        &self,
        half: &mut SendHalf,
        addr: ServiceAddr,
        domain: NodeAddr,
        data: &[u8],
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        self.process_events(half)?;
        let message = Anycast { addr, domain, data };
        let mut seen = Seen::default();
        for _ in 0..ATTEMPTS {
            let chosen = {
                let SendHalf { sole, lanes, .. } = &mut *half;
                let load = |found| self.load_of(lanes, &mut seen, found, data.len());
                self.base().attachment.choose(sole, addr, domain, load)?
            };
            let choice = match chosen {
                Found::Bound(choice) => choice,
                Found::Nothing => return Err(Failure::Send(SendError::HostUnreachable).into()),
                Found::AskDaemon => return self.send_through_node(half, data, node_request),
            };
            if !choice.has_others() {
                return self.send_to_found(half, choice.found, &message);
            }
            let sent = match choice.load {
                Load::Open(_) | Load::Brimming => {
                    self.try_receiver(half, &mut seen, choice.found, &message)?
                }
                Load::Full => self.wait_for_any(half, &mut seen, choice, &message)?,
                Load::Silent => {
                    let address = Address::Named(addr, choice.found.scope);
                    half.lanes.overloads += 1;
                    self.return_overload(choice.found.port, address, data);
                    Sent::Done
                }
            };
            match sent {
                Sent::Done => return Ok(Some(data.len())),
                Sent::Waits => return Ok(None),
                Sent::Not => {}
            }
        }
        // The receivers change faster than they can be tried: as if there were no choice.
        self.send_through_node(half, data, node_request)
    }

    /// Sends to the only receiver that there is, or leaves the lookup to another node.
    fn send_to_found(
        &self,
        half: &mut SendHalf,
        Lookup { port, node, scope }: Lookup,
        message: &Anycast<'_>,
    ) -> Result<Option<usize>, Error> {
        let found = PortId { port, node };
        let address = Address::Named(message.addr, scope);
        // The receiver is chosen here; the node must not choose another.
        let request = self.found_request(found, message);
        if port != 0 && self.base().is_here(node) {
            self.send_local(half, port, address, message.data, &request)
        } else if node.is_none() {
            self.send_through_node(half, message.data, &request)
        } else {
            self.send_remote(half, found, address, message.data, &request)
        }
    }

    fn found_request(&self, found: PortId, &Anycast { addr, domain, .. }: &Anycast<'_>) -> Request {
        SocketCall::SendFound { to: Destination::Service { addr, domain }, found }.on(self.base().port())
    }

    /// The load of a receiver as far as this process knows it.
    fn load_of(&self, lanes: &mut Sender, seen: &mut Seen, found: Lookup, bytes: usize) -> Load {
        let Lookup { port, node, .. } = found;
        if !self.base().is_here(node) {
            let level = self.level();
            // Sending finds that the daemon is gone.
            if self.base().attachment.is_congested(node, level).unwrap_or(false) {
                seen.congested = Some(PortId { port, node });
                return Load::Full;
            }
            return if seen.others_are_full { Load::Full } else { Load::IDLE };
        }
        match lanes.load(port, bytes) {
            None if seen.node_is_full => Load::Full,
            None => Load::IDLE,
            Some(_) if seen.refused.contains(&port) => Load::Silent,
            Some(Load::Full) => {
                seen.note_full(port);
                Load::Full
            }
            Some(load) => load,
        }
    }

    /// Sends to a receiver that is not known to be full.
    fn try_receiver(
        &self,
        half: &mut SendHalf,
        seen: &mut Seen,
        Lookup { port, node, scope }: Lookup,
        message: &Anycast<'_>,
    ) -> Result<Sent, Error> {
        let &Anycast { addr, data, .. } = message;
        let address = Address::Named(addr, scope);
        let found = PortId { port, node };
        let request = self.found_request(found, message);
        if !self.base().is_here(node) {
            if self.send_remote(half, found, address, data, &request)?.is_some() {
                return Ok(Sent::Done);
            }
            seen.others_are_full = true;
            seen.note_full(0);
            return Ok(Sent::Not);
        }
        match self.try_lane(half, port, address, data)? {
            Tried::Taken => return Ok(Sent::Done),
            Tried::Refused(error) if error.is_over() => {}
            Tried::Refused(LaneError::Full) => return Ok(Sent::Not),
            Tried::Refused(_) => {
                seen.refused.push(port);
                return Ok(Sent::Not);
            }
        }
        if self.send_through_node(half, data, &request)?.is_none() {
            seen.node_is_full = true;
            return Ok(Sent::Not);
        }
        if half.lanes.note_request_to(port) {
            self.base().ask_for_lane(port)?;
        }
        Ok(Sent::Done)
    }

    /// Sends through the lane to a local socket, in a larger ring if that is necessary.
    #[inline]
    fn try_lane(
        &self,
        half: &mut SendHalf,
        port: u32,
        address: Address,
        data: &[u8],
    ) -> Result<Tried, Error> {
        loop {
            self.process_events(half)?;
            let sent = half.lanes.send_to(self.base().own(), self.options(), port, address, data);
            let Err(error) = sent else { return Ok(Tried::Taken) };
            if !self.resolves(half, Route::Socket(port), error)? {
                return Ok(Tried::Refused(error));
            }
        }
    }

    /// All receivers are full: waits for any of them, as long as one is worth a wait.
    #[cold]
    fn wait_for_any(
        &self,
        half: &mut SendHalf,
        seen: &mut Seen,
        choice: Choice,
        message: &Anycast<'_>,
    ) -> Result<Sent, Error> {
        let mut is_at_node = seen.node_is_full || seen.others_are_full;
        if let Some(found) = seen.congested {
            // The node takes it, or says when it will.
            let request = self.found_request(found, message);
            if self.send_through_node(half, message.data, &request)?.is_some() {
                return Ok(Sent::Done);
            }
            is_at_node = true;
        }
        let service = (message.addr, choice.receivers);
        let waits = half.lanes.waits_for_any(&seen.full, is_at_node, service, Instant::now());
        seen.full.clear();
        Ok(if waits { Sent::Waits } else { Sent::Not })
    }
}
