//! The feeds' thread of a sink: packets one after the other, credits by the way.

use std::time::{Duration, Instant};

use super::meter::Meter;
use super::wire::Header;
use super::{Address, FeedReader, Result};

/// Room for the largest message of any carrier.
const BUFFER: usize = 66_000;

/// A [`FeedReader`] that tells the sources how far it has got.
pub struct Feeds {
    reader: Box<dyn FeedReader>,
    meter: Meter,
    buffer: Vec<u8>,
    /// The packet given out last: who sent it, and its length.
    used: Option<(Address, usize)>,
}

impl std::fmt::Debug for Feeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feeds").field("meter", &self.meter).finish_non_exhaustive()
    }
}

impl Feeds {
    /// Over a sink end's reader.
    #[must_use]
    pub fn new(reader: Box<dyn FeedReader>) -> Self {
        Self { reader, meter: Meter::default(), buffer: vec![0; BUFFER], used: None }
    }

    /// The next packet, or `None` if none comes within `wait`. The one before is credited: it has been used.
    ///
    /// # Errors
    /// The end is over.
    pub fn next(&mut self, wait: Duration) -> Result<Option<&mut [u8]>> {
        self.credit();
        let end = (wait > Meter::IDLE).then(|| Instant::now() + wait);
        let mut left = wait;
        loop {
            self.used = self.reader.receive(left.min(Meter::IDLE), &mut self.buffer)?;
            if let Some((_, len)) = self.used {
                return Ok(self.buffer.get_mut(..len));
            }
            if wait.is_zero() {
                return Ok(None);
            }
            let now = Instant::now();
            for (to, feed, position) in self.meter.idle(now) {
                self.reader.credit(to, feed, position);
            }
            left = end.map_or(Duration::ZERO, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn credit(&mut self) {
        let Some((from, len)) = self.used.take() else { return };
        let Ok(header) = Header::decode(self.buffer.get(..len).unwrap_or(&[])) else { return };
        if let Some((to, feed, position)) = self.meter.read(from, &header, len, Instant::now()) {
            self.reader.credit(to, feed, position);
        }
    }
}
