//! The calls of an application: options, bindings, connecting, sending, receiving and closing. Spec: tipc.md §8.

use super::call::Call;
use super::endpoint::{Endpoint, Role};
use super::error::{AcceptError, ConnectError, OptionError, RecvError, SendError, StateError};
use super::options::{OptionValue, SocketOption};
use super::state::{Event, State};
use super::types::{Destination, Method, Received, RecvOptions, SocketKind, WaitReason};
use super::uplink::{BindError, Uplink};
use crate::addr::{Scope, ServiceRange};
use crate::limits::MAX_USER_DATA;
use crate::time::Time;
use crate::wire::{ErrorCode, Message};

impl Endpoint {
    /// Sets an option.
    ///
    /// # Errors
    /// See [`OptionError`].
    pub fn set_option(
        &mut self,
        option: SocketOption,
        value: OptionValue,
        uplink: &mut dyn Uplink,
    ) -> Result<(), OptionError> {
        match (option, value) {
            // The request does not fit an option's value: see `join`.
            (SocketOption::GroupJoin, _) => return Err(OptionError::NotSupported),
            (SocketOption::GroupLeave, OptionValue::None) => {
                self.leave(uplink).map_err(|_| OptionError::Invalid)?;
            }
            (SocketOption::MulticastBroadcast, OptionValue::None) => {
                uplink.multicast_method(self.port(), Some(Method::Broadcast));
            }
            (SocketOption::MulticastReplicast, OptionValue::None) => {
                if let Some(group) = self.group_mut() {
                    group.force_replicast();
                }
                uplink.multicast_method(self.port(), Some(Method::Replicast));
            }
            (_, OptionValue::Number(n)) => {
                self.base.settings.set(self.kind(), option, n)?;
                if option == SocketOption::NoDelay
                    && let Some(session) = self.session_mut()
                {
                    session.set_no_delay(n != 0);
                }
            }
            _ => return Err(OptionError::Invalid),
        }
        Ok(())
    }

    /// Reads an option.
    ///
    /// # Errors
    /// [`OptionError::Invalid`] if the option is not readable.
    pub fn option(&self, option: SocketOption) -> Result<u32, OptionError> {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        match option {
            SocketOption::NodeReceiveQueueDepth => Ok(0),
            SocketOption::ReceiveQueueDepth => Ok(small(self.base.queue.len())),
            SocketOption::ReceiveQueueUsed => Ok(small(self.base.queue.charged())),
            SocketOption::GroupJoin => Ok(self.group().map_or(0, |group| group.request().member.service)),
            _ => self.base.settings.get(option),
        }
    }

    /// Binds the socket to a range. Spec: tipc.md §1.2.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(
        &mut self,
        range: ServiceRange,
        scope: Scope,
        uplink: &mut dyn Uplink,
    ) -> Result<(), BindError> {
        match () {
            () if !range.is_valid() => Err(BindError::InvalidRange),
            () if self.state() == State::Established || self.is_closed() => Err(BindError::InvalidState),
            () if self.group().is_some() => Err(BindError::InGroup),
            () => Call::new(&mut self.base, uplink).bind(range, scope),
        }
    }

    /// Withdraws one binding, or all; of a socket in a group only all, with which it leaves the group.
    ///
    /// # Errors
    /// [`BindError::NotBound`] if there is no such binding, or none at all; [`BindError::InGroup`].
    pub fn unbind(
        &mut self,
        which: Option<(ServiceRange, Scope)>,
        uplink: &mut dyn Uplink,
    ) -> Result<(), BindError> {
        if which.is_none() && !self.is_bound() {
            return Err(BindError::NotBound);
        }
        if self.group().is_some() {
            if which.is_some() {
                return Err(BindError::InGroup);
            }
            let _ = self.leave(uplink);
            if !self.is_bound() {
                return Ok(());
            }
        }
        Call::new(&mut self.base, uplink).unbind(which)
    }

    /// Makes the socket a listener. The receive buffer limits the queue of requests. Spec: tipc.md §8.2.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn listen(&mut self) -> Result<(), StateError> {
        match &self.role {
            Role::Datagram(_) => return Err(StateError::Connectionless),
            Role::Connection(connection) if connection.state().next(Event::Listen).is_some() => {}
            Role::Connection(_) | Role::Listener => return Err(StateError::InUse),
        }
        self.role = Role::Listener;
        Ok(())
    }

    /// Removes the oldest connection request of a listener, for [`Self::accepted`].
    ///
    /// # Errors
    /// See [`AcceptError`].
    pub fn next_request(&mut self) -> Result<Message, AcceptError> {
        if !matches!(self.role, Role::Listener) || self.is_closed() {
            return Err(AcceptError::NotListening);
        }
        self.base.queue.pop().ok_or_else(|| {
            self.base.set_wait(Some(WaitReason::NothingReceived));
            AcceptError::WouldBlock
        })
    }

    /// Requests a connection. On success the state is [`State::Connecting`] and becomes [`State::Established`], or
    /// [`State::Disconnecting`] (see [`Self::take_error`]). On a connectionless socket sets the default destination
    /// instead; `None` removes it.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Time,
        to: Option<Destination>,
        uplink: &mut dyn Uplink,
    ) -> Result<(), ConnectError> {
        match &mut self.role {
            Role::Datagram(datagram) => datagram.connect(to),
            Role::Connection(connection) => {
                connection.connect(now, to, &mut Call::new(&mut self.base, uplink))
            }
            Role::Listener => Err(SendError::Broken.into()),
        }
    }

    /// Sends `data` and returns the number of bytes accepted; on a STREAM this may be fewer than given. If a
    /// destination is given on an open socket of a connection-oriented kind, sends a connection request that carries
    /// `data`; on a connected socket the destination is ignored. Spec: tipc.md §8.2.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(
        &mut self,
        now: Time,
        data: &[u8],
        to: Option<Destination>,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        self.send_keyed(now, data, to, 0, uplink)
    }

    /// [`Self::send`] with the key that [`SlowMember::Conflate`](crate::group::SlowMember::Conflate) uses: for a slow
    /// member the message replaces the one with the same key. Messages sent without a key have key 0; outside of such a
    /// group it has no effect.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_keyed(
        &mut self,
        now: Time,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        self.base.set_wait(None);
        if data.len() > MAX_USER_DATA && self.kind() != SocketKind::Stream {
            return Err(SendError::MessageSize);
        }
        let call = &mut Call::new(&mut self.base, uplink);
        match &mut self.role {
            Role::Datagram(datagram) => datagram.send(now, data, to, key, call),
            Role::Connection(connection) => connection.send(now, data, to, call),
            Role::Listener => Err(SendError::Broken),
        }
    }

    /// Sends `data` to a service of which the caller has found one socket; `uplink` resolves to that socket only. An
    /// anycast is sent as by [`Self::send`]; of a multicast one copy goes to a local socket, which no congested link
    /// delays.
    ///
    /// # Errors
    /// See [`SendError`].
    pub(crate) fn send_found(
        &mut self,
        data: &[u8],
        to: Destination,
        uplink: &mut dyn Uplink,
    ) -> Result<usize, SendError> {
        self.base.set_wait(None);
        match &mut self.role {
            Role::Datagram(datagram) => datagram.send_found(data, to, &mut Call::new(&mut self.base, uplink)),
            Role::Connection(_) | Role::Listener => Err(SendError::NotConnected),
        }
    }

    /// Receives into `buffer`: one message, or on a STREAM all available bytes. After the orderly end of a connection
    /// every call returns 0 bytes. After [`Self::shutdown`] of a connectionless socket a call that would wait fails.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv(
        &mut self,
        _now: Time,
        buffer: &mut [u8],
        options: RecvOptions,
        uplink: &mut dyn Uplink,
    ) -> Result<Received, RecvError> {
        self.base.set_wait(None);
        if buffer.is_empty() {
            return Err(RecvError::EmptyBuffer);
        }
        let call = &mut Call::new(&mut self.base, uplink);
        match &mut self.role {
            _ if call.base.is_closed() => Err(RecvError::NotConnected),
            Role::Datagram(datagram) => datagram.receive(buffer, options, call),
            Role::Connection(connection) => connection.receive(buffer, options, call),
            Role::Listener => Err(RecvError::NotConnected),
        }
    }

    /// Bytes of data that the next [`Self::recv`] can return: of the first message; on a STREAM, of all messages.
    #[must_use]
    pub fn available(&self) -> usize {
        let queue = &self.base.queue;
        match self.kind() {
            SocketKind::Stream => {
                let queued: usize = queue.iter().map(|msg| msg.data().len()).sum();
                queued.saturating_sub(queue.read())
            }
            _ => queue.unread().len(),
        }
    }

    /// Bytes that a blocking receive on a STREAM collects, in several calls of [`Self::recv`], before it returns: the
    /// low-water mark, or the whole buffer with [`RecvOptions::wait_all`]. 1 for other kinds.
    #[must_use]
    pub fn receive_goal(&self, buffer: usize, options: RecvOptions) -> usize {
        match self.kind() {
            SocketKind::Stream if options.wait_all => buffer,
            SocketKind::Stream => self.base.settings.low_water.min(buffer),
            _ => 1,
        }
    }

    /// Ends the connection in both directions; unread data is lost. If sent data still waits for the peer or the link,
    /// the end follows it, at the latest after 8 s.
    ///
    /// On a connectionless socket it fails, as on Linux, and has these effects: unread messages return to their senders
    /// (not those of a group), and from now on a receive fails instead of waiting. Messages still arrive.
    ///
    /// # Errors
    /// [`StateError::NotConnected`] without a connection or a connection request.
    pub fn shutdown(&mut self, now: Time, uplink: &mut dyn Uplink) -> Result<(), StateError> {
        let call = &mut Call::new(&mut self.base, uplink);
        match &mut self.role {
            Role::Datagram(datagram) => {
                datagram.shut_down(call);
                Err(StateError::NotConnected)
            }
            Role::Connection(connection) if connection.state() != State::Open => {
                if !call.base.is_shut_down() {
                    call.base.shut_down();
                    connection.shut_down(now, call);
                }
                Ok(())
            }
            Role::Connection(_) | Role::Listener => Err(StateError::NotConnected),
        }
    }

    /// Closes the socket: rejects unread messages, ends the connection, withdraws all bindings. A shutdown that still
    /// waits keeps its deadline, and the peer reads its end, not that of the close. The endpoint is finished when
    /// [`Self::is_closed`] returns true; until then (at most 8 s, while congestion clears) it must get messages,
    /// wake-ups and timeouts as before.
    pub fn close(&mut self, now: Time, uplink: &mut dyn Uplink) {
        // first, so that no new lookup finds a socket that is going away; it leaves its group
        let _ = self.unbind(None, uplink);
        let call = &mut Call::new(&mut self.base, uplink);
        call.base.shut_down();
        match &mut self.role {
            Role::Datagram(datagram) => datagram.close(call),
            Role::Connection(connection) => connection.close(now, call),
            Role::Listener => {
                call.return_all(ErrorCode::NoPort);
                call.base.close();
            }
        }
    }

    /// True if [`Self::close`] has completed; the owner may drop the endpoint.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.base.is_closed()
    }
}
