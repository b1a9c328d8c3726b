//! The sockets of a node, by port number.

use super::anycast::Chosen;
use super::groups;
use super::quotas::Charges;
use super::uplink::Direct;
use super::{MAX_SOCKETS, OpenError, Stack};
use crate::addr::{PortId, Scope, ServiceRange};
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
        let listener = self.endpoints.get_mut(&port).ok_or(AcceptError::NotListening)?;
        let before = Charges::of(listener);
        let request = listener.next_request()?;
        before.update(listener, &mut self.ledger);
        let peer = request.origin();
        let new = self.switch.open_port();
        let seed = self.switch.next_random();
        if let Some(listener) = self.endpoints.get(&port) {
            let (switch, ledger) = (&mut self.switch, &self.ledger);
            let mut uplink = Direct { switch, ledger, now, privileged: false, found: None };
            let endpoint = Endpoint::accepted(now, new, seed, listener, request, &mut uplink);
            let deadline = endpoint.deadline();
            self.endpoints.insert(new, endpoint);
            self.set_deadline(new, deadline);
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
        let Chosen { found, from_several } = self.choose_receiver(now, port, data.len(), to)?;
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
        self.endpoints.get(&port)
    }

    /// The error that ended a connection; returned once.
    pub fn take_error(&mut self, port: u32) -> Option<ConnectError> {
        self.endpoints.get_mut(&port)?.take_error()
    }

    /// The result of a connection request; see [`Endpoint::take_setup`].
    pub fn take_setup(&mut self, port: u32) -> Option<Result<(), ConnectError>> {
        self.endpoints.get_mut(&port).map_or(Some(Err(ConnectError::Refused)), Endpoint::take_setup)
    }

    /// The sockets by port number, without the node's own.
    pub fn sockets(&self) -> impl Iterator<Item = (u32, &Endpoint)> {
        self.sockets_from(0)
    }

    /// As [`Self::sockets`], from port `first` on.
    pub fn sockets_from(&self, first: u32) -> impl Iterator<Item = (u32, &Endpoint)> {
        let all = self.endpoints.range(first..).map(|(port, e)| (*port, e));
        all.filter(|(port, _)| !self.services.owns(*port))
    }

    /// Runs an operation on a socket and processes everything that follows from it.
    pub(super) fn on<R, E>(
        &mut self,
        now: Time,
        port: u32,
        gone: E,
        f: impl FnOnce(&mut Endpoint, &mut Direct<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let result = self.change_endpoint(now, port, f, Result::is_ok).unwrap_or(Err(gone));
        self.process_pending(now);
        result
    }

    /// Runs `f` on a socket and reports the socket as changed.
    pub(super) fn with_endpoint<R>(
        &mut self,
        now: Time,
        port: u32,
        f: impl FnOnce(&mut Endpoint, &mut Direct<'_>) -> R,
    ) -> Option<R> {
        self.change_endpoint(now, port, f, |_| true)
    }

    /// Runs `f` on a socket, updates its deadline, and removes it if it is closed. The socket is reported as changed
    /// only if its readiness changed or `news` is true of the result: otherwise a caller that repeats a refused call at
    /// each report would loop forever.
    pub(super) fn change_endpoint<R>(
        &mut self,
        now: Time,
        port: u32,
        f: impl FnOnce(&mut Endpoint, &mut Direct<'_>) -> R,
        news: impl FnOnce(&R) -> bool,
    ) -> Option<R> {
        let Some(endpoint) = self.endpoints.get_mut(&port) else {
            self.set_deadline(port, None);
            return None;
        };
        let privileged = self.services.owns(port);
        let (before, due, group) = (endpoint.readiness(), endpoint.deadline(), groups::of(endpoint));
        let charges = Charges::of(endpoint);
        charges.limit(endpoint, &self.ledger);
        let (switch, ledger) = (&mut self.switch, &self.ledger);
        let result = f(endpoint, &mut Direct { switch, ledger, now, privileged, found: None });
        if endpoint.is_full() {
            endpoint.refill(now);
        }
        charges.update(endpoint, &mut self.ledger);
        let (closed, deadline) = (endpoint.is_closed(), endpoint.deadline());
        let group_after = groups::of(endpoint);
        if endpoint.take_group_change()
            && let Some(changed) = &mut self.changed_groups
        {
            changed.insert(port);
        }
        let touched = closed || news(&result) || endpoint.readiness() != before;
        self.note_room(port, closed);
        if closed {
            self.groups.close(port, charges.user());
            self.endpoints.remove(&port);
            self.switch.close_port(now, port);
            self.set_deadline(port, None);
        } else if deadline != due {
            self.set_deadline(port, deadline);
        }
        if group_after != group {
            self.groups.change(port, group, group_after);
        }
        if touched {
            self.touch(port);
        }
        Some(result)
    }

    fn set_deadline(&mut self, port: u32, deadline: Option<Time>) {
        let old = match deadline {
            Some(at) => self.due.insert(port, at),
            None => self.due.remove(&port),
        };
        if old == deadline {
            return;
        }
        if let Some(old) = old {
            self.deadlines.remove(&(old, port));
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, port));
        }
    }

    pub(super) fn touch(&mut self, port: u32) {
        if self.services.owns(port) {
            self.services.touch(port);
        } else if self.ready_ports.insert(port) {
            self.ready.push_back(port);
        }
    }

    /// Processes messages, wake-ups and table changes until none is left.
    pub(super) fn process_pending(&mut self, now: Time) {
        loop {
            if let Some((port, message)) = self.switch.delivery.next() {
                self.handle_local(now, port, message);
            } else if self.begin_spread(now) || self.begin_announcement(now) {
                // Its sender waits.
            } else if let Some((port, node)) = self.switch.senders.next_woken() {
                self.with_endpoint(now, port, |e, uplink| e.wakeup(now, node, uplink));
            } else if self.release_next(now) || self.switch.dispatch_held(now) {
                // Messages may follow.
            } else if !self.serve(now) {
                self.groups.forget_closed();
                return self.charge_memory();
            }
        }
    }
}
