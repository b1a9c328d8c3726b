//! Receiving: from lanes, and by commands what the node has.

use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{Failure, LaneEnd, LaneId, Reply, Request};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{Received, RecvError, RecvOptions, SocketKind};

use crate::attachment::lock;
use crate::lanes::inbound::{InLane, Sink};
use crate::lanes::receive::{Call, Next, Receiver};
use crate::shared::{Half, Letter};
use crate::socket::{Socket, unless_blocked};
use crate::{Error, Wait};

impl Socket {
    /// Receives into `buffer`; `None` if nothing comes within `wait`.
    ///
    /// # Errors
    /// [`Failure::Receive`].
    pub fn receive(
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
            return self.one(Call::new(Sink::Slice(buffer), options), wait);
        }
        let received = self.collect(buffer, goal, options, wait)?;
        self.settle(received.is_some())?;
        Ok(received)
    }

    /// Receives what one attempt yields.
    #[inline]
    fn one(&self, mut call: Call<'_>, wait: Wait) -> Result<Option<Received>, Error> {
        let done = self.block(Half::Receive, wait, 0, || self.try_receive(&mut call))?;
        self.settle(done.is_some())?;
        Ok(done.map(|()| call.received))
    }

    /// Receives at least `goal` bytes, or what comes within `wait`.
    fn collect(
        &self,
        buffer: &mut [u8],
        goal: usize,
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Option<Received>, Error> {
        // A stream may have to collect more than one look yields.
        let mut collected: Option<Received> = None;
        let received = self.block(Half::Receive, wait, 0, || {
            loop {
                let done = collected.as_ref().map_or(0, |part| part.len);
                let room = buffer.get_mut(done..).unwrap_or_default();
                let mut call = Call::new(Sink::Slice(room), options);
                match self.try_receive(&mut call) {
                    Ok(Some(())) => {}
                    Ok(None) => return Ok(None),
                    Err(error) => return collected.take().map(Some).ok_or(error),
                }
                let part = call.received;
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
        // What was collected in time is better than nothing.
        received.map(|received| received.or(collected))
    }

    /// Receives one message (of a stream: what is there) into memory that is made as large as needed.
    ///
    /// # Errors
    /// [`Failure::Receive`].
    pub fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>, Error> {
        self.one(Call::new(Sink::Whole(data), RecvOptions::default()), wait)
    }

    /// What waits in lanes, where the node cannot see it: messages, and their bytes with their headers.
    pub(crate) fn waiting(&self) -> Result<(u32, u64), Error> {
        if self.attachment.has_news() {
            self.attachment.fetch_news()?;
        }
        let mut receiver = lock(&self.shared.receiver);
        self.read_letters_to_receiver(&mut receiver)?;
        let waiting = receiver.waiting();
        let tell = receiver.take_tell();
        drop(receiver);
        self.tell(tell)?;
        Ok(waiting)
    }

    /// Bytes that a blocking receive collects.
    fn goal(&self, buffer: usize, options: RecvOptions) -> usize {
        match self.kind() {
            SocketKind::Stream if options.wait_all => buffer,
            SocketKind::Stream => (self.low_water.load(Relaxed) as usize).min(buffer),
            _ => 1,
        }
    }

    /// `None`: there is nothing.
    fn try_receive(&self, call: &mut Call<'_>) -> Result<Option<()>, Error> {
        let mut receiver = lock(&self.shared.receiver);
        let done = self.receive_on(&mut receiver, call);
        let tell = receiver.take_tell();
        drop(receiver);
        if !tell.is_empty() {
            self.tell(tell)?;
        }
        done
    }

    fn receive_on(&self, receiver: &mut Receiver, call: &mut Call<'_>) -> Result<Option<()>, Error> {
        loop {
            if self.shared.to_receiver.has_some() {
                self.read_letters_to_receiver(receiver)?;
            }
            match receiver.next(self.own(), call, &self.shared.ready) {
                Next::Got => return Ok(Some(())),
                Next::Nothing => return Ok(None),
                Next::AskNode => match unless_blocked(self.receive_by_node(&mut call.sink, call.options))? {
                    Some(received) => {
                        let rest = call.options.keep_remainder && !received.end_of_record;
                        receiver.node_served(call.options.peek || rest);
                        self.came_far(receiver, &received)?;
                        call.received = received;
                        return Ok(Some(()));
                    }
                    None => receiver.node_is_empty(),
                },
                Next::Ended(lane) => self.leave(receiver, lane)?,
                Next::Corrupt(lane) => {
                    drop(receiver.remove(lane));
                    receiver.node_is_ready();
                    self.report(lane)?;
                }
            }
        }
    }

    /// A lane is over: what comes next is at the node.
    pub(crate) fn leave(&self, receiver: &mut Receiver, lane: LaneId) -> Result<(), Error> {
        drop(receiver.remove(lane));
        receiver.node_is_ready();
        self.attachment.lane_done(lane, LaneEnd::Reader)
    }

    /// A message was fetched from the node: those of other nodes come by a lane the next time.
    fn came_far(&self, receiver: &mut Receiver, received: &Received) -> Result<(), Error> {
        let far = received.returned.is_none() && !self.is_here(received.source.node);
        if far
            && !self.kind().is_connection_oriented()
            && !self.shared.hosted.load(Relaxed)
            && receiver.wants_node_lane()
        {
            self.ask_for_lane(0)?;
        }
        Ok(())
    }

    /// One command.
    fn receive_by_node(&self, sink: &mut Sink<'_>, options: RecvOptions) -> Result<Received, Error> {
        let room = u32::try_from(sink.size(MAX_USER_DATA).min(MAX_USER_DATA)).unwrap_or(u32::MAX);
        let request = Request::Receive { port: self.port(), room, options };
        self.attachment.call(&request, &[], |reply, extra| match (reply, sink) {
            (Reply::Received(mut received), Sink::Slice(buffer)) => {
                received.len = extra.payload.len().min(buffer.len());
                buffer[..received.len].copy_from_slice(&extra.payload[..received.len]);
                Some(received)
            }
            (Reply::Received(mut received), Sink::Whole(data)) => {
                received.len = extra.payload.len();
                data.clear();
                data.extend_from_slice(extra.payload);
                Some(received)
            }
            _ => None,
        })
    }

    #[cold]
    pub(crate) fn read_letters_to_receiver(&self, receiver: &mut Receiver) -> Result<(), Error> {
        for returned in self.shared.take_returned() {
            receiver.give_back(returned);
        }
        for letter in self.shared.to_receiver.take() {
            match letter {
                Letter::Ready => receiver.node_is_ready(),
                // It came too late: the daemon reads it.
                Letter::Lane { .. } if self.shared.hosted.load(Relaxed) => {}
                Letter::Lane { other, node, lane } => {
                    let pair = self.attachment.pair(lane, LaneEnd::Reader)?;
                    match InLane::new(lane, pair, other, node) {
                        Ok(new) => receiver.add(new, &self.shared.ready),
                        Err(_) => self.report(lane)?,
                    }
                    if self.kind().is_connection_oriented() {
                        self.learn_service(receiver)?;
                    }
                }
                // The reader finds the end by itself.
                Letter::Over(_) => {}
            }
        }
        Ok(())
    }

    fn learn_service(&self, receiver: &mut Receiver) -> Result<(), Error> {
        let known = *lock(&self.shared.service);
        let service = match known {
            None if self.shared.accepted => self.look()?.service.map(Into::into),
            known => known,
        };
        receiver.set_service(service);
        Ok(())
    }
}
