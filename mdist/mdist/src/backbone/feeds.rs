//! The feeds' thread of a sink: packets one after the other, credits by the way, and packets read ahead while the hub is
//! busy with something else.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::meter::{Meter, unread};
use super::source_side::WINDOW;
use super::wire::Header;
use super::{Address, FeedReader, Result};
use crate::hub::Now;
use crate::net::now;

/// Room for the largest message of any carrier.
const BUFFER: usize = 66_000;

/// The widest window that the sources of a sink have told.
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

/// A [`FeedReader`] that tells the sources how far it has got.
pub struct Feeds {
    reader: Box<dyn FeedReader>,
    /// Of which end of its sink.
    life: u64,
    meter: Meter,
    window: Window,
    buffer: Vec<u8>,
    /// A packet in `buffer` that is still to be given out: who sent it, and its length.
    fetched: Option<(Address, usize)>,
    /// When it was read, if that is noted.
    fetched_at: Now,
    /// That is still to be credited.
    owed: bool,
    /// The same, once it has been given out: to be credited.
    used: Option<(Address, usize)>,
    /// Packets behind it that were read ahead, and credited; and when, if that is noted.
    ahead: VecDeque<(Now, Vec<u8>)>,
    ahead_bytes: usize,
    /// The one of those that was given out last.
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
    /// Over a sink end's reader.
    pub(super) fn new(reader: Box<dyn FeedReader>, window: Window, life: u64) -> Self {
        Self {
            reader,
            life,
            meter: Meter::default(),
            window,
            buffer: vec![0; BUFFER],
            fetched: None,
            fetched_at: Now::ZERO,
            owed: false,
            used: None,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            current: Vec::new(),
            scratch: Vec::new(),
            timed: false,
        }
    }

    /// Which of the ends that its sink has had these are the feeds of; see `SinkSide::lose`.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.life
    }

    /// Notes from now on when packets are read.
    pub fn set_timed(&mut self, timed: bool) {
        self.timed = timed;
    }

    /// When the next packet was read, if that is noted.
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

    /// The next packet, or `None` if none comes within `wait`. The one before is credited: it has been used.
    ///
    /// # Errors
    /// The end is over.
    pub fn next(&mut self, wait: Duration) -> Result<Option<&mut [u8]>> {
        if !self.fetch(wait)? {
            return Ok(None);
        }
        if let Some((from, len)) = self.fetched.take() {
            self.used = std::mem::take(&mut self.owed).then_some((from, len));
            return Ok(self.buffer.get_mut(..len));
        }
        self.current = self.ahead.pop_front().unwrap_or_default().1;
        self.ahead_bytes -= self.current.len();
        Ok(Some(&mut self.current))
    }

    /// Whether there is a next packet, or comes one within `wait`.
    ///
    /// # Errors
    /// The end is over.
    pub fn fetch(&mut self, wait: Duration) -> Result<bool> {
        self.credit();
        if self.fetched.is_some() || !self.ahead.is_empty() {
            return Ok(true);
        }
        let end = (wait > Meter::IDLE).then(|| Instant::now() + wait);
        let mut left = wait;
        loop {
            self.fetched = self.reader.receive(left.min(Meter::IDLE), &mut self.buffer)?;
            if self.fetched.is_some() {
                self.fetched_at = self.clock();
                self.owed = true;
                return Ok(true);
            }
            if wait.is_zero() {
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

    /// Reads what there is, as far as the window allows, because nobody can use it at present: what has been read is
    /// credited, so that the feed goes on.
    ///
    /// # Errors
    /// The end is over.
    pub fn read_ahead(&mut self) -> Result<()> {
        let window = self.window.get();
        let most = window.saturating_sub(unread(window));
        self.credit();
        if let Some((from, len)) = self.fetched.filter(|_| self.owed) {
            self.owed = false;
            self.told(from, len, false);
        }
        while (self.ahead_bytes as u64) < most {
            self.scratch.resize(BUFFER, 0);
            let Some((from, len)) = self.reader.receive(Duration::ZERO, &mut self.scratch)? else { break };
            let packet = self.scratch.get(..len).unwrap_or(&[]);
            self.ahead.push_back((self.clock(), packet.to_vec()));
            self.ahead_bytes += len;
            self.told(from, len, true);
        }
        Ok(())
    }

    fn credit(&mut self) {
        if let Some((from, len)) = self.used.take() {
            self.told(from, len, false);
        }
    }

    /// Counts a packet as read.
    fn told(&mut self, from: Address, len: usize, ahead: bool) {
        let bytes = if ahead { &self.scratch } else { &self.buffer };
        let Ok(header) = Header::decode(bytes.get(..len).unwrap_or(&[])) else { return };
        self.meter.set_window(self.window.get());
        if let Some((to, feed, position)) = self.meter.read(from, &header, len, Instant::now()) {
            self.reader.credit(to, feed, position);
        }
    }
}
