//! The receive path: messages from lanes, and from the node by requests.

pub(crate) mod inbox;
pub(crate) mod lanes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use utipc_attach::{Failure, Reply, SocketCall};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Received, RecvError, RecvOptions, SocketKind};
use utipc_lanes::{Check, Next, Pair, ReceiveCall, Receiver, Sink};
use utipc_os::Wait;
use utipc_os::spin::Spin;

use crate::base::{Base, unless_blocked};
use crate::error::Error;
use crate::ready::Readiness;
use crate::ready::descriptor::Descriptor;
use crate::receive::inbox::Inbox;
use crate::state::Half;
use crate::waiting::{BeforeSleep, Direction};

/// The receive path of a socket.
#[derive(Debug)]
pub(crate) struct ReceivePath {
    ready: Readiness,
}

/// A receive, and what it has done for the descriptor.
#[derive(Debug)]
struct Attempt<'a> {
    call: ReceiveCall<'a>,
    shown: Shown,
}

/// Whether a receive leaves the descriptor equal to the readiness of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// It has not changed the descriptor.
    Unknown,
    /// The last request has made it right.
    Right,
    /// The same, but a lane that was opened meanwhile counts too: the byte is gone, whatever is in the lane.
    Drained,
}

/// The bytes of a stream that one call has received.
#[derive(Debug)]
struct Collected {
    received: Option<Received>,
    shown: Shown,
}

impl<'a> Attempt<'a> {
    fn new(sink: Sink<'a>, options: RecvOptions) -> Self {
        Self { call: ReceiveCall::new(sink, options), shown: Shown::Unknown }
    }
}

impl ReceivePath {
    pub(crate) fn new(ready: Readiness) -> Self {
        Self { ready }
    }

    #[inline]
    fn base(&self) -> &Base {
        self.ready.base()
    }

    #[inline]
    fn inbox(&self) -> &Inbox {
        &self.base().state.inbox
    }

    /// Receives into `buffer`; `None` if nothing arrives within `wait`.
    #[inline]
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Option<Received>, Error> {
        if buffer.is_empty() {
            return Err(Failure::Receive(RecvError::EmptyBuffer).into());
        }
        let goal = self.goal(buffer.len(), options);
        if goal <= 1 {
            return self.receive_once(Attempt::new(Sink::Slice(buffer), options), wait);
        }
        let Collected { received, shown } = self.collect(buffer, goal, options, wait)?;
        self.show(received.is_some(), shown)?;
        Ok(received)
    }

    /// Receives one message (of a stream: the bytes that are there) into `data`, which is resized.
    pub(crate) fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>, Error> {
        self.receive_once(Attempt::new(Sink::Whole(data), RecvOptions::default()), wait)
    }

    /// Receives with one successful attempt.
    #[inline]
    fn receive_once(&self, mut attempt: Attempt<'_>, wait: Wait) -> Result<Option<Received>, Error> {
        self.ask_node_unless_waiting(wait);
        let done = self.block(wait, || self.try_receive(&mut attempt))?;
        self.show(done.is_some(), attempt.shown)?;
        Ok(done.map(|()| attempt.call.received))
    }

    /// Makes the descriptor right after a receive.
    #[inline]
    fn show(&self, got: bool, shown: Shown) -> Result<(), Error> {
        match shown {
            Shown::Right => Ok(()),
            Shown::Unknown => self.ready.after_receive(got, !got),
            Shown::Drained => self.ready.after_receive(got, true),
        }
    }

    /// Before a receive that must not wait: the bell may ring later than the program learns of a message by other
    /// means, so that a socket without lanes asks the node.
    #[inline]
    fn ask_node_unless_waiting(&self, wait: Wait) {
        if wait == Wait::Never {
            let mut receiver = self.inbox().lock();
            if !receiver.has_lanes() {
                receiver.node_is_ready();
            }
        }
    }

    /// Receives at least `goal` bytes of a stream, or fewer if no more arrive within `wait`.
    fn collect(
        &self,
        buffer: &mut [u8],
        goal: usize,
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Collected, Error> {
        let mut collected = Collected { received: None, shown: Shown::Unknown };
        let Collected { received: all, shown } = &mut collected;
        self.ask_node_unless_waiting(wait);
        let received = self.block(wait, || {
            loop {
                let done = all.as_ref().map_or(0, |part| part.len);
                let room = buffer.get_mut(done..).unwrap_or_default();
                let mut attempt = Attempt::new(Sink::Slice(room), options);
                let tried = self.try_receive(&mut attempt);
                *shown = attempt.shown;
                match tried {
                    Ok(Some(())) => {}
                    Ok(None) => return Ok(None),
                    Err(error) => return all.take().map(Some).ok_or(error),
                }
                let part = attempt.call.received;
                let ended = part.len == 0 || options.peek;
                match all {
                    Some(all) => all.len += part.len,
                    None => *all = Some(part),
                }
                if ended || all.as_ref().is_some_and(|all| all.len >= goal) {
                    return Ok(all.take());
                }
            }
        })?;
        // Bytes that arrived in time are a result even if there are too few.
        Ok(Collected { received: received.or(collected.received), ..collected })
    }

    /// Minimum number of bytes for which a blocking receive returns.
    fn goal(&self, buffer: usize, options: RecvOptions) -> usize {
        match self.base().kind() {
            SocketKind::Stream if options.wait_all => buffer,
            SocketKind::Stream => (self.inbox().low_water() as usize).min(buffer),
            _ => 1,
        }
    }

    /// One attempt; `None` if there is nothing.
    fn try_receive(&self, attempt: &mut Attempt<'_>) -> Result<Option<()>, Error> {
        let mut receiver = self.inbox().lock();
        let done = self.receive_on(&mut receiver, attempt);
        let to_wake = receiver.take_lanes_to_wake();
        drop(receiver);
        if !to_wake.is_empty() {
            self.base().wake_peers(to_wake)?;
        }
        done
    }

    fn receive_on(&self, receiver: &mut Receiver, attempt: &mut Attempt<'_>) -> Result<Option<()>, Error> {
        let Attempt { call, shown } = attempt;
        *shown = Shown::Unknown;
        loop {
            if self.inbox().events.has_some() {
                lanes::process_events(self.base(), receiver)?;
            }
            match receiver.next(self.base().own(), call, &self.inbox().ready) {
                found @ (Next::Got | Next::Nothing) => {
                    if *shown == Shown::Right && receiver.has_lanes() {
                        *shown = Shown::Drained;
                    }
                    return Ok(matches!(found, Next::Got).then_some(()));
                }
                Next::AskNode => {
                    let polled = self.polled_at_node(receiver);
                    let received = self.receive_from_node(&mut call.sink, call.options, polled);
                    if polled.is_some() {
                        *shown = Shown::Right;
                    }
                    match unless_blocked(received)? {
                        Some(received) => {
                            let rest = call.options.keep_remainder && !received.end_of_record;
                            receiver.node_served(call.options.peek || rest);
                            self.note_source(receiver, &received)?;
                            call.received = received;
                            return Ok(Some(()));
                        }
                        None => receiver.node_is_empty(),
                    }
                }
                Next::Ended(lane) => lanes::leave(self.base(), receiver, lane)?,
                Next::Corrupt(lane) => {
                    drop(receiver.remove(lane));
                    receiver.node_is_ready();
                    self.base().report(lane)?;
                }
            }
        }
    }

    /// Counts a message that came through the node from another node; after some of them, requests a node lane.
    fn note_source(&self, receiver: &mut Receiver, received: &Received) -> Result<(), Error> {
        let is_remote = received.returned.is_none() && !self.base().is_here(received.source.node);
        if is_remote
            && !self.base().kind().is_connection_oriented()
            && !self.uses_requests()
            && receiver.note_remote_request()
        {
            self.base().ask_for_lane(0)?;
        }
        Ok(())
    }

    /// Whether the socket is hosted or in a group.
    fn uses_requests(&self) -> bool {
        self.base().state.hosted.get() || self.base().state.in_group.get()
    }

    /// The descriptor of a polled socket without lanes: its readiness depends on the node alone.
    fn polled_at_node(&self, receiver: &Receiver) -> Option<&Descriptor> {
        let depends_on_node = self.uses_requests() && !receiver.has_lanes();
        self.ready.polled().filter(|_| depends_on_node)
    }

    /// Receives by one request, which also makes the descriptor `polled` right.
    fn receive_from_node(
        &self,
        sink: &mut Sink<'_>,
        options: RecvOptions,
        polled: Option<&Descriptor>,
    ) -> Result<Received, Error> {
        let room = sink.capacity(MAX_USER_DATA).min(MAX_USER_DATA);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let Some(descriptor) = polled else {
            return self.receive_by(SocketCall::Receive { room, options }, sink);
        };
        let was_readable = descriptor.drain();
        let received = self.receive_by(SocketCall::ReceivePolled { room, options }, sink);
        if was_readable && matches!(received, Err(Error::Silent(_))) {
            // The byte is missing until the daemon carries this out.
            self.ready.report_drained(false)?;
        }
        received
    }

    fn receive_by(&self, call: SocketCall, sink: &mut Sink<'_>) -> Result<Received, Error> {
        self.base().call(call, |reply, extra| {
            let mut received = match reply {
                Reply::Received(received) => received,
                Reply::ReceivedInGroup(received, group) => Received { group: Some(group), ..received },
                Reply::ReceivedAfterLoss(received, group) => {
                    Received { group: Some(group), after_loss: true, ..received }
                }
                _ => return None,
            };
            let copied = match sink {
                Sink::Slice(buffer) => {
                    let copied = extra.payload.len().min(buffer.len());
                    buffer[..copied].copy_from_slice(&extra.payload[..copied]);
                    copied
                }
                Sink::Whole(data) => {
                    data.clear();
                    data.extend_from_slice(extra.payload);
                    data.len()
                }
            };
            // An event is in the buffer and does not count as data.
            let is_event = received.group.is_some_and(|group| group.kind.is_event());
            received.len = if is_event { 0 } else { copied };
            Some(received)
        })
    }
}

impl Direction for ReceivePath {
    const HALF: Half = Half::Receive;

    #[inline]
    fn base(&self) -> &Base {
        self.ready.base()
    }

    fn spin(&self) -> &Mutex<Spin> {
        &self.inbox().spin
    }

    fn chooses_lanes(&self) -> bool {
        let mut receiver = self.inbox().lock();
        if !receiver.has_lanes() {
            receiver.node_is_ready();
        }
        receiver.has_lanes()
    }

    fn peer_is_awake(&self) -> bool {
        self.inbox().lock().some_peer_is_awake()
    }

    fn awaited_pairs(&self) -> Vec<Arc<Pair>> {
        self.inbox().lock().pairs()
    }

    fn longest_sleep(&self, _has_pairs: bool) -> Option<Duration> {
        None
    }

    fn before_sleep(&self, _noticed: u32) -> Result<BeforeSleep<'_>, Error> {
        let mut receiver = self.inbox().lock();
        let asleep = Some(self.inbox().sleep(&mut receiver));
        let is_ready = self.inbox().events.has_some()
            || receiver.arm_all(self.base().kind(), &self.inbox().ready) != Check::Nothing;
        self.base().unlock(receiver)?;
        Ok(BeforeSleep { is_ready, asleep })
    }
}
