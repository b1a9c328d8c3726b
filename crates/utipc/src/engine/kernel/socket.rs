//! A socket of the kernel's.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{ConnectError, OptionValue, RecvError, Returned, SocketOption, State};
use utipc_core::wire::ErrorCode;
use utipc_os::Wait;
use utipc_os::af_tipc::{KernelOption, KernelSocket, Kind, Message, PollFlags, Receive};

use super::setup::Setup;
use super::transfer::{Left, Timeout, Way, wait_for};
use super::{address, port, range_address, reasons, scope_number};
use crate::{
    Destination, Error, PortId, Received, RecvOptions, Result, Scope, ServiceRange, SocketKind, SocketStats,
};

thread_local! {
    /// Where a message of unknown length is received.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_USER_DATA]);
}

/// Counts what passes; the kernel does not.
#[derive(Debug, Default)]
struct Count {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// One socket; closed when dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    kernel: KernelSocket,
    port: u32,
    kind: SocketKind,
    setup: Setup,
    receive_timeout: Timeout,
    send_timeout: Timeout,
    sent: Count,
    received: Count,
}

impl Socket {
    pub(super) fn open(kind: SocketKind) -> io::Result<Self> {
        let kernel = KernelSocket::open(match kind {
            SocketKind::Stream => Kind::Stream,
            SocketKind::SeqPacket => Kind::SeqPacket,
            SocketKind::Rdm => Kind::Rdm,
            SocketKind::Dgram => Kind::Dgram,
        })?;
        Self::new(kernel, kind)
    }

    fn new(kernel: KernelSocket, kind: SocketKind) -> io::Result<Self> {
        let port = port(Some(kernel.local()?)).port;
        Ok(Self {
            kernel,
            port,
            kind,
            setup: Setup::new(),
            receive_timeout: Timeout::new(),
            send_timeout: Timeout::new(),
            sent: Count::default(),
            received: Count::default(),
        })
    }

    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    pub(crate) fn peer(&self) -> Option<PortId> {
        self.kernel.peer().ok().map(|peer| port(Some(peer)))
    }

    pub(crate) fn state(&self) -> State {
        let events = self.kernel.poll(PollFlags::empty(), Some(std::time::Duration::ZERO));
        match events {
            _ if self.setup.is_listening() => State::Listen,
            Ok(events) if events.contains(PollFlags::HUP) => State::Disconnecting,
            _ if self.peer().is_some() => State::Established,
            _ if self.setup.deadline().is_some() => State::Connecting,
            _ => State::Open,
        }
    }

    pub(crate) fn bind(&self, range: ServiceRange, scope: Scope) -> Result<()> {
        self.kernel
            .bind(range_address(range), scope_number(scope))
            .map_err(|error| reasons::binding(error, |why| Error::Bind { range, why }))
    }

    pub(crate) fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<()> {
        let which = which.map(|(range, scope)| (range_address(range), scope_number(scope)));
        self.kernel.unbind(which).map_err(|error| reasons::binding(error, Error::Unbind))
    }

    pub(crate) fn listen(&self) -> Result<()> {
        let listening = self.kernel.listen().and_then(|()| self.kernel.set_nonblocking(true));
        listening.map_err(|error| reasons::state(error, Error::Listen))?;
        self.setup.listens();
        Ok(())
    }

    pub(crate) fn accept(&self, wait: Wait) -> Result<Option<(Self, PortId)>> {
        let way = Way::In(&self.receive_timeout);
        let accepted = wait_for(&self.kernel, way, wait, |_| self.kernel.accept());
        let Some(kernel) = accepted.map_err(reasons::accepting)? else { return Ok(None) };
        let socket = Self::new(kernel, self.kind).map_err(reasons::accepting)?;
        let peer = socket.peer().unwrap_or_default();
        Ok(Some((socket, peer)))
    }

    pub(crate) fn connect(&self, to: Option<Destination>) -> Result<()> {
        let to = to.map(address);
        if !self.kind.is_connection_oriented() {
            return self.kernel.connect(to).map_err(reasons::connecting);
        }
        // It is not to wait for the answer.
        self.kernel.set_nonblocking(true).map_err(reasons::connecting)?;
        match self.kernel.connect(to) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(IN_PROGRESS) => {}
            Err(error) => {
                if self.setup.deadline().is_none() {
                    self.is_settled();
                }
                return Err(reasons::connecting(error));
            }
        }
        self.setup.requested();
        Ok(())
    }

    /// No connection is being set up (any more).
    fn is_settled(&self) {
        self.setup.settled();
        // Calls that wait then do so by polling.
        let _ = self.kernel.set_nonblocking(false);
    }

    pub(crate) fn wait_connected(&self, wait: Wait) -> Result<Option<()>> {
        let left = Left::start(wait);
        loop {
            if self.peer().is_some() {
                self.is_settled();
                return Ok(Some(()));
            }
            let over = self.kernel.poll(PollFlags::OUT, Some(std::time::Duration::ZERO));
            if over.map_err(reasons::connecting)?.contains(PollFlags::HUP) {
                self.is_settled();
                let why = self.kernel.take_error().ok().flatten();
                return Err(why.map_or(Error::Connect(ConnectError::Refused), reasons::connecting));
            }
            let answer =
                self.setup.deadline().map(|until| until.saturating_duration_since(std::time::Instant::now()));
            if answer.is_some_and(|left| left.is_zero()) {
                self.is_settled();
                // There is no connection to end; the request is forgotten with the socket.
                let _ = self.kernel.shutdown();
                return Err(Error::Connect(ConnectError::TimedOut));
            }
            let Some(limit) = left.get() else { return Ok(None) };
            let limit = [limit, answer].into_iter().flatten().min();
            self.kernel.poll(PollFlags::OUT, limit).map_err(reasons::connecting)?;
        }
    }

    pub(crate) fn shutdown(&self) -> Result<()> {
        self.kernel.shutdown().map_err(|error| reasons::state(error, Error::Shutdown))
    }

    pub(crate) fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        let place = match option {
            SocketOption::ReceiveBuffer => KernelOption::ReceiveBuffer,
            SocketOption::ReceiveLowWater => KernelOption::ReceiveLowWater,
            other => KernelOption::Tipc(other as i32),
        };
        let number = match value {
            OptionValue::None => None,
            OptionValue::Number(number) => Some(number),
        };
        self.kernel.set_option(place, number).map_err(reasons::option)?;
        if let (SocketOption::ConnectTimeout, Some(ms)) = (option, number) {
            self.setup.set_timeout(ms);
        }
        Ok(())
    }

    pub(crate) fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>> {
        let way = Way::Out(&self.send_timeout);
        let address = to.map(address);
        let requests = to.is_some() && self.kind.is_connection_oriented();
        // A request that carries data would wait for its answer.
        let sent = wait_for(&self.kernel, way, wait, |now| self.kernel.send(data, address, now || requests));
        let sent = sent.map_err(|error| reasons::sending(error, |why| Error::Send { to, why }))?;
        if let Some(bytes) = sent {
            self.sent.add(bytes);
            if requests {
                self.setup.requested();
            }
        }
        Ok(sent)
    }

    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        options: RecvOptions,
        wait: Wait,
    ) -> Result<Option<Received>> {
        if buffer.is_empty() {
            return Err(Error::Receive(RecvError::EmptyBuffer));
        }
        let way = Way::In(&self.receive_timeout);
        let message = wait_for(&self.kernel, way, wait, |now| {
            let RecvOptions { peek, wait_all, keep_remainder, .. } = options;
            self.kernel.receive(buffer, Receive { peek, wait_all, keep_remainder, now })
        });
        message.map_err(reasons::receiving)?.map(|message| self.translate(message, options)).transpose()
    }

    pub(crate) fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>> {
        ROOM.with_borrow_mut(|room| {
            let received = self.receive(room, RecvOptions::default(), wait)?;
            data.clear();
            data.extend_from_slice(&room[..received.as_ref().map_or(0, |received| received.len)]);
            Ok(received)
        })
    }

    fn translate(&self, message: Message, options: RecvOptions) -> Result<Received> {
        let Message { len, origin, returned, truncated, end_of_record } = message;
        let returned = returned.map(|(code, data)| {
            let code = u8::try_from(code).map_or(ErrorCode::Ok, ErrorCode::from);
            Returned { code, data }
        });
        if let Some(Returned { code, .. }) = &returned
            && self.kind.is_connection_oriented()
            && *code != ErrorCode::ConnShutdown
            && !options.control
        {
            return Err(Error::Receive(RecvError::ConnectionReset));
        }
        if !options.peek {
            self.received.add(len);
        }
        Ok(Received {
            len,
            source: port(origin.source),
            destination: origin.name.map(|[service, lower, upper]| ServiceRange { service, lower, upper }),
            returned,
            truncated,
            end_of_record,
            ..Received::default()
        })
    }

    pub(crate) fn stats(&self) -> SocketStats {
        let number = |counter: &AtomicU64| counter.load(Relaxed);
        SocketStats {
            sent_messages: number(&self.sent.messages),
            sent_bytes: number(&self.sent.bytes),
            received_messages: number(&self.received.messages),
            received_bytes: number(&self.received.bytes),
            ..SocketStats::default()
        }
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.kernel.as_fd()
    }

    pub(super) fn kernel(&self) -> &KernelSocket {
        &self.kernel
    }

    /// The own port with its node.
    pub(super) fn local(&self) -> PortId {
        port(self.kernel.local().ok())
    }
}

/// EINPROGRESS.
const IN_PROGRESS: i32 = utipc_core::socket::Errno::InProgress.number();
