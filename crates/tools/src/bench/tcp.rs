//! The comparison: a TCP connection as a careful program uses it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result, bail};

use super::Mode;
use super::peer::{Job, LIMIT, Role, Test, say_ready};

/// Port of the measurements.
const PORT: u16 = 19_617;

/// A connection; see `transport::Channel`.
pub(super) struct Tcp {
    stream: TcpStream,
    busy: bool,
}

impl Tcp {
    pub(super) fn open(job: &Job) -> Result<Self> {
        let stream = match job.role {
            Role::Serve => {
                let listener =
                    TcpListener::bind(SocketAddr::new(job.local, PORT)).context("listen with TCP")?;
                say_ready()?;
                listener.accept().context("accept with TCP")?.0
            }
            Role::Drive => {
                TcpStream::connect(SocketAddr::new(job.remote, PORT)).context("connect with TCP")?
            }
        };
        // Small writes in a row are what Nagle is for; without it TCP would send a packet for each.
        stream.set_nodelay(job.test == Test::Latency).context("choose whether Nagle works")?;
        stream.set_read_timeout(Some(LIMIT)).context("set the read timeout")?;
        stream.set_write_timeout(Some(LIMIT)).context("set the write timeout")?;
        let busy = job.mode == Mode::Busy;
        stream.set_nonblocking(busy).context("choose between waiting and polling")?;
        Ok(Self { stream, busy })
    }

    pub(super) fn send(&mut self, data: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < data.len() {
            match self.stream.write(&data[sent..]) {
                Ok(n) => sent += n,
                Err(error) if self.busy && error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => bail!("the other end has closed the connection"),
                Ok(n) => return Ok(n),
                Err(error) if self.busy && error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
