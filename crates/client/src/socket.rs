//! A socket whose endpoint is the daemon's: each call is a command, and a call that waits waits for the bell.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use utipc_attach::{Failure, Reply, Request, SocketView};
use utipc_core::addr::{PortId, Scope, ServiceRange};
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{
    AcceptError, ConnectError, Destination, OptionValue, Received, RecvError, RecvOptions, SendError,
    SocketKind, SocketOption, State,
};

use crate::attachment::Attachment;
use crate::descriptor::Descriptor;
use crate::wait::Left;
use crate::{Error, Wait};

/// One socket of the daemon's node; closed when dropped.
#[derive(Debug)]
pub struct Socket {
    attachment: Arc<Attachment>,
    port: u32,
    kind: SocketKind,
    /// [`SocketOption::ReceiveLowWater`]: how much a blocking receive of a stream collects.
    low_water: AtomicU32,
    descriptor: OnceLock<Descriptor>,
}

/// What a would-block is among the failures of a command.
fn would_block(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Send(SendError::WouldBlock)
            | Failure::Receive(RecvError::WouldBlock)
            | Failure::Accept(AcceptError::WouldBlock)
    )
}

/// `None` if the call has to wait.
fn unless_blocked<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Failed(failure)) if would_block(&failure) => Ok(None),
        result => result.map(Some),
    }
}

impl Socket {
    pub(crate) fn new(attachment: Arc<Attachment>, port: u32, kind: SocketKind) -> Self {
        Self { attachment, port, kind, low_water: AtomicU32::new(1), descriptor: OnceLock::new() }
    }

    /// Port number.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.port
    }

    /// State, peer, readiness, counters.
    ///
    /// # Errors
    /// [`Error::Died`]; so for all calls.
    pub fn look(&self) -> Result<SocketView, Error> {
        self.attachment.call(&Request::Look { port: self.port }, &[], |reply, _| match reply {
            Reply::Socket(view) => Some(*view),
            _ => None,
        })
    }

    /// Binds to a range.
    ///
    /// # Errors
    /// [`Failure::Bind`], [`Failure::NotAllowed`].
    pub fn bind(&self, range: ServiceRange, scope: Scope) -> Result<(), Error> {
        self.command(&Request::Bind { port: self.port, range, scope })
    }

    /// Withdraws one binding, or all.
    ///
    /// # Errors
    /// [`Failure::Bind`].
    pub fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<(), Error> {
        self.command(&Request::Unbind { port: self.port, which })
    }

    /// Makes it a listener.
    ///
    /// # Errors
    /// [`Failure::Call`].
    pub fn listen(&self) -> Result<(), Error> {
        self.command(&Request::Listen { port: self.port })
    }

    /// The next connection request: a socket for it, and who asked; `None` if there is none within `wait`.
    ///
    /// # Errors
    /// [`Failure::Accept`].
    pub fn accept(&self, wait: Wait) -> Result<Option<(Self, PortId)>, Error> {
        let request = Request::Accept { port: self.port };
        let accepted = self.block(wait, || {
            let accepted = self.attachment.call(&request, &[], |reply, _| match reply {
                Reply::Accepted { port, peer } => Some((port, peer)),
                _ => None,
            });
            self.was_read()?;
            unless_blocked(accepted)
        })?;
        let socket = |port| Self::new(Arc::clone(&self.attachment), port, self.kind);
        Ok(accepted.map(|(port, peer)| (socket(port), peer)))
    }

    /// Begins a connection, or sets the default destination of a connectionless socket.
    ///
    /// # Errors
    /// [`Failure::Connect`].
    pub fn connect(&self, to: Option<Destination>) -> Result<(), Error> {
        let begun = self.command(&Request::Connect { port: self.port, to });
        if self.kind.is_connection_oriented() {
            self.was_filled()?;
        }
        begun
    }

    /// Waits until the connection is set up; `None` if it is not within `wait`.
    ///
    /// # Errors
    /// [`Failure::Connect`] if it never will be.
    pub fn wait_connected(&self, wait: Wait) -> Result<Option<()>, Error> {
        self.block(wait, || match self.look()?.state {
            State::Connecting => Ok(None),
            State::Established => Ok(Some(())),
            _ => {
                let why = self.take_error()?.unwrap_or(ConnectError::Refused);
                Err(Error::Failed(Failure::Connect(why)))
            }
        })
    }

    /// The error that ended the connection, once.
    fn take_error(&self) -> Result<Option<ConnectError>, Error> {
        self.attachment.call(&Request::TakeError { port: self.port }, &[], |reply, _| match reply {
            Reply::Error(error) => Some(error),
            _ => None,
        })
    }

    /// Ends the connection in good order.
    ///
    /// # Errors
    /// [`Failure::Call`].
    pub fn shutdown(&self) -> Result<(), Error> {
        self.command(&Request::Shutdown { port: self.port })
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<(), Error> {
        self.command(&Request::SetOption { port: self.port, option, value })?;
        if let (SocketOption::ReceiveLowWater, OptionValue::Number(bytes)) = (option, value) {
            self.low_water.store(bytes.max(1), Relaxed);
        }
        Ok(())
    }

    /// Reads an option.
    ///
    /// # Errors
    /// [`Failure::Option`].
    pub fn option(&self, option: SocketOption) -> Result<u32, Error> {
        self.attachment.call(&Request::GetOption { port: self.port, option }, &[], |reply, _| match reply {
            Reply::Number(value) => Some(value),
            _ => None,
        })
    }

    /// Sends `data`; the bytes taken, or `None` if none could be within `wait`.
    ///
    /// # Errors
    /// [`Failure::Send`].
    pub fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>, Error> {
        // What one command of a stream carries; the rest is for the next call.
        let data = match self.kind {
            SocketKind::Stream => data.get(..MAX_USER_DATA).unwrap_or(data),
            _ if data.len() > MAX_USER_DATA => return Err(Failure::Send(SendError::MessageSize).into()),
            _ => data,
        };
        let request = Request::Send { port: self.port, to };
        self.block(wait, || {
            let sent = unless_blocked(self.attachment.call(&request, data, |reply, _| match reply {
                Reply::Number(bytes) | Reply::Sent { bytes, .. } => Some((bytes as usize).min(data.len())),
                _ => None,
            }));
            if matches!(sent, Ok(None)) {
                self.was_filled()?;
            }
            sent
        })
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
        let goal = self.goal(buffer.len(), options);
        // A stream may have to collect more than one command yields.
        let mut collected: Option<Received> = None;
        let received = self.block(wait, || {
            loop {
                let done = collected.as_ref().map_or(0, |part| part.len);
                let room = buffer.get_mut(done..).unwrap_or_default();
                let part = match unless_blocked(self.receive_part(room, options)) {
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
        self.block(wait, || {
            unless_blocked(self.receive_with(MAX_USER_DATA, RecvOptions::default(), |received, payload| {
                data.clear();
                data.extend_from_slice(payload);
                received
            }))
        })
    }

    /// Bytes that a blocking receive collects.
    fn goal(&self, buffer: usize, options: RecvOptions) -> usize {
        match self.kind {
            SocketKind::Stream if options.wait_all => buffer,
            SocketKind::Stream => (self.low_water.load(Relaxed) as usize).min(buffer),
            _ => 1,
        }
    }

    fn receive_part(&self, buffer: &mut [u8], options: RecvOptions) -> Result<Received, Error> {
        self.receive_with(buffer.len(), options, |mut received, payload| {
            received.len = payload.len().min(buffer.len());
            buffer[..received.len].copy_from_slice(&payload[..received.len]);
            received
        })
    }

    /// One command for at most `room` bytes; `take` gets them.
    fn receive_with(
        &self,
        room: usize,
        options: RecvOptions,
        take: impl FnOnce(Received, &[u8]) -> Received,
    ) -> Result<Received, Error> {
        let room = u32::try_from(room.min(MAX_USER_DATA)).unwrap_or(u32::MAX);
        let request = Request::Receive { port: self.port, room, options };
        let received = self.attachment.call(&request, &[], |reply, extra| match reply {
            Reply::Received(received) => Some(take(received, extra.payload)),
            _ => None,
        });
        self.was_read()?;
        received
    }

    /// A descriptor whose level is the readiness of the socket; made at the first call.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor is free.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        if let Some(descriptor) = self.descriptor.get() {
            return Ok(descriptor.as_fd());
        }
        let near = self.attachment.call(&Request::Descriptor { port: self.port }, &[], |reply, extra| {
            extra.fds.pop().filter(|_| reply == Reply::Done)
        })?;
        Ok(self.descriptor.get_or_init(|| Descriptor::new(near)).as_fd())
    }

    /// Something was taken, or there was nothing: the descriptor is readable only if there is more.
    fn was_read(&self) -> Result<(), Error> {
        match self.descriptor.get() {
            Some(descriptor) if descriptor.drain() => self.command(&Request::Rearm { port: self.port }),
            _ => Ok(()),
        }
    }

    /// A send would block: the descriptor is writable only if that has changed already.
    fn was_filled(&self) -> Result<(), Error> {
        match self.descriptor.get() {
            Some(descriptor) => {
                descriptor.plug();
                self.command(&Request::Rearm { port: self.port })
            }
            None => Ok(()),
        }
    }

    fn command(&self, request: &Request) -> Result<(), Error> {
        self.attachment.command(request, &[])
    }

    /// Tries until `attempt` yields something, and again whenever the bell was rung.
    fn block<T>(
        &self,
        wait: Wait,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let mut end = None;
        loop {
            let seen = self.attachment.bell().seq();
            if let Some(done) = attempt()? {
                return Ok(Some(done));
            }
            match end.get_or_insert_with(|| wait.start()).left() {
                Left::Nothing => return Ok(None),
                Left::Time(limit) => self.attachment.bell().wait(seen, limit),
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A daemon that is gone has closed it already.
        let _ = self.command(&Request::Close { port: self.port });
    }
}
