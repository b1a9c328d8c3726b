//! Sending: by lanes where there are some, else by commands.

use utipc_attach::{Failure, LaneEnd, LaneId, Reply, Request};
use utipc_core::addr::{Importance, PortId};
use utipc_core::limits::{MAX_RETURNED_DATA, MAX_USER_DATA};
use utipc_core::socket::{Destination, Returned, SendError, SocketKind, SocketOption};
use utipc_core::wire::ErrorCode;

use crate::attachment::lock;
use crate::lanes::head::Address;
use crate::lanes::outbound::{Growth, OutLane};
use crate::lanes::send::{Sender, Step};
use crate::shared::{Half, Letter};
use crate::socket::{Socket, unless_blocked};
use crate::{Error, Wait};

impl Socket {
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

    pub(crate) fn report(&self, lane: LaneId) -> Result<(), Error> {
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
    fn ask_for_lane(&self, other: u32) -> Result<(), Error> {
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
                    match gone {
                        Some(gone) => gone.writer.retire(),
                        // It was given back before.
                        None => self.attachment.retire(lane),
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
}
