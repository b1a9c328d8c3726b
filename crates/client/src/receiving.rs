//! Receiving: from lanes, and from the node by requests.

use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{Failure, LaneEnd, LaneId, Reply, Request, SocketCall};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Received, RecvError, RecvOptions, SocketKind};
use utipc_lanes::{InboundLane, Next, ReceiveCall, Receiver, Sink};
use utipc_os::lock;

use crate::descriptor::Descriptor;
use crate::socket::{Socket, unless_blocked};
use crate::state::{Event, Half};
use crate::{Error, Wait};

/// A receive, and what it has done for the descriptor.
#[derive(Debug)]
struct Attempt<'a> {
    call: ReceiveCall<'a>,
    level: Level,
}

/// What a receive has done for the level of the socket's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Nothing.
    Unknown,
    /// The last request has made it right.
    Kept,
    /// The same, but a lane that was opened meanwhile counts too: the byte is gone, whatever is in the lane.
    Drained,
}

impl<'a> Attempt<'a> {
    fn new(sink: Sink<'a>, options: RecvOptions) -> Self {
        Self { call: ReceiveCall::new(sink, options), level: Level::Unknown }
    }
}

impl Socket {
    /// Receives into `buffer`; `None` if nothing arrives within `wait`.
    ///
    /// # Errors
    /// [`Failure::Receive`].
    pub fn receive(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Option<Received>, Error> {
        if self.resumption.is_some() {
            return self.across_restarts(wait, |socket| socket.receive_here(buffer, options, wait));
        }
        self.receive_here(buffer, options, wait)
    }

    /// [`Socket::receive`] from the daemon of this handle.
    #[inline]
    fn receive_here(
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
        let (received, level) = self.collect(buffer, goal, options, wait)?;
        self.sync_after(received.is_some(), level)?;
        Ok(received)
    }

    /// Receives with one successful attempt.
    #[inline]
    fn receive_once(&self, mut attempt: Attempt<'_>, wait: Wait) -> Result<Option<Received>, Error> {
        let done = self.block(Half::Receive, wait, 0, || self.try_receive(&mut attempt))?;
        self.sync_after(done.is_some(), attempt.level)?;
        Ok(done.map(|()| attempt.call.received))
    }

    /// Makes the level of the descriptor right after a receive.
    #[inline]
    fn sync_after(&self, got: bool, level: Level) -> Result<(), Error> {
        match level {
            Level::Kept => Ok(()),
            Level::Unknown => self.sync_readability(got, !got),
            Level::Drained => self.sync_readability(got, true),
        }
    }

    /// Receives at least `goal` bytes of a stream, or fewer if no more arrive within `wait`; returns also whether the
    /// level of the descriptor is right.
    fn collect(
        &self,
        buffer: &mut [u8],
        goal: usize,
        options: RecvOptions,
        wait: Wait,
    ) -> Result<(Option<Received>, Level), Error> {
        let (mut collected, mut level): (Option<Received>, Level) = (None, Level::Unknown);
        let received = self.block(Half::Receive, wait, 0, || {
            loop {
                let done = collected.as_ref().map_or(0, |part| part.len);
                let room = buffer.get_mut(done..).unwrap_or_default();
                let mut attempt = Attempt::new(Sink::Slice(room), options);
                let tried = self.try_receive(&mut attempt);
                level = attempt.level;
                match tried {
                    Ok(Some(())) => {}
                    Ok(None) => return Ok(None),
                    Err(error) => return collected.take().map(Some).ok_or(error),
                }
                let part = attempt.call.received;
                let ended = part.len == 0 || options.peek;
                match &mut collected {
                    Some(all) => all.len += part.len,
                    None => collected = Some(part),
                }
                if ended || collected.as_ref().is_some_and(|all| all.len >= goal) {
                    return Ok(collected.take());
                }
            }
        });
        // Bytes that arrived in time are a result even if there are too few.
        received.map(|received| (received.or(collected), level))
    }

    /// Receives one message (of a stream: the bytes that are there) into `data`, which is resized.
    ///
    /// # Errors
    /// [`Failure::Receive`].
    pub fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>, Error> {
        let whole = |socket: &Self, data: &mut Vec<u8>| {
            socket.receive_once(Attempt::new(Sink::Whole(data), RecvOptions::default()), wait)
        };
        if self.resumption.is_some() {
            return self.across_restarts(wait, |socket| whole(socket, data));
        }
        whole(self, data)
    }

    /// Counts the messages that wait in lanes, where the node cannot count them, and their bytes including headers.
    pub(crate) fn waiting(&self) -> Result<(u32, u64), Error> {
        if self.attachment.has_notices() {
            self.attachment.fetch_notices()?;
        }
        let mut receiver = lock(&self.state.receiver);
        self.process_receiver_events(&mut receiver)?;
        let waiting = receiver.waiting();
        let to_wake = receiver.take_lanes_to_wake();
        drop(receiver);
        self.wake_peers(to_wake)?;
        Ok(waiting)
    }

    /// Minimum number of bytes for which a blocking receive returns.
    fn goal(&self, buffer: usize, options: RecvOptions) -> usize {
        match self.kind() {
            SocketKind::Stream if options.wait_all => buffer,
            SocketKind::Stream => (self.low_water.load(Relaxed) as usize).min(buffer),
            _ => 1,
        }
    }

    /// One attempt; `None` if there is nothing.
    fn try_receive(&self, attempt: &mut Attempt<'_>) -> Result<Option<()>, Error> {
        let mut receiver = lock(&self.state.receiver);
        let done = self.receive_on(&mut receiver, attempt);
        let to_wake = receiver.take_lanes_to_wake();
        drop(receiver);
        if !to_wake.is_empty() {
            self.wake_peers(to_wake)?;
        }
        done
    }

    fn receive_on(&self, receiver: &mut Receiver, attempt: &mut Attempt<'_>) -> Result<Option<()>, Error> {
        let Attempt { call, level } = attempt;
        *level = Level::Unknown;
        loop {
            if self.state.receiver_events.has_some() {
                self.process_receiver_events(receiver)?;
            }
            match receiver.next(self.own(), call, &self.state.ready) {
                found @ (Next::Got | Next::Nothing) => {
                    if *level == Level::Kept && receiver.has_lanes() {
                        *level = Level::Drained;
                    }
                    return Ok(matches!(found, Next::Got).then_some(()));
                }
                Next::AskNode => {
                    let polled = self.polled_at_node(receiver);
                    let received = self.receive_from_node(&mut call.sink, call.options, polled);
                    if polled.is_some() {
                        *level = Level::Kept;
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
                Next::Ended(lane) => self.leave_lane(receiver, lane)?,
                Next::Corrupt(lane) => {
                    drop(receiver.remove(lane));
                    receiver.node_is_ready();
                    self.report(lane)?;
                }
            }
        }
    }

    /// Leaves a lane that has ended; later messages come through the node.
    pub(crate) fn leave_lane(&self, receiver: &mut Receiver, lane: LaneId) -> Result<(), Error> {
        drop(receiver.remove(lane));
        receiver.node_is_ready();
        self.attachment.lane_done(lane, LaneEnd::Reader)
    }

    /// Counts a message that came through the node from another node; after some of them, requests a node lane.
    fn note_source(&self, receiver: &mut Receiver, received: &Received) -> Result<(), Error> {
        let is_remote = received.returned.is_none() && !self.is_here(received.source.node);
        if is_remote
            && !self.kind().is_connection_oriented()
            && !self.state.hosted.load(Relaxed)
            && !self.state.in_group.load(Relaxed)
            && receiver.note_remote_request()
        {
            self.ask_for_lane(0)?;
        }
        Ok(())
    }

    /// The descriptor of a polled socket without lanes: its level depends on the node alone.
    fn polled_at_node(&self, receiver: &Receiver) -> Option<&Descriptor> {
        let state = &self.state;
        let uses_requests = state.hosted.load(Relaxed) || state.in_group.load(Relaxed);
        let depends_on_node = uses_requests && !receiver.has_lanes();
        self.polled().filter(|_| depends_on_node)
    }

    /// Receives by one request, which also makes the level of the descriptor `polled` right.
    fn receive_from_node(
        &self,
        sink: &mut Sink<'_>,
        options: RecvOptions,
        polled: Option<&Descriptor>,
    ) -> Result<Received, Error> {
        let (port, room) = (self.port(), sink.capacity(MAX_USER_DATA).min(MAX_USER_DATA));
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let Some(descriptor) = polled else {
            return self.receive_by(&SocketCall::Receive { room, options }.on(port), sink);
        };
        let was_readable = descriptor.drain();
        let received = self.receive_by(&SocketCall::ReceivePolled { room, options }.on(port), sink);
        if was_readable && matches!(received, Err(Error::Silent(_))) {
            // The byte is missing until the daemon carries this out.
            self.report_drained(false)?;
        }
        received
    }

    fn receive_by(&self, request: &Request, sink: &mut Sink<'_>) -> Result<Received, Error> {
        self.attachment.call(request, &[], |reply, extra| {
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

    #[cold]
    pub(crate) fn process_receiver_events(&self, receiver: &mut Receiver) -> Result<(), Error> {
        for returned in self.state.take_returned() {
            receiver.give_back(returned);
        }
        let mut events = self.state.receiver_events.take().into_iter();
        while let Some(event) = events.next() {
            match event {
                Event::Ready => receiver.node_is_ready(),
                // The socket has become hosted: the daemon reads the lane.
                Event::LaneOpened { .. } if self.state.hosted.load(Relaxed) => {}
                Event::LaneOpened { peer, node, lane, member } => {
                    let pair = match self.attachment.pair(lane, LaneEnd::Reader) {
                        Ok(pair) => pair,
                        Err(error) => {
                            let rest = std::iter::once(event).chain(events).collect();
                            self.state.receiver_events.put_back(rest);
                            return Err(error);
                        }
                    };
                    match InboundLane::new(lane, pair, peer, node) {
                        Ok(new) => receiver.add(new.with_member(member), &self.state.ready),
                        Err(_) => self.report(lane)?,
                    }
                    if self.kind().is_connection_oriented() {
                        self.set_service(receiver)?;
                    }
                }
                // The reader finds the end of the lane by reading it.
                Event::LaneOver(_) | Event::GroupChanged => {}
            }
        }
        Ok(())
    }

    /// Sets the service address by which the connection was set up. For an accepted socket the node knows it.
    fn set_service(&self, receiver: &mut Receiver) -> Result<(), Error> {
        let known = *lock(&self.state.service);
        let service = match known {
            None if self.state.accepted => self.look()?.service.map(Into::into),
            known => known,
        };
        receiver.set_service(service);
        Ok(())
    }
}
