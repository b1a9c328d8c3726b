//! One socket of the kernel.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use utipc_core::ServiceAddr;
use utipc_core::group::{GroupPolicy, GroupRequest, JoinError};
use utipc_core::limits::{MAX_USER_DATA, RESERVED_TYPES};
use utipc_core::socket::{
    BindError, ConnectError, GroupMessage, GroupMessageKind, OptionValue, RecvError, Returned, SocketOption,
    State,
};
use utipc_core::wire::ErrorCode;
use utipc_os::Wait;
use utipc_os::af_tipc::{KernelOption, KernelSocket, Kind, MemberEvent, Message, Origin, PollFlags, Receive};

use super::connect_setup::ConnectSetup;
use super::errors::error_of;
use super::transfer::{Direction, Remaining, Timeout, wait_for};
use super::{address, port, range_address};
use crate::engine::operation::Operation;
use crate::engine::{self, SocketEngine};
use crate::{
    Destination, Engine, Error, MemberInfo, PortId, Received, RecvOptions, Result, Scope, ServiceRange,
    SocketKind, SocketStats,
};

thread_local! {
    /// Receive buffer for messages of unknown length.
    static WHOLE_MESSAGE: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_USER_DATA]);
}

/// Messages and bytes in one direction, which the kernel does not count.
#[derive(Debug, Default)]
struct TrafficCount {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl TrafficCount {
    fn add(&self, bytes: usize) {
        self.messages.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// One socket; dropping it closes it.
#[derive(Debug)]
pub(crate) struct Socket {
    kernel: KernelSocket,
    port: u32,
    kind: SocketKind,
    setup: ConnectSetup,
    receive_timeout: Timeout,
    send_timeout: Timeout,
    sent: TrafficCount,
    received: TrafficCount,
    /// Number of bindings, which the kernel does not report.
    bindings: AtomicU32,
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
            setup: ConnectSetup::new(),
            receive_timeout: Timeout::new(),
            send_timeout: Timeout::new(),
            sent: TrafficCount::default(),
            received: TrafficCount::default(),
            bindings: AtomicU32::new(0),
        })
    }

    /// Marks the connection setup as finished: connected, refused, timed out or never requested.
    fn finish_setup(&self) {
        self.setup.finish();
        // If this fails, waiting calls poll instead of blocking in the kernel.
        let _ = self.kernel.set_nonblocking(false);
    }

    fn translate(&self, message: Message, options: RecvOptions) -> Result<Received> {
        let Message { len, origin, returned, truncated, end_of_record, event } = message;
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
            group: group_message(origin, event),
            ..Received::default()
        })
    }

    pub(super) fn kernel(&self) -> &KernelSocket {
        &self.kernel
    }

    /// The socket's own address.
    pub(super) fn local(&self) -> PortId {
        port(self.kernel.local().ok())
    }
}

impl SocketEngine for Socket {
    fn port(&self) -> u32 {
        self.port
    }

    fn peer(&self) -> Option<PortId> {
        self.kernel.peer().ok().map(|peer| port(Some(peer)))
    }

    fn state(&self) -> State {
        let events = self.kernel.poll(PollFlags::empty(), Some(std::time::Duration::ZERO));
        match events {
            _ if self.setup.is_listening() => State::Listen,
            Ok(events) if events.contains(PollFlags::HUP) => State::Disconnecting,
            _ if self.peer().is_some() => State::Established,
            _ if self.setup.deadline().is_some() => State::Connecting,
            _ => State::Open,
        }
    }

    fn bind(&self, range: ServiceRange, scope: Scope) -> Result<()> {
        self.kernel
            .bind(range_address(range), scope.number().cast_signed())
            .map_err(|error| error_of(Operation::Bind(range), error))?;
        self.bindings.fetch_add(1, Relaxed);
        Ok(())
    }

    fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<()> {
        let remaining = match (which, self.bindings.load(Relaxed)) {
            (None, 0) => return Err(Error::Unbind(BindError::NotBound)),
            (None, _) => 0,
            (Some(_), bound) => bound.saturating_sub(1),
        };
        let which = which.map(|(range, scope)| (range_address(range), scope.number().cast_signed()));
        self.kernel.unbind(which).map_err(|error| error_of(Operation::Unbind, error))?;
        self.bindings.store(remaining, Relaxed);
        Ok(())
    }

    fn join(&self, request: GroupRequest, policy: GroupPolicy) -> Result<()> {
        let refused = |why| Error::Join { group: request.member.service, why };
        if policy != GroupPolicy::LINUX {
            return Err(refused(JoinError::PolicyUnsupported));
        }
        if request.member.service < RESERVED_TYPES {
            return Err(refused(JoinError::Reserved));
        }
        // The kernel lets such a socket join and send, and it would receive nothing.
        if self.kind.is_connection_oriented() {
            return Err(refused(JoinError::WrongKind));
        }
        let operation = Operation::Join(request.member.service);
        self.kernel.join(request.to_words()).map_err(|error| error_of(operation, error))
    }

    fn group_members(&self) -> Result<Vec<MemberInfo>> {
        let why = "the kernel does not list the members of a group (use a daemon or an embedded node)".into();
        Err(Error::Engine { engine: Engine::Kernel, why })
    }

    fn leave(&self) -> Result<()> {
        self.kernel.leave().map_err(|error| error_of(Operation::Leave, error))
    }

    fn listen(&self) -> Result<()> {
        let listening = self.kernel.listen().and_then(|()| self.kernel.set_nonblocking(true));
        listening.map_err(|error| error_of(Operation::Listen, error))?;
        self.setup.set_listening();
        Ok(())
    }

    fn accept(&self, wait: Wait) -> Result<Option<(engine::Socket, PortId)>> {
        let failed = |error| error_of(Operation::Accept, error);
        let direction = Direction::Receive(&self.receive_timeout);
        let accepted = wait_for(&self.kernel, direction, wait, |_| self.kernel.accept());
        let Some(kernel) = accepted.map_err(failed)? else { return Ok(None) };
        let socket = Self::new(kernel, self.kind).map_err(failed)?;
        let peer = socket.peer().unwrap_or_default();
        Ok(Some((engine::Socket::Kernel(socket), peer)))
    }

    fn connect(&self, to: Option<Destination>) -> Result<()> {
        let to = to.map(address);
        if !self.kind.is_connection_oriented() {
            return self.kernel.connect(to).map_err(connect_error);
        }
        // The call must not wait for the reply.
        self.kernel.set_nonblocking(true).map_err(connect_error)?;
        match self.kernel.connect(to) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(IN_PROGRESS) => {}
            Err(error) => {
                if self.setup.deadline().is_none() {
                    self.finish_setup();
                }
                return Err(connect_error(error));
            }
        }
        self.setup.set_requested();
        Ok(())
    }

    fn wait_connected(&self, wait: Wait) -> Result<Option<()>> {
        let remaining = Remaining::start(wait);
        loop {
            if self.peer().is_some() {
                self.finish_setup();
                return Ok(Some(()));
            }
            let over = self.kernel.poll(PollFlags::OUT, Some(std::time::Duration::ZERO));
            if over.map_err(connect_error)?.contains(PollFlags::HUP) {
                self.finish_setup();
                let why = self.kernel.take_error().ok().flatten();
                return Err(why.map_or(Error::Connect(ConnectError::Refused), connect_error));
            }
            let answer =
                self.setup.deadline().map(|until| until.saturating_duration_since(std::time::Instant::now()));
            if answer.is_some_and(|left| left.is_zero()) {
                self.finish_setup();
                // Shutdown may fail since there is no connection; closing the socket ends the request.
                let _ = self.kernel.shutdown();
                return Err(Error::Connect(ConnectError::TimedOut));
            }
            let Some(limit) = remaining.get() else { return Ok(None) };
            let limit = [limit, answer].into_iter().flatten().min();
            self.kernel.poll(PollFlags::OUT, limit).map_err(connect_error)?;
        }
    }

    fn shutdown(&self) -> Result<()> {
        self.kernel.shutdown().map_err(|error| error_of(Operation::Shutdown, error))
    }

    fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        let place = kernel_option(option);
        let number = match value {
            OptionValue::None => None,
            OptionValue::Number(number) => Some(number),
        };
        self.kernel.set_option(place, number).map_err(|error| error_of(Operation::Option, error))?;
        if let (SocketOption::ConnectTimeout, Some(ms)) = (option, number) {
            self.setup.set_timeout(ms);
        }
        Ok(())
    }

    fn option(&self, option: SocketOption) -> Result<u32> {
        self.kernel.option(kernel_option(option)).map_err(|error| error_of(Operation::Option, error))
    }

    fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>> {
        let direction = Direction::Send(&self.send_timeout);
        let address = to.map(address);
        let requests = to.is_some() && self.kind.is_connection_oriented();
        // Non-blocking: a request that carries data would wait for the reply.
        let sent =
            wait_for(&self.kernel, direction, wait, |now| self.kernel.send(data, address, now || requests));
        let sent = sent.map_err(|error| error_of(Operation::Send(to), error))?;
        if let Some(bytes) = sent {
            self.sent.add(bytes);
            if requests {
                self.setup.set_requested();
            }
        }
        Ok(sent)
    }

    fn receive(&self, buffer: &mut [u8], options: RecvOptions, wait: Wait) -> Result<Option<Received>> {
        if buffer.is_empty() {
            return Err(Error::Receive(RecvError::EmptyBuffer));
        }
        let direction = Direction::Receive(&self.receive_timeout);
        let message = wait_for(&self.kernel, direction, wait, |now| {
            let RecvOptions { peek, wait_all, keep_remainder, .. } = options;
            self.kernel.receive(buffer, Receive { peek, wait_all, keep_remainder, now })
        });
        let message = message.map_err(|error| error_of(Operation::Receive, error))?;
        message.map(|message| self.translate(message, options)).transpose()
    }

    fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>> {
        WHOLE_MESSAGE.with_borrow_mut(|buffer| {
            let received = self.receive(buffer, RecvOptions::default(), wait)?;
            data.clear();
            data.extend_from_slice(&buffer[..received.as_ref().map_or(0, |received| received.len)]);
            Ok(received)
        })
    }

    fn stats(&self) -> SocketStats {
        let number = |counter: &AtomicU64| counter.load(Relaxed);
        SocketStats {
            sent_messages: number(&self.sent.messages),
            sent_bytes: number(&self.sent.bytes),
            received_messages: number(&self.received.messages),
            received_bytes: number(&self.received.bytes),
            ..SocketStats::default()
        }
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.kernel.as_fd())
    }
}

fn connect_error(error: io::Error) -> Error {
    error_of(Operation::Connect, error)
}

/// The sender in a group, or the member that an event is about.
fn group_message(origin: Origin, event: Option<MemberEvent>) -> Option<GroupMessage> {
    let [service, instance] = origin.member?;
    let kind = match event {
        Some(MemberEvent::Joined) => GroupMessageKind::Joined,
        Some(MemberEvent::Left) => GroupMessageKind::Left,
        None => GroupMessageKind::Unknown,
    };
    Some(GroupMessage { member: ServiceAddr { service, instance }, kind })
}

fn kernel_option(option: SocketOption) -> KernelOption {
    match option {
        SocketOption::ReceiveBuffer => KernelOption::ReceiveBuffer,
        SocketOption::ReceiveLowWater => KernelOption::ReceiveLowWater,
        other => KernelOption::Tipc(other as i32),
    }
}

/// The errno EINPROGRESS.
const IN_PROGRESS: i32 = utipc_core::socket::Errno::InProgress.number();
