//! Reads a sink's feeds for their thread: returns packets in order, sends credits, and reads ahead while the hub is
//! busy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::meter::{Meter, unread};
use super::senders::{Filter, Senders};
use super::source_side::WINDOW;
use super::wire::Header;
use super::{Address, FeedReader, Result};
use crate::hub::Now;
use crate::net::now;

/// Size of a buffer for the largest message of any carrier, bytes.
const BUFFER: usize = 66_000;
/// Maximum number of packets of strangers that one call drops, so that a flood of them cannot hold it.
const FOREIGN_PER_CALL: usize = 256;

/// A packet: its sender, header and length.
type Packet = (Address, Header, usize);

/// The widest window among a sink's sources, bytes; shared by the sink side and its feeds.
#[derive(Clone, Debug)]
pub(super) struct Window(Arc<AtomicU64>);

impl Default for Window {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(WINDOW)))
    }
}

impl Window {
    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A [`FeedReader`] with credits and read-ahead.
pub struct Feeds {
    reader: Box<dyn FeedReader>,
    /// Number of the sink end that the reader belongs to.
    generation: u64,
    meter: Meter,
    filter: Filter,
    window: Window,
    buffer: Vec<u8>,
    /// The packet in `buffer` that [`Feeds::next`] returns next.
    fetched: Option<Packet>,
    /// Time at which it was read, if `timed`.
    fetched_at: Now,
    /// Whether it has not been credited yet.
    uncredited: bool,
    /// The packet in `buffer` that was returned last, until it is credited.
    used: Option<Packet>,
    /// Packets read ahead and credited, behind `fetched`; with the time of their read, if `timed`.
    ahead: VecDeque<(Now, Vec<u8>)>,
    ahead_bytes: usize,
    /// The packet read ahead that was returned last.
    current: Vec<u8>,
    scratch: Vec<u8>,
    timed: bool,
}

impl std::fmt::Debug for Feeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feeds").field("meter", &self.meter).finish_non_exhaustive()
    }
}

impl Feeds {
    /// The feeds of the sink end number `generation`.
    pub(super) fn new(
        reader: Box<dyn FeedReader>,
        window: Window,
        senders: Senders,
        generation: u64,
    ) -> Self {
        Self {
            reader,
            generation,
            meter: Meter::default(),
            filter: Filter::new(senders),
            window,
            buffer: vec![0; BUFFER],
            fetched: None,
            fetched_at: Now::ZERO,
            uncredited: false,
            used: None,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            current: Vec::new(),
            scratch: Vec::new(),
            timed: false,
        }
    }

    /// Number of the sink end that these feeds belong to, for [`SinkSide::lose`](super::sink_side::SinkSide::lose).
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Stamps packets with the time of their read from now on if `timed`.
    pub fn set_timed(&mut self, timed: bool) {
        self.timed = timed;
    }

    /// Time at which the next packet was read; zero unless timed.
    #[must_use]
    pub fn read_at(&self) -> Now {
        match (self.fetched, self.ahead.front()) {
            (None, Some((at, _))) => *at,
            _ => self.fetched_at,
        }
    }

    fn clock(&self) -> Now {
        if self.timed { now() } else { Now::ZERO }
    }

    /// The next packet, or `None` if none comes within `wait`. Credits the packet before, which the caller no
    /// longer needs.
    ///
    /// # Errors
    /// The endpoint is lost.
    pub fn next(&mut self, wait: Duration) -> Result<Option<&mut [u8]>> {
        if !self.fetch(wait)? {
            return Ok(None);
        }
        if let Some(packet) = self.fetched.take() {
            self.used = std::mem::take(&mut self.uncredited).then_some(packet);
            return Ok(self.buffer.get_mut(..packet.2));
        }
        self.current = self.ahead.pop_front().unwrap_or_default().1;
        self.ahead_bytes -= self.current.len();
        Ok(Some(&mut self.current))
    }

    /// Waits at most `wait` for the next packet, and returns whether there is one.
    ///
    /// # Errors
    /// The endpoint is lost.
    pub fn fetch(&mut self, wait: Duration) -> Result<bool> {
        self.credit();
        if self.fetched.is_some() || !self.ahead.is_empty() {
            return Ok(true);
        }
        let end = (wait > Meter::IDLE).then(|| Instant::now() + wait);
        let (mut left, mut foreign) = (wait, 0);
        loop {
            let received = self.reader.receive(left.min(Meter::IDLE), &mut self.buffer)?;
            if let Some((from, len)) = received {
                let packet = self.buffer.get(..len).unwrap_or(&[]);
                self.fetched = self.filter.check(from, packet).map(|header| (from, header, len));
                if self.fetched.is_some() {
                    self.fetched_at = self.clock();
                    self.uncredited = true;
                    return Ok(true);
                }
                foreign += 1;
                if wait.is_zero() && foreign < FOREIGN_PER_CALL {
                    continue;
                }
            }
            if wait.is_zero() || foreign >= FOREIGN_PER_CALL {
                return Ok(false);
            }
            let now = Instant::now();
            for (to, feed, position) in self.meter.idle(now) {
                self.reader.credit(to, feed, position);
            }
            left = end.map_or(Duration::ZERO, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Reads and credits packets that have arrived, as far as the window allows. Called while the hub is busy,
    /// so that the source need not wait.
    ///
    /// # Errors
    /// The endpoint is lost.
    pub fn read_ahead(&mut self) -> Result<()> {
        let window = self.window.get();
        let most = window.saturating_sub(unread(window));
        self.credit();
        if let Some(packet) = self.fetched.filter(|_| self.uncredited) {
            self.uncredited = false;
            self.count_read(packet);
        }
        let mut foreign = 0;
        while (self.ahead_bytes as u64) < most && foreign < FOREIGN_PER_CALL {
            self.scratch.resize(BUFFER, 0);
            let Some((from, len)) = self.reader.receive(Duration::ZERO, &mut self.scratch)? else { break };
            let packet = self.scratch.get(..len).unwrap_or(&[]);
            let Some(header) = self.filter.check(from, packet) else {
                foreign += 1;
                continue;
            };
            self.ahead.push_back((self.clock(), packet.to_vec()));
            self.ahead_bytes += len;
            self.count_read((from, header, len));
        }
        Ok(())
    }

    fn credit(&mut self) {
        if let Some(packet) = self.used.take() {
            self.count_read(packet);
        }
    }

    /// Counts a packet as read, and sends the credit that is due.
    fn count_read(&mut self, (from, header, len): Packet) {
        self.meter.set_window(self.window.get());
        if let Some((to, feed, position)) = self.meter.read(from, &header, len, Instant::now()) {
            self.reader.credit(to, feed, position);
        }
    }
}
