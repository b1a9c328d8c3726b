//! A channel from one process to another, over any transport.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::job::{Job, ServerAddress};

/// One end of a channel.
pub(super) trait Channel: Send {
    /// Sends a message; on a stream, all of the bytes.
    fn send(&mut self, data: &[u8]) -> Result<()>;

    /// Receives a message; on a stream, the available bytes. `None`: nothing arrived within [`Channel::patience`].
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>>;

    /// Whether it carries bytes without message boundaries.
    fn is_stream(&self) -> bool;

    /// The number of messages of `size` bytes that may be unconfirmed, on a transport without flow control: its
    /// receiver confirms every [`credit`] messages.
    fn window(&self, _size: usize) -> Option<u64> {
        None
    }

    /// Time that a receiver waits for a message before it counts the message as lost; `None`: no message is
    /// ever lost.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// Number of messages that a confirmation covers.
pub(super) fn credit(window: u64) -> u64 {
    (window / 2).max(1)
}

/// The open channels of one end, and a counter of the packets that it sends.
pub(super) struct Opened {
    pub(super) channels: Vec<Box<dyn Channel>>,
    pub(super) packets: Packets,
}

/// Returns the number of packets that this end has sent.
pub(super) type Packets = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// A server that listens: its address, and a function that accepts all channels.
pub(super) struct Waiting {
    pub(super) address: ServerAddress,
    pub(super) accept: Box<dyn FnOnce() -> Result<Opened>>,
}

/// Fills the buffer; `None` as for [`Channel::receive`].
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

/// Busy waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spinner {
    crowded: bool,
    limit: Duration,
}

/// Attempts between two checks of the clock.
const ATTEMPTS: u32 = 4096;

impl Spinner {
    pub(super) fn new(job: &Job, limit: Duration) -> Self {
        Self { crowded: job.crowded, limit }
    }

    /// Repeats `attempt` until it has a result; `None` after the limit.
    pub(super) fn wait_for<T>(self, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
        let mut since = None;
        loop {
            for _ in 0..ATTEMPTS {
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
