//! A connection of any transport, as the measurements use it.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use utipc::{Connection, Node, NodeAddr, ServiceAddress, SocketKind};

use super::peer::{Job, LIMIT, Role, say_ready};
use super::tcp::Tcp;
use super::{Mode, Transport};

/// UDP port of the measured nodes: not the usual one, so that a node that runs on this host is not disturbed.
const PORT: u16 = 16_118;
/// Cluster of the measured nodes.
const CLUSTER: u32 = 9617;
/// What the measured server is bound to.
pub(super) const SERVICE: ServiceAddress = ServiceAddress::new(19_617, 1);

/// A connection.
pub(super) enum Channel {
    Utipc(Utipc),
    Tcp(Tcp),
}

/// A SEQPACKET connection and its node.
pub(super) struct Utipc {
    connection: Connection,
    busy: bool,
}

/// The node of one end: a UDP bearer to the other end, and an explicit address, so that it is up at once.
pub(super) fn node(job: &Job) -> utipc::Result<Node> {
    let number = if job.role == Role::Serve { 1 } else { 2 };
    let mut config =
        utipc::bearers::UdpConfig::replicast("UDP", job.local, vec![SocketAddr::new(job.remote, PORT)]);
    config.local.set_port(PORT);
    Node::builder().cluster(CLUSTER).address(NodeAddr::legacy(1, 1, number)).udp_with(config).start()
}

impl Channel {
    pub(super) fn open(job: &Job) -> Result<Self> {
        Ok(match job.transport {
            Transport::Tcp => Self::Tcp(Tcp::open(job)?),
            Transport::Utipc => Self::Utipc(Utipc::open(job)?),
        })
    }

    pub(super) fn send(&mut self, data: &[u8]) -> Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.send(data),
            Self::Utipc(utipc) => utipc.send(data),
        }
    }

    /// One message, or on a stream as many bytes as fill the buffer.
    pub(super) fn receive_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        match self {
            Self::Tcp(tcp) => {
                let mut done = 0;
                while done < buffer.len() {
                    done += tcp.receive(&mut buffer[done..])?;
                }
                Ok(())
            }
            Self::Utipc(utipc) => {
                let got = utipc.receive(buffer)?;
                ensure!(got == buffer.len(), "a message of {got} bytes instead of {}", buffer.len());
                Ok(())
            }
        }
    }

    /// Receives all that was sent.
    pub(super) fn drain(&mut self, size: usize, messages: u64) -> Result<()> {
        match self {
            Self::Tcp(tcp) => {
                let mut buffer = vec![0; 1 << 18];
                let mut left = size as u64 * messages;
                while left > 0 {
                    let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    left -= tcp.receive(&mut buffer[..most])? as u64;
                }
                Ok(())
            }
            Self::Utipc(utipc) => {
                let mut buffer = vec![0; size];
                for _ in 0..messages {
                    let got = utipc.receive(&mut buffer)?;
                    ensure!(got == size, "a message of {got} bytes instead of {size}");
                }
                Ok(())
            }
        }
    }

    /// Gives the other end the time to read the last message before this process ends.
    pub(super) fn linger(&mut self) {
        match self {
            Self::Tcp(_) => {}
            Self::Utipc(utipc) => utipc.linger(),
        }
    }
}

impl Utipc {
    fn open(job: &Job) -> Result<Self> {
        let node = node(job).context("start a node")?;
        let connection = match job.role {
            Role::Serve => {
                let listener = node.listen(SocketKind::SeqPacket, SERVICE).context("listen")?;
                listener.socket().set_receive_timeout(Some(LIMIT));
                say_ready()?;
                listener.accept().context("accept")?
            }
            Role::Drive => {
                node.wait_for_service(SERVICE, LIMIT).context("wait for the server")?;
                node.connect(SocketKind::SeqPacket, SERVICE).context("connect")?
            }
        };
        let socket = connection.socket();
        socket.set_receive_timeout(Some(LIMIT));
        socket.set_send_timeout(Some(LIMIT));
        let busy = job.mode == Mode::Busy;
        socket.set_nonblocking(busy);
        Ok(Self { connection, busy })
    }

    fn again<T>(&self, mut attempt: impl FnMut() -> utipc::Result<T>) -> Result<T> {
        loop {
            match attempt() {
                Err(utipc::Error::WouldBlock { .. }) if self.busy => std::hint::spin_loop(),
                done => return Ok(done?),
            }
        }
    }

    fn send(&self, data: &[u8]) -> Result<()> {
        self.again(|| self.connection.send(data))
    }

    fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        let received = self.again(|| self.connection.receive_into(buffer))?;
        if received.len == 0 {
            bail!("the other end has closed the connection");
        }
        Ok(received.len)
    }

    /// Waits for the other end to hang up, or hangs up if it does not.
    fn linger(&self) {
        let socket = self.connection.socket();
        socket.set_nonblocking(false);
        socket.set_receive_timeout(Some(std::time::Duration::from_millis(200)));
        // Either answer will do: the time has passed or the other end is gone.
        let _ = socket.receive_into(&mut [0]);
    }
}
