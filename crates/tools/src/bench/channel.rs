//! A way from one process to another, as the measurements use it, whatever the transport.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::job::{Job, Meet};
use super::party::Transport;
use super::{library, sockets};

/// One end of a way.
pub(super) trait Channel: Send {
    /// Sends a message; on a stream, all of the bytes.
    fn send(&mut self, data: &[u8]) -> Result<()>;

    /// Receives a message; on a stream, what is there. `None`: nothing came in [`Channel::patience`].
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>>;

    /// Bytes without borders.
    fn is_stream(&self) -> bool;

    /// Messages of `size` bytes that may be on their way at once, where the transport itself does not keep a sender
    /// from flooding its receiver: then the receiver confirms every [`credit`] of them.
    fn window(&self, _size: usize) -> Option<u64> {
        None
    }

    /// How long a receiver waits for a message that may have been lost; `None`: none is lost.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// Messages that one confirmation stands for.
pub(super) fn credit(window: u64) -> u64 {
    (window / 2).max(1)
}

/// What a driver has opened: its channels, and what counts the packets that leave this end.
pub(super) struct Opened {
    pub(super) channels: Vec<Box<dyn Channel>>,
    pub(super) packets: Packets,
}

/// Counts the packets that have left this end.
pub(super) type Packets = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// What a server has opened: where it can be found, and how it takes its callers.
pub(super) struct Waiting {
    pub(super) meet: Meet,
    pub(super) accept: Box<dyn FnOnce() -> Result<Opened>>,
}

/// Opens the server's end.
pub(super) fn serve(job: &Job) -> Result<Waiting> {
    match job.party.transport {
        Transport::Utipc | Transport::KernelTipc => library::serve(job),
        #[cfg(feature = "iceoryx2")]
        Transport::Iceoryx2 => super::iceoryx::serve(job),
        #[cfg(not(feature = "iceoryx2"))]
        Transport::Iceoryx2 => bail!("iceoryx2 was left out of this build (add --features iceoryx2)"),
        _ => sockets::serve(job),
    }
}

/// Opens the driver's end: `connections` channels to each server, or one to all of them where the transport has such.
pub(super) fn drive(job: &Job) -> Result<Opened> {
    match job.party.transport {
        Transport::Utipc | Transport::KernelTipc => library::drive(job),
        #[cfg(feature = "iceoryx2")]
        Transport::Iceoryx2 => super::iceoryx::drive(job),
        #[cfg(not(feature = "iceoryx2"))]
        Transport::Iceoryx2 => bail!("iceoryx2 was left out of this build (add --features iceoryx2)"),
        _ => sockets::drive(job),
    }
}

/// Receives exactly as much as fits; `None` as for [`Channel::receive`].
pub(super) fn receive_exact(channel: &mut dyn Channel, buffer: &mut [u8]) -> Result<Option<()>> {
    let mut done = 0;
    while done < buffer.len() {
        match channel.receive(&mut buffer[done..])? {
            None => return Ok(None),
            Some(0) => bail!("the other end has closed the connection"),
            Some(n) if channel.is_stream() => done += n,
            Some(n) if n == buffer.len() => return Ok(Some(())),
            Some(n) => bail!("a message of {n} bytes instead of {}", buffer.len()),
        }
    }
    Ok(Some(()))
}

/// What a busy caller does between two questions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spinner {
    crowded: bool,
    limit: Duration,
}

/// Questions between two looks at the clock.
const TURNS: u32 = 4096;

impl Spinner {
    pub(super) fn new(job: &Job, limit: Duration) -> Self {
        Self { crowded: job.crowded, limit }
    }

    /// Asks until there is an answer; `None` after the limit.
    pub(super) fn ask<T>(self, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
        let mut since = None;
        loop {
            for _ in 0..TURNS {
                if let Some(answer) = attempt()? {
                    return Ok(Some(answer));
                }
                if self.crowded {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            if since.get_or_insert_with(Instant::now).elapsed() > self.limit {
                return Ok(None);
            }
        }
    }
}
