//! The sockets of the system that utipc is compared with, used as a careful program uses them.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, getsockname, ipproto, listen, recv, recvfrom, send, socket_with,
};
use utipc_bench_kit::Named as _;

use super::channel::{Channel, Opened, Packets, Spinner, Waiting};
use super::job::{Job, LIMIT, Role, ServerAddress};
use super::variant::{Mode, Transport};

/// Bytes of UDP payload that may be unconfirmed: at most half of a default receive buffer, even as small messages,
/// whose bookkeeping exceeds their size.
const UDP_WINDOW: usize = 96 << 10;
/// Messages of UDP that may be unconfirmed.
const UDP_MESSAGES: u64 = 128;
/// Time that a UDP sender waits for a confirmation before it counts messages as lost.
const UDP_SENDER_PATIENCE: Duration = Duration::from_millis(200);
/// Time that a UDP receiver waits for a message before it counts the rest as lost. It is longer than that of a
/// sender.
const UDP_RECEIVER_PATIENCE: Duration = Duration::from_secs(2);
/// Receive buffer that UDP asks for, bytes; the system grants up to its limit. TCP sizes its own.
const UDP_BUFFER: usize = 4 << 20;

/// A connected socket.
struct Connected {
    fd: OwnedFd,
    transport: Transport,
    busy: Option<Spinner>,
    patience: Option<Duration>,
}

fn open(transport: Transport) -> Result<OwnedFd> {
    let (family, kind, protocol): (_, _, Option<Protocol>) = match transport {
        Transport::Uds => (AddressFamily::UNIX, SocketType::SEQPACKET, None),
        Transport::UdsStream => (AddressFamily::UNIX, SocketType::STREAM, None),
        Transport::Udp => (AddressFamily::INET, SocketType::DGRAM, None),
        Transport::Sctp => (AddressFamily::INET, SocketType::STREAM, Some(ipproto::SCTP)),
        _ => (AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)),
    };
    let fd = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)
        .with_context(|| format!("open a socket for {}", transport.name()))?;
    if transport == Transport::Udp {
        // A size above the system's limit needs a privilege; a smaller buffer loses messages, which are counted.
        if sockopt::set_socket_recv_buffer_size_force(&fd, UDP_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&fd, UDP_BUFFER);
        }
    }
    Ok(fd)
}

fn is_local(transport: Transport) -> bool {
    matches!(transport, Transport::Uds | Transport::UdsStream)
}

/// An abstract name: it leaves no file behind and works on a read-only file system.
fn local_name(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).context("name a Unix socket")
}

/// Opens the server's end: one listener, or a UDP socket for each connection.
pub(super) fn serve(job: &Job) -> Result<Waiting> {
    let transport = job.variant.transport;
    let count = if transport == Transport::Udp { job.connections } else { 1 };
    let fds = (0..count).map(|_| open(transport)).collect::<Result<Vec<_>>>()?;
    let mut own = ServerAddress::default();
    for fd in &fds {
        if is_local(transport) {
            own.name = format!("utipc-bench-{}", std::process::id());
            bind(fd, &local_name(&own.name)?).with_context(|| format!("bind to @{}", own.name))?;
        } else {
            let address = SocketAddr::new(job.site.local, 0);
            bind(fd, &address).with_context(|| format!("bind {} to {address}", transport.name()))?;
            let bound = SocketAddr::try_from(getsockname(fd)?).context("read the own address")?;
            own.ports.push(bound.port());
        }
        if transport != Transport::Udp {
            listen(fd, 64).with_context(|| format!("listen with {}", transport.name()))?;
        }
    }
    let job = job.clone();
    let accept = move || {
        let channels = if transport == Transport::Udp {
            fds.into_iter().map(|fd| connected_udp(fd, &job)).collect::<Result<Vec<_>>>()?
        } else {
            let listener = fds.first().context("accept: there is no listener")?;
            let accepted = |_| {
                let fd = accept_with(listener, SocketFlags::CLOEXEC)
                    .with_context(|| format!("accept with {}", transport.name()))?;
                Connected::boxed(fd, &job)
            };
            (0..job.connections).map(accepted).collect::<Result<Vec<_>>>()?
        };
        Ok(Opened { channels, packets: packets(&job) })
    };
    Ok(Waiting { address: own, accept: Box::new(accept) })
}

/// A UDP socket, connected to the source of its first datagram.
fn connected_udp(fd: OwnedFd, job: &Job) -> Result<Box<dyn Channel>> {
    sockopt::set_socket_timeout(&fd, Timeout::Recv, Some(LIMIT))?;
    let (_, _, from) =
        recvfrom(&fd, &mut [0; 8], RecvFlags::empty()).context("wait for the first UDP datagram")?;
    let from = SocketAddr::try_from(from.context("the first UDP datagram has no address")?)?;
    connect(&fd, &from).with_context(|| format!("connect to {from}"))?;
    send(&fd, b"welcome", SendFlags::empty()).context("answer the first UDP datagram")?;
    Connected::boxed(fd, job)
}

/// Opens the driver's end.
pub(super) fn drive(job: &Job) -> Result<Opened> {
    let transport = job.variant.transport;
    let mut channels = Vec::new();
    for server in &job.addresses {
        for connection in 0..job.connections as usize {
            let fd = open(transport)?;
            if is_local(transport) {
                connect(&fd, &local_name(&server.name)?)
                    .with_context(|| format!("connect to @{}", server.name))?;
            } else {
                let port = server
                    .ports
                    .get(connection)
                    .or(server.ports.first())
                    .context("the server has no port")?;
                let address = SocketAddr::new(job.site.remote, *port);
                connect(&fd, &address)
                    .with_context(|| format!("connect with {} to {address}", transport.name()))?;
            }
            if transport == Transport::Udp {
                sockopt::set_socket_timeout(&fd, Timeout::Recv, Some(LIMIT))?;
                send(&fd, b"hello", SendFlags::empty()).context("send the first UDP datagram")?;
                recv(&fd, &mut [0; 8], RecvFlags::empty())
                    .context("wait for the answer to the first UDP datagram")?;
            }
            channels.push(Connected::boxed(fd, job)?);
        }
    }
    Ok(Opened { channels, packets: packets(job) })
}

/// The system's packet counter; only in a private namespace does it count just our packets.
fn packets(job: &Job) -> Packets {
    let (private, transport) = (job.site.private, job.variant.transport);
    Box::new(move || if private { packets_out(transport) } else { None })
}

/// Packets of this network namespace that a transport has sent; each segment of a super-frame counts.
fn packets_out(transport: Transport) -> Option<u64> {
    match transport {
        Transport::Tcp | Transport::TcpNagle => Some(procfs::net::snmp().ok()?.tcp_out_segs),
        Transport::Udp => Some(procfs::net::snmp().ok()?.udp_out_datagrams),
        Transport::Sctp => {
            let text = std::fs::read_to_string("/proc/net/sctp/snmp").ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("SctpOutSCTPPacks"))?;
            line.trim().parse().ok()
        }
        _ => None,
    }
}

impl Connected {
    fn boxed(fd: OwnedFd, job: &Job) -> Result<Box<dyn Channel>> {
        let transport = job.variant.transport;
        match transport {
            Transport::Tcp => sockopt::set_tcp_nodelay(&fd, true).context("switch Nagle off")?,
            Transport::TcpNagle => sockopt::set_tcp_nodelay(&fd, false).context("leave Nagle on")?,
            _ => {}
        }
        let patience = (transport == Transport::Udp).then_some(match job.role {
            Role::Serve => UDP_RECEIVER_PATIENCE,
            Role::Drive => UDP_SENDER_PATIENCE,
        });
        let wait = patience.unwrap_or(LIMIT);
        sockopt::set_socket_timeout(&fd, Timeout::Recv, Some(wait)).context("set the receive timeout")?;
        sockopt::set_socket_timeout(&fd, Timeout::Send, Some(LIMIT)).context("set the send timeout")?;
        let busy = (job.variant.mode == Mode::Busy).then(|| Spinner::new(job, wait));
        Ok(Box::new(Self { fd, transport, busy, patience }))
    }

    /// Tries to send once; `None`: try again.
    fn send_some(&self, data: &[u8]) -> Result<Option<usize>> {
        let flags = if self.busy.is_some() { SendFlags::DONTWAIT } else { SendFlags::empty() };
        match send(&self.fd, data, flags | SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(Some(sent)),
            Err(Errno::AGAIN) if self.busy.is_some() => Ok(None),
            Err(Errno::AGAIN) => bail!("the other end has not read for {LIMIT:?}"),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(why) => Err(why.into()),
        }
    }
}

impl Channel for Connected {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < data.len() {
            let rest = &data[sent..];
            let done = match self.busy {
                Some(spinner) => spinner.wait_for(|| self.send_some(rest))?,
                None => self.send_some(rest)?,
            };
            sent += done.with_context(|| format!("the other end has not read for {LIMIT:?}"))?;
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let flags = if self.busy.is_some() { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let mut attempt = || match recv(&self.fd, &mut *buffer, flags) {
            Ok((n, _)) => Ok(Some(n)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(why) => Err(why.into()),
        };
        let received = match self.busy {
            Some(spinner) => spinner.wait_for(attempt)?,
            None => attempt()?,
        };
        if received.is_none() {
            ensure!(self.patience.is_some(), "no message for {LIMIT:?}");
        }
        Ok(received)
    }

    fn is_stream(&self) -> bool {
        !matches!(self.transport, Transport::Uds | Transport::Udp)
    }

    fn window(&self, size: usize) -> Option<u64> {
        let messages = (UDP_WINDOW / size.max(1)) as u64;
        (self.transport == Transport::Udp).then_some(messages.clamp(2, UDP_MESSAGES))
    }

    fn patience(&self) -> Option<Duration> {
        self.patience
    }
}
