//! The send path: through a lane if there is one, otherwise by a request to the daemon.
//!
//! | Destination | File |
//! |---|---|
//! | the peer of a connection, a socket | `lanes.rs` |
//! | one of the sockets bound to a service | `anycast.rs` |
//! | all sockets bound to a range | `multicast.rs` |
//! | members of a group | `group.rs`, `members.rs` |
//! | whatever has no lane | `node.rs` |

mod anycast;
mod group;
mod lanes;
mod members;
mod multicast;
mod node;
pub(crate) mod outbox;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use utipc_attach::{Failure, LaneCall, LaneId, Request, SocketCall};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Destination, SendError, SocketKind};
use utipc_core::stack::Stack;
use utipc_lanes::{Address, Pair, SendOptions};
use utipc_os::Wait;
use utipc_os::packets::Far;
use utipc_os::spin::Spin;

use crate::base::Base;
use crate::error::Error;
use crate::ready::Readiness;
use crate::send::outbox::{Outbox, SendHalf};
use crate::state::Half;
use crate::waiting::{BeforeSleep, Direction};

/// Period at which a sender whose message does not fit its lane's ring requests a larger one.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The send path of a socket.
#[derive(Debug)]
pub(crate) struct SendPath {
    ready: Readiness,
}

/// A call that waits until there is room for this many bytes.
struct ForRoom<'a> {
    path: &'a SendPath,
    bytes: usize,
}

impl SendPath {
    pub(crate) fn new(ready: Readiness) -> Self {
        Self { ready }
    }

    #[inline]
    fn base(&self) -> &Base {
        self.ready.base()
    }

    #[inline]
    fn outbox(&self) -> &Outbox {
        &self.base().state.outbox
    }

    #[inline]
    fn options(&self) -> SendOptions {
        self.outbox().options()
    }

    /// The [level](Stack::level) at which a congested link holds this socket's messages up.
    fn level(&self) -> u8 {
        Stack::level(self.base().port(), self.options().importance)
    }

    /// Sends `data`. Returns the number of bytes taken, or `None` if there was no room within `wait`.
    #[inline]
    pub(crate) fn send(
        &self,
        data: &[u8],
        to: Option<Destination>,
        wait: Wait,
    ) -> Result<Option<usize>, Error> {
        if data.len() > MAX_USER_DATA && self.base().kind() != SocketKind::Stream {
            return Err(Failure::Send(SendError::MessageSize).into());
        }
        let room = ForRoom { path: self, bytes: data.len() };
        let sent = room.block(wait, || self.try_send(data, to))?;
        if sent.is_none() {
            self.note_full_lane(data.len())?;
        }
        Ok(sent)
    }

    /// [`SendPath::send`] in a group, with a key for slow members. Without a group the key has no effect.
    pub(crate) fn send_keyed(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<Option<usize>, Error> {
        if data.len() > MAX_USER_DATA {
            return Err(Failure::Send(SendError::MessageSize).into());
        }
        let request = SocketCall::SendKeyed { to, key }.on(self.base().port());
        let room = ForRoom { path: self, bytes: data.len() };
        let sent = room.block(wait, || self.send_through_node(&mut self.outbox().lock(), data, &request));
        match sent {
            // The socket is in no group.
            Err(Error::Failed(Failure::State)) => self.send(data, to, wait),
            sent => sent,
        }
    }

    fn try_send(&self, data: &[u8], to: Option<Destination>) -> Result<Option<usize>, Error> {
        let mut half = self.outbox().lock();
        let sent = self.send_on(&mut half, data, to);
        let to_wake = half.lanes.take_lanes_to_wake();
        drop(half);
        if !to_wake.is_empty() {
            self.wake_readers(to_wake)?;
        }
        if self.base().state.inbox.events.has_some() {
            // The reply announced a lane to read. Its messages make the descriptor readable only once it is armed.
            self.ready.after_receive(true, false)?;
        }
        sent
    }

    /// Asks the daemon to wake the readers of these lanes, which wait by descriptors, and for the means to wake them
    /// without it from now on.
    #[cold]
    fn wake_readers(&self, lanes: Vec<LaneId>) -> Result<(), Error> {
        for lane in &lanes {
            if self.outbox().lock().lanes.wants_far_end(*lane) {
                let far = self.base().fetch_end(&Request::Lane(LaneCall::FarEnd { lane: *lane }));
                match far.map(Far::new) {
                    Ok(Some(far)) => self.outbox().lock().lanes.set_far_end(*lane, far),
                    Ok(None) | Err(Error::Failed(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.base().wake_peers(lanes)
    }

    fn send_on(
        &self,
        half: &mut SendHalf,
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<Option<usize>, Error> {
        let node_request = SocketCall::Send { to }.on(self.base().port());
        if self.base().kind().is_connection_oriented() {
            return self.send_connected(half, data, to, &node_request);
        }
        if self.base().state.in_group.get() {
            return self.send_to_members(half, data, to, &node_request);
        }
        match to.or(half.default_to) {
            Some(Destination::Port(port)) if self.base().is_here(port.node) => {
                self.send_local(half, port.port, Address::Direct, data, &node_request)
            }
            Some(Destination::Port(port)) => {
                self.send_remote(half, port, Address::Direct, data, &node_request)
            }
            Some(Destination::Service { addr, domain }) if self.may_look_up() => {
                self.send_anycast(half, addr, domain, data, &node_request)
            }
            Some(Destination::Range(range)) if range.is_valid() && self.may_look_up() => {
                self.send_multicast(half, range, data, &node_request)
            }
            _ => self.send_through_node(half, data, &node_request),
        }
    }

    /// Whether this process chooses the receiver of an anycast. The node chooses for a hosted socket, whose messages
    /// all go through it.
    fn may_look_up(&self) -> bool {
        !self.base().state.hosted.get()
    }

    /// Notes that a connection to `to` was requested.
    pub(crate) fn connects_to(&self, to: Option<Destination>) {
        if let Some(Destination::Service { addr, .. }) = to {
            self.base().state.inbox.set_service(addr.into());
        }
    }

    /// After a send that would block on a lane: makes the descriptor unwritable until there is room.
    #[cold]
    fn note_full_lane(&self, bytes: usize) -> Result<(), Error> {
        if self.ready.polled().is_none() {
            return Ok(());
        }
        let sender = &mut self.outbox().lock().lanes;
        if sender.awaited_pairs().is_empty() {
            return Ok(());
        }
        self.ready.plug()?;
        if sender.want_room_told(bytes) {
            self.base().request(SocketCall::Rearm)?;
        } else if sender.take_new_wait()
            && let Some((_, longest)) = sender.waits_left()
        {
            let millis = u8::try_from(longest.as_millis() + 1).unwrap_or(u8::MAX);
            self.base().request(SocketCall::AwaitRoom { millis })?;
        }
        Ok(())
    }
}

impl Direction for ForRoom<'_> {
    const HALF: Half = Half::Send;

    #[inline]
    fn base(&self) -> &Base {
        self.path.base()
    }

    fn spin(&self) -> &Mutex<Spin> {
        &self.path.outbox().spin
    }

    fn chooses_lanes(&self) -> bool {
        self.path.outbox().lock().lanes.has_lanes()
    }

    fn peer_is_awake(&self) -> bool {
        self.awaited_pairs().iter().any(|pair| pair.peer_is_awake())
    }

    fn awaited_pairs(&self) -> Vec<Arc<Pair>> {
        self.path.outbox().lock().lanes.awaited_pairs()
    }

    fn longest_sleep(&self, has_pairs: bool) -> Option<Duration> {
        // Another thread may wait for another lane of this socket: the limit holds also without an arena.
        let left = self.path.outbox().lock().lanes.waits_left();
        let again = left.map_or(ASK_AGAIN, |(shortest, _)| shortest.min(ASK_AGAIN));
        (has_pairs || left.is_some()).then_some(again)
    }

    fn before_sleep(&self, noticed: u32) -> Result<BeforeSleep<'_>, Error> {
        let outbox = self.path.outbox();
        let sender = &mut outbox.lock().lanes;
        let has_room = match sender.sleeps_for_link(Instant::now()) {
            Some((node, level)) => !self.path.base().attachment.is_congested(node, level)?,
            None => !sender.awaited_pairs().is_empty() && sender.want_room(self.bytes),
        };
        // What the node answers may have changed since.
        let at_node = outbox.readiness() != noticed;
        Ok(BeforeSleep { is_ready: has_room || at_node || outbox.events.has_some(), asleep: None })
    }
}
