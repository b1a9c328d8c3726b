//! Sending and receiving: by lanes where there are some, else by commands; and what a call does while it waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use utipc_attach::{Failure, LaneEnd, LaneId, Reply, Request};
use utipc_core::addr::{Importance, PortId};
use utipc_core::limits::{MAX_RETURNED_DATA, MAX_USER_DATA};
use utipc_core::socket::{
    Destination, Received, RecvError, RecvOptions, Returned, SendError, SocketKind, SocketOption,
};
use utipc_core::wire::ErrorCode;
use utipc_os::shm::{BELLS_MAX, Mode, Parked};

use crate::attachment::lock;
use crate::lanes::head::Address;
use crate::lanes::inbound::{InLane, Sink};
use crate::lanes::outbound::{Growth, OutLane};
use crate::lanes::pair::Pair;
use crate::lanes::receive::{Next, Own, Receiver};
use crate::lanes::send::{Sender, Step};
use crate::shared::{Half, Letter};
use crate::socket::{Socket, unless_blocked};
use crate::wait::Left;
use crate::{Error, Wait};

/// How often a sender whose message does not fit its lane's ring asks again for a larger one.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// The longest sleep of a thread that cannot be woken by all its lanes, because there are too many.
const SLICE: Duration = Duration::from_millis(1);

impl Socket {
    fn own(&self) -> Own {
        Own { node: self.attachment.address(), port: self.port(), kind: self.kind() }
    }

    /// Sends `data`; the bytes taken, or `None` if none could be within `wait`.
    ///
    /// # Errors
    /// [`Failure::Send`].
    pub fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>, Error> {
        if data.len() > MAX_USER_DATA && self.kind() != SocketKind::Stream {
            return Err(Failure::Send(SendError::MessageSize).into());
        }
        self.block(Half::Send, wait, data.len(), || self.try_send(data, to))
    }

    fn try_send(&self, data: &[u8], to: Option<Destination>) -> Result<Option<usize>, Error> {
        let mut sender = lock(&self.shared.sender);
        let sent = self.send_on(&mut sender, data, to);
        let tell = sender.take_tell();
        drop(sender);
        self.tell(tell)?;
        sent
    }

    fn send_on(
        &self,
        sender: &mut Sender,
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<Option<usize>, Error> {
        loop {
            if self.shared.to_sender.has_some() {
                self.read_letters_to_sender(sender)?;
            }
            match sender.step(self.own(), self.shared.style(), data, to) {
                Step::Sent(bytes) => return Ok(Some(bytes)),
                Step::Blocked => return Ok(None),
                Step::Grow(growth) => {
                    if !self.grow(sender, growth)? && self.kind().is_connection_oriented() {
                        sender.block();
                        return Ok(None);
                    }
                }
                Step::Overload => {
                    self.overloaded(data, to);
                    return Ok(Some(data.len()));
                }
                Step::Corrupt(lane) => self.report_written(sender, lane)?,
                Step::Node => return self.send_by_node(sender, data, to),
            }
        }
    }

    /// Asks for a larger ring; whether the lane has one now.
    fn grow(&self, sender: &mut Sender, growth: Growth) -> Result<bool, Error> {
        let importance = self.shared.style().importance as u8;
        let request = Request::Grow { lane: growth.lane, log2: growth.log2(), importance };
        match self.command(&request) {
            Ok(()) => Ok(sender.granted(growth, true)),
            Err(Error::Failed(_)) => Ok(sender.granted(growth, false)),
            Err(error) => Err(error),
        }
    }

    /// The receiver takes no more: its sender gets the message back, unless it does not want it.
    fn overloaded(&self, data: &[u8], to: Option<Destination>) {
        let Some(Destination::Port(port)) = to else { return };
        if !self.shared.style().dest_droppable {
            let data = data.get(..MAX_RETURNED_DATA).unwrap_or(data).to_vec();
            let returned = Returned { code: ErrorCode::Overload, data };
            self.shared.give_back(port, returned);
            self.attachment.ring();
        }
    }

    fn report_written(&self, sender: &mut Sender, lane: LaneId) -> Result<(), Error> {
        drop(sender.remove(lane));
        self.report(lane)
    }

    fn report(&self, lane: LaneId) -> Result<(), Error> {
        match self.command(&Request::Report { lane }) {
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        }
    }

    fn send_by_node(
        &self,
        sender: &mut Sender,
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<Option<usize>, Error> {
        // What one command of a stream carries; the rest is for the next call.
        let part = data.get(..MAX_USER_DATA).unwrap_or(data);
        let request = Request::Send { port: self.port(), to };
        let sent = unless_blocked(self.attachment.call(&request, part, |reply, _| match reply {
            Reply::Sent { bytes, lanes } => Some((bytes, lanes)),
            _ => None,
        }));
        let Some((bytes, lanes)) = sent? else {
            self.was_filled()?;
            return Ok(None);
        };
        if self.kind().is_connection_oriented() {
            self.connects_to(to);
            return Ok(Some((bytes as usize).min(part.len())));
        }
        for other in lanes {
            self.send_copy(sender, other, data, to)?;
        }
        if let Some(to) = to.or(sender.default_to)
            && let Some(other) = sender.wants_lane(self.own(), to)
        {
            self.ask_for_lane(other)?;
        }
        Ok(Some(data.len()))
    }

    /// A copy that the node has left to a lane.
    fn send_copy(
        &self,
        sender: &mut Sender,
        other: u32,
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<(), Error> {
        let address = match to.or(sender.default_to) {
            Some(Destination::Service { addr, .. }) => Address::Named(addr, 2),
            Some(Destination::Range(range)) => Address::Multicast(range),
            _ => Address::Direct,
        };
        loop {
            if self.shared.to_sender.has_some() {
                self.read_letters_to_sender(sender)?;
            }
            match sender.step_to(self.own(), self.shared.style(), other, address, data) {
                Step::Grow(growth) => drop(self.grow(sender, growth)?),
                Step::Corrupt(lane) => self.report_written(sender, lane)?,
                Step::Overload => {
                    let port = PortId { port: other, node: self.attachment.address() };
                    self.overloaded(data, Some(Destination::Port(port)));
                    return Ok(());
                }
                // A lane that is gone has taken its socket along.
                Step::Sent(_) | Step::Blocked | Step::Node => return Ok(()),
            }
        }
    }

    /// From the reply on, messages to `other` go by the lane, if it takes one.
    pub(crate) fn ask_for_lane(&self, other: u32) -> Result<(), Error> {
        match self.command(&Request::WantLane { port: self.port(), to: other }) {
            Err(Error::Failed(_)) => Ok(()),
            result => result,
        }
    }

    #[cold]
    fn read_letters_to_sender(&self, sender: &mut Sender) -> Result<(), Error> {
        for letter in self.shared.to_sender.take() {
            match letter {
                Letter::Lane { other, lane } => {
                    let pair = self.attachment.pair(lane, LaneEnd::Writer)?;
                    match OutLane::new(lane, pair, other) {
                        Ok(new) => sender.add(new, self.kind()),
                        Err(_) => self.report(lane)?,
                    }
                    if self.shared.accepted {
                        self.learn_importance()?;
                    }
                }
                Letter::Over(lane) => {
                    let gone = sender.remove(lane);
                    self.attachment.lane_done(lane, LaneEnd::Writer)?;
                    if let Some(gone) = gone {
                        gone.writer.retire();
                    }
                }
                Letter::Share => {
                    for lane in sender.take_all() {
                        lane.pair.keep(lane.id.slot, lane.writer);
                    }
                }
                Letter::Ready => {}
            }
        }
        Ok(())
    }

    /// The importance of an accepted socket is that of the request.
    fn learn_importance(&self) -> Result<(), Error> {
        let mut style = self.shared.style();
        let number = self.option(SocketOption::Importance)?;
        style.importance = Importance::from_number(number).unwrap_or(style.importance);
        self.shared.set_style(style);
        Ok(())
    }

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
            return self
                .block(Half::Receive, wait, 0, || self.try_receive(&mut Sink::Slice(buffer), options));
        }
        // A stream may have to collect more than one look yields.
        let mut collected: Option<Received> = None;
        let received = self.block(Half::Receive, wait, 0, || {
            loop {
                let done = collected.as_ref().map_or(0, |part| part.len);
                let room = buffer.get_mut(done..).unwrap_or_default();
                let part = match self.try_receive(&mut Sink::Slice(room), options) {
                    Ok(Some(part)) => part,
                    Ok(None) => return Ok(None),
                    Err(error) => return collected.take().map(Some).ok_or(error),
                };
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
        let options = RecvOptions::default();
        self.block(Half::Receive, wait, 0, || self.try_receive(&mut Sink::Whole(data), options))
    }

    /// Bytes that a blocking receive collects.
    fn goal(&self, buffer: usize, options: RecvOptions) -> usize {
        match self.kind() {
            SocketKind::Stream if options.wait_all => buffer,
            SocketKind::Stream => (self.low_water.load(Relaxed) as usize).min(buffer),
            _ => 1,
        }
    }

    fn try_receive(&self, sink: &mut Sink<'_>, options: RecvOptions) -> Result<Option<Received>, Error> {
        let mut receiver = lock(&self.shared.receiver);
        let received = self.receive_on(&mut receiver, sink, options);
        let tell = receiver.take_tell();
        drop(receiver);
        self.tell(tell)?;
        received
    }

    fn receive_on(
        &self,
        receiver: &mut Receiver,
        sink: &mut Sink<'_>,
        options: RecvOptions,
    ) -> Result<Option<Received>, Error> {
        loop {
            if self.shared.to_receiver.has_some() {
                self.read_letters_to_receiver(receiver)?;
            }
            match receiver.next(self.own(), sink, options, &self.shared.ready) {
                Next::Got(received) => return Ok(Some(received)),
                Next::Nothing => return Ok(None),
                Next::AskNode => match unless_blocked(self.receive_by_node(sink, options))? {
                    Some(received) => {
                        let rest = options.keep_remainder && !received.end_of_record;
                        receiver.node_served(options.peek || rest);
                        return Ok(Some(received));
                    }
                    None => receiver.node_is_empty(),
                },
                Next::Ended(lane) => {
                    drop(receiver.remove(lane));
                    receiver.node_is_ready();
                    self.attachment.lane_done(lane, LaneEnd::Reader)?;
                }
                Next::Corrupt(lane) => {
                    drop(receiver.remove(lane));
                    receiver.node_is_ready();
                    self.report(lane)?;
                }
            }
        }
    }

    /// One command.
    fn receive_by_node(&self, sink: &mut Sink<'_>, options: RecvOptions) -> Result<Received, Error> {
        let room = u32::try_from(sink.size(MAX_USER_DATA).min(MAX_USER_DATA)).unwrap_or(u32::MAX);
        let request = Request::Receive { port: self.port(), room, options };
        let received = self.attachment.call(&request, &[], |reply, extra| match (reply, sink) {
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
        });
        self.was_read()?;
        received
    }

    #[cold]
    fn read_letters_to_receiver(&self, receiver: &mut Receiver) -> Result<(), Error> {
        for (source, returned) in self.shared.take_returned() {
            receiver.give_back(source, returned);
        }
        for letter in self.shared.to_receiver.take() {
            match letter {
                Letter::Ready => receiver.node_is_ready(),
                Letter::Lane { other, lane } => {
                    let pair = self.attachment.pair(lane, LaneEnd::Reader)?;
                    match InLane::new(lane, pair, other) {
                        Ok(new) => receiver.add(new, &self.shared.ready),
                        Err(_) => self.report(lane)?,
                    }
                    if self.kind().is_connection_oriented() {
                        self.learn_service(receiver)?;
                    }
                }
                // The reader finds the end by itself.
                Letter::Over(_) => {}
                Letter::Share => {
                    for lane in receiver.ids() {
                        drop(receiver.remove(lane));
                    }
                    receiver.node_is_ready();
                }
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

    /// Tries until `attempt` yields something: at once, then looking while that may pay, then sleeping in between.
    /// `bytes` is what a sender wants room for.
    fn block<T>(
        &self,
        half: Half,
        wait: Wait,
        bytes: usize,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let mut attempt = || {
            if self.attachment.has_news() {
                self.heed_news(half)?;
            }
            attempt()
        };
        if let Some(done) = attempt()? {
            self.shared.set_waits(half, false);
            return Ok(Some(done));
        }
        self.shared.set_waits(half, true);
        if wait == Wait::Never {
            return Ok(None);
        }
        let end = wait.start();
        let spin = if half == Half::Receive { &self.shared.receive_spin } else { &self.shared.send_spin };
        loop {
            // Of several threads that wait for one socket, one looks.
            let mut spin = spin.try_lock().ok();
            let found = spin.as_mut().and_then(|spin| {
                let awake = self.partner_is_awake(half);
                spin.look(awake, || attempt().transpose())
            });
            if let Some(done) = found {
                self.shared.set_waits(half, false);
                return done.map(Some);
            }
            let Left::Time(limit) = end.left() else { return Ok(None) };
            if !spin.as_ref().is_some_and(|spin| spin.mode() == Mode::Busy) {
                let asleep = Instant::now();
                self.sleep(half, bytes, limit)?;
                if let Some(spin) = &mut spin {
                    spin.slept(asleep.elapsed());
                }
            }
            if let Some(done) = attempt()? {
                self.shared.set_waits(half, false);
                return Ok(Some(done));
            }
        }
    }

    /// The daemon has something to tell. A command brings it along; where the attempt is one, it need not be asked for.
    #[cold]
    fn heed_news(&self, half: Half) -> Result<(), Error> {
        let direct = match half {
            Half::Receive => {
                let mut receiver = lock(&self.shared.receiver);
                if !receiver.has_lanes() {
                    receiver.node_is_ready();
                }
                receiver.has_lanes()
            }
            Half::Send => lock(&self.shared.sender).has_lanes(),
        };
        if direct || self.attachment.has_chores() { self.attachment.fetch_news() } else { Ok(()) }
    }

    /// Whether one of those who may end the wait was awake when last seen.
    fn partner_is_awake(&self, half: Half) -> bool {
        match half {
            Half::Receive => lock(&self.shared.receiver).some_partner_is_awake(),
            Half::Send => {
                let pair = lock(&self.shared.sender).awaited_pair();
                pair.is_some_and(|pair| pair.partner_is_awake())
            }
        }
    }

    /// Sleeps until something may have changed, at most `limit`.
    fn sleep(&self, half: Half, bytes: usize, mut limit: Option<Duration>) -> Result<(), Error> {
        let mut pairs: Vec<Arc<Pair>> = match half {
            Half::Receive => lock(&self.shared.receiver).pairs(),
            Half::Send => lock(&self.shared.sender).awaited_pair().into_iter().collect(),
        };
        let mut at_most = |slice: Duration| limit = Some(limit.map_or(slice, |limit| limit.min(slice)));
        if pairs.len() > BELLS_MAX {
            pairs.truncate(BELLS_MAX);
            at_most(SLICE);
        }
        if half == Half::Send && !pairs.is_empty() {
            at_most(ASK_AGAIN);
        }
        let sleeper = self.attachment.bell().enter();
        let seen: Vec<u32> = pairs.iter().map(|pair| pair.bell.seq()).collect();
        let parked: Vec<Parked<'_>> = pairs.iter().map(|pair| pair.bell.park()).collect();
        let something = match half {
            Half::Receive => {
                let mut receiver = lock(&self.shared.receiver);
                self.shared.to_receiver.has_some() || receiver.arm_all(&self.shared.ready)
            }
            Half::Send => {
                let mut sender = lock(&self.shared.sender);
                self.shared.to_sender.has_some() || sender.awaited_pair().is_some() && sender.want_room(bytes)
            }
        };
        if something || self.attachment.has_news() {
            return Ok(());
        }
        let bells: Vec<_> = parked.iter().zip(seen).collect();
        Ok(sleeper.sleep(&bells, limit)?)
    }
}
