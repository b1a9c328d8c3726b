//! The sockets of a node, by port number.

use super::anycast::{AllFull, Choosing, Chosen};
use super::endpoints::room;
use super::quotas::Charges;
use super::uplink::Direct;
use super::{MAX_SOCKETS, OpenError, Stack};
use crate::addr::{PortId, Scope, ServiceRange};
use crate::group::{GroupPolicy, GroupRequest, JoinError, LeaveError};
use crate::socket::{
    AcceptError, BindError, ConnectError, Destination, Endpoint, OptionError, OptionValue, Received,
    RecvError, RecvOptions, SendError, SocketKind, SocketOption, StateError,
};
use crate::time::Time;

impl Stack {
    /// Opens a socket; the port number returned identifies it.
    ///
    /// # Errors
    /// [`OpenError`] if the node has [`MAX_SOCKETS`].
    pub fn open(&mut self, now: Time, kind: SocketKind) -> Result<u32, OpenError> {
        if self.endpoints.len() >= MAX_SOCKETS {
            return Err(OpenError::TooMany);
        }
        let port = self.switch.open_port();
        let endpoint = Endpoint::new(now, kind, port, self.switch.next_random());
        self.endpoints.insert(port, endpoint);
        Ok(port)
    }

    /// Closes a socket: unread messages are rejected, its connection ends, its bindings are withdrawn.
    pub fn close(&mut self, now: Time, port: u32) {
        self.with_endpoint(now, port, |endpoint, uplink| endpoint.close(now, uplink));
        self.process_pending(now);
    }

    /// Closes the sockets of a process that is gone. First all their bindings are withdrawn, then unread messages are
    /// rejected and connections end. Subscribers get their events after that, so they see all of it done.
    pub fn close_all(&mut self, now: Time, ports: &[u32]) {
        for port in ports {
            // A socket without bindings returns an error here.
            self.with_endpoint(now, *port, |endpoint, uplink| endpoint.unbind(None, uplink).ok());
        }
        for port in ports {
            self.with_endpoint(now, *port, |endpoint, uplink| endpoint.close(now, uplink));
        }
        self.process_pending(now);
    }

    /// Binds a socket to a service range.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(&mut self, now: Time, port: u32, range: ServiceRange, scope: Scope) -> Result<(), BindError> {
        self.on(now, port, BindError::InvalidState, |e, uplink| e.bind(range, scope, uplink))
    }

    /// Withdraws one binding of a socket, or all.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn unbind(
        &mut self,
        now: Time,
        port: u32,
        which: Option<(ServiceRange, Scope)>,
    ) -> Result<(), BindError> {
        self.on(now, port, BindError::InvalidState, |e, uplink| e.unbind(which, uplink))
    }

    /// Makes a socket a listener.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn listen(&mut self, now: Time, port: u32) -> Result<(), StateError> {
        self.on(now, port, StateError::NotConnected, |e, _| e.listen())
    }

    /// Requests a connection, or sets the default destination of a connectionless socket. See [`Endpoint::connect`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(&mut self, now: Time, port: u32, to: Option<Destination>) -> Result<(), ConnectError> {
        self.on(now, port, ConnectError::Aborted, |e, uplink| e.connect(now, to, uplink))
    }

    /// Accepts the oldest connection request of a listener; returns the new socket and its peer.
    ///
    /// # Errors
    /// See [`AcceptError`].
    pub fn accept(&mut self, now: Time, port: u32) -> Result<(u32, PortId), AcceptError> {
        let result = self.accept_quietly(now, port);
        self.process_pending(now);
        result
    }

    /// Like [`Self::accept`], without processing what follows from it.
    pub(super) fn accept_quietly(&mut self, now: Time, port: u32) -> Result<(u32, PortId), AcceptError> {
        if self.endpoints.len() >= MAX_SOCKETS {
            return Err(AcceptError::WouldBlock);
        }
        let listener = self.endpoints.get_mut(port).ok_or(AcceptError::NotListening)?;
        let before = Charges::of(listener);
        let request = listener.next_request()?;
        before.update(listener, &mut self.ledger);
        let peer = request.origin();
        let new = self.switch.open_port();
        let seed = self.switch.next_random();
        if let Some(listener) = self.endpoints.get(port) {
            let (switch, ledger) = (&mut self.switch, &self.ledger);
            let mut uplink = Direct { switch, ledger, now, privileged: false, found: None };
            let endpoint = Endpoint::accepted(now, new, seed, listener, request, &mut uplink);
            self.endpoints.insert(new, endpoint);
        }
        self.touch(port);
        self.touch(new);
        Ok((new, peer))
    }

    /// Sends `data`; returns the number of bytes accepted (on a STREAM possibly fewer than given).
    ///
    /// # Errors
    /// See [`SendError`]; nothing was sent.
    pub fn send(
        &mut self,
        now: Time,
        port: u32,
        data: &[u8],
        to: Option<Destination>,
    ) -> Result<usize, SendError> {
        self.send_keyed(now, port, data, to, 0)
    }

    /// [`Self::send`] with a key for slow members of a group. See [`Endpoint::send_keyed`].
    ///
    /// # Errors
    /// See [`SendError`]; nothing was sent.
    pub fn send_keyed(
        &mut self,
        now: Time,
        port: u32,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
    ) -> Result<usize, SendError> {
        let chosen = self.choosing(port, data.len()).receiver(to);
        let Chosen { found, from_several } = chosen.map_err(|full| self.wait_for_any(now, port, full))?;
        let (sent, waits) = self.on(now, port, SendError::Broken, |e, uplink| {
            uplink.found = found;
            e.set_choice(from_several);
            e.send_keyed(now, data, to, key, uplink).map(|sent| (sent, e.has_unsent()))
        })?;
        // Collected data also leaves with an acknowledgement.
        self.switch.senders.note_backlog(waits);
        Ok(sent)
    }

    /// Receives into `buffer`.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv(
        &mut self,
        now: Time,
        port: u32,
        buffer: &mut [u8],
        options: RecvOptions,
    ) -> Result<Received, RecvError> {
        self.on(now, port, RecvError::NotConnected, |e, uplink| e.recv(now, buffer, options, uplink))
    }

    /// Ends a connection in both directions.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn shutdown(&mut self, now: Time, port: u32) -> Result<(), StateError> {
        self.on(now, port, StateError::NotConnected, |e, uplink| e.shutdown(now, uplink))
    }

    /// Sets an option of a socket.
    ///
    /// # Errors
    /// See [`OptionError`].
    pub fn set_option(
        &mut self,
        now: Time,
        port: u32,
        option: SocketOption,
        value: OptionValue,
    ) -> Result<(), OptionError> {
        self.on(now, port, OptionError::NoSuchOption, |e, uplink| e.set_option(option, value, uplink))
    }

    /// A socket, to read its state, readiness, options and counters.
    #[must_use]
    pub fn endpoint(&self, port: u32) -> Option<&Endpoint> {
        self.endpoints.get(port)
    }

    /// The error that ended a connection; returned once.
    pub fn take_error(&mut self, port: u32) -> Option<ConnectError> {
        self.endpoints.get_mut(port)?.take_error()
    }

    /// The result of a connection request; see [`Endpoint::take_setup`].
    pub fn take_setup(&mut self, port: u32) -> Option<Result<(), ConnectError>> {
        self.endpoints.get_mut(port).map_or(Some(Err(ConnectError::Refused)), Endpoint::take_setup)
    }

    /// The sockets by port number, without the node's own.
    pub fn sockets(&self) -> impl Iterator<Item = (u32, &Endpoint)> {
        self.sockets_from(0)
    }

    /// As [`Self::sockets`], from port `first` on.
    pub fn sockets_from(&self, first: u32) -> impl Iterator<Item = (u32, &Endpoint)> {
        self.endpoints.iter_from(first).filter(|(port, _)| !self.services.owns(*port))
    }

    /// Lets a socket join a group: from then on it sends to members of the group and receives from them only.
    ///
    /// ```
    /// use utipc_core::group::GroupRequest;
    /// use utipc_core::{SocketKind, Stack, StackConfig, Time};
    /// let now = Time::ZERO;
    /// let mut node = Stack::new(now, StackConfig::default());
    /// let members: Vec<u32> = (0..3).map(|_| node.open(now, SocketKind::Rdm).unwrap()).collect();
    /// for (instance, member) in members.iter().enumerate() {
    ///     node.join(now, *member, GroupRequest::new(4300, instance as u32)).unwrap();
    /// }
    /// // Without a destination a message goes to all other members.
    /// node.send(now, members[0], b"hello", None).unwrap();
    /// let mut buffer = [0; 100];
    /// for member in &members[1..] {
    ///     let got = node.recv(now, *member, &mut buffer, Default::default()).unwrap();
    ///     assert_eq!((&buffer[..got.len], got.source.port), (&b"hello"[..], members[0]));
    /// }
    /// ```
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(&mut self, now: Time, port: u32, request: GroupRequest) -> Result<(), JoinError> {
        self.join_with(now, port, request, GroupPolicy::LINUX)
    }

    /// [`Self::join`] with a policy for slow members.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join_with(
        &mut self,
        now: Time,
        port: u32,
        request: GroupRequest,
        policy: GroupPolicy,
    ) -> Result<(), JoinError> {
        self.on(now, port, JoinError::Bind(BindError::InvalidState), |e, uplink| {
            e.join_with(now, request, policy, uplink)
        })
    }

    /// Lets a socket leave its group. What it has received before can still be read.
    ///
    /// # Errors
    /// See [`LeaveError`].
    pub fn leave(&mut self, now: Time, port: u32) -> Result<(), LeaveError> {
        self.on(now, port, LeaveError::NotJoined, |e, uplink| e.leave(uplink))
    }

    /// The choice of a receiver for a message of `bytes` that a socket sends.
    pub(super) fn choosing(&self, sender: u32, bytes: usize) -> Choosing<'_> {
        Choosing { endpoints: &self.endpoints, switch: &self.switch, sender, bytes }
    }

    /// Lets a sender wait for any of the receivers of its anycast: the first that has a turn for it wakes it.
    pub(super) fn wait_for_any(&mut self, now: Time, sender: u32, all: AllFull) -> SendError {
        for port in all.ports {
            if let Some(room) = self.endpoints.get(port).map(room) {
                self.switch.senders.receivers.wait_for_any(now, sender, port, room);
            }
        }
        // A refused call is no news, except for the readiness that it changes.
        self.change_endpoint(now, sender, |endpoint, _| endpoint.wait_for_any(all.reason), |()| false);
        SendError::WouldBlock
    }
}
