//! Sending anycasts: of the receivers that are next in turn to the least loaded one. Decision 38.
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
use utipc_core::stack::Stack;
use utipc_lanes::{Address, LaneError, Route, Sender};

use crate::state::SendHalf;
use crate::{Error, Socket};

/// Receivers that one message tries. Each attempt but the last finds one full that was not known to be so.
const ATTEMPTS: u32 = 16;

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

/// What has become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Done,
    /// It waits for any of its receivers.
    Waits,
    /// This receiver did not take it: try another one.
    Not,
}

impl Socket {
    /// Sends to one of the sockets bound to a service.
    pub(crate) fn send_anycast(
        &self,
        half: &mut SendHalf,
        (addr, domain): (ServiceAddr, NodeAddr),
        data: &[u8],
        node_request: &Request,
    ) -> Result<Option<usize>, Error> {
        self.process_sender_events(half)?;
        let mut seen = Seen::default();
        for _ in 0..ATTEMPTS {
            let chosen = {
                let SendHalf { sole, lanes, .. } = &mut *half;
                self.attachment
                    .choose(sole, addr, domain, |found| self.load_of(lanes, &mut seen, found, data.len()))?
            };
            let Some(chosen) = chosen else {
                return self.send_through_node(half, data, node_request);
            };
            let Some(choice) = chosen else {
                return Err(Failure::Send(SendError::HostUnreachable).into());
            };
            if !choice.has_others() {
                return self.send_to_found(half, choice.found, (addr, domain), data);
            }
            let sent = match choice.load {
                Load::Open(_) | Load::Brimming => {
                    self.try_receiver(half, &mut seen, choice.found, (addr, domain), data)?
                }
                Load::Full => self.wait_for_any(half, &mut seen, choice, (addr, domain), data)?,
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
        (addr, domain): (ServiceAddr, NodeAddr),
        data: &[u8],
    ) -> Result<Option<usize>, Error> {
        let found = PortId { port, node };
        // The receiver is chosen here; the node must not choose another.
        let request = self.found_request(found, (addr, domain));
        if port != 0 && self.is_here(node) {
            self.send_local(half, port, Address::Named(addr, scope), data, &request)
        } else if node.is_none() {
            self.send_through_node(half, data, &request)
        } else {
            self.send_remote(half, found, Address::Named(addr, scope), data, &request)
        }
    }

    fn found_request(&self, found: PortId, (addr, domain): (ServiceAddr, NodeAddr)) -> Request {
        SocketCall::SendFound { to: Destination::Service { addr, domain }, found }.on(self.port())
    }

    /// The load of a receiver as far as this process knows it.
    fn load_of(&self, lanes: &mut Sender, seen: &mut Seen, found: Lookup, bytes: usize) -> Load {
        let Lookup { port, node, .. } = found;
        if !self.is_here(node) {
            let level = Stack::level(self.port(), self.state.options().importance);
            // Sending finds that the daemon is gone.
            if self.attachment.is_congested(node, level).unwrap_or(false) {
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
        (addr, domain): (ServiceAddr, NodeAddr),
        data: &[u8],
    ) -> Result<Sent, Error> {
        let address = Address::Named(addr, scope);
        let found = PortId { port, node };
        let request = self.found_request(found, (addr, domain));
        if !self.is_here(node) {
            if self.send_remote(half, found, address, data, &request)?.is_some() {
                return Ok(Sent::Done);
            }
            seen.others_are_full = true;
            seen.note_full(0);
            return Ok(Sent::Not);
        }
        match self.try_lane(half, port, address, data)? {
            Ok(()) => return Ok(Sent::Done),
            Err(error) if error.is_over() => {}
            Err(LaneError::Full) => return Ok(Sent::Not),
            Err(_) => {
                seen.refused.push(port);
                return Ok(Sent::Not);
            }
        }
        if self.send_through_node(half, data, &request)?.is_none() {
            seen.node_is_full = true;
            return Ok(Sent::Not);
        }
        if half.lanes.note_request_to(port) {
            self.ask_for_lane(port)?;
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
    ) -> Result<Result<(), LaneError>, Error> {
        loop {
            self.process_sender_events(half)?;
            let Err(error) = half.lanes.send_to(self.own(), self.state.options(), port, address, data) else {
                return Ok(Ok(()));
            };
            if !self.resolves(half, Route::Socket(port), error)? {
                return Ok(Err(error));
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
        (addr, domain): (ServiceAddr, NodeAddr),
        data: &[u8],
    ) -> Result<Sent, Error> {
        let mut is_at_node = seen.node_is_full || seen.others_are_full;
        if let Some(found) = seen.congested {
            // The node takes it, or says when it will.
            let request = self.found_request(found, (addr, domain));
            if self.send_through_node(half, data, &request)?.is_some() {
                return Ok(Sent::Done);
            }
            is_at_node = true;
        }
        let service = (addr, choice.receivers);
        let waits = half.lanes.waits_for_any(&seen.full, is_at_node, service, Instant::now());
        seen.full.clear();
        Ok(if waits { Sent::Waits } else { Sent::Not })
    }
}
