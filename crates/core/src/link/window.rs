//! The send window: slow start, then growth by one packet per window. Spec: tipc.md §5.7.

/// Lowest slow-start threshold, packets. Spec: tipc.md §15.
pub(crate) const SSTHRESH_FLOOR: u16 = 300;

/// Limits the number of packets in flight.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    size: u16,
    min: u16,
    max: u16,
    ssthresh: u16,
    released: u32,
}

impl Window {
    /// A window between `min` and `max` packets; starts at `min`.
    pub(crate) fn new(min: u16, max: u16) -> Self {
        let max = max.max(min);
        Self { size: min, min, max, ssthresh: max, released: 0 }
    }

    /// Current size, packets.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Slow-start threshold, packets.
    #[cfg(test)]
    pub(crate) fn ssthresh(&self) -> u16 {
        self.ssthresh
    }

    /// A packet was retransmitted.
    pub(crate) fn retransmitted(&mut self) {
        self.ssthresh = (self.size / 2).max(SSTHRESH_FLOOR);
        self.size = self.size.min(self.ssthresh);
    }

    /// The link was idle.
    pub(crate) fn idle(&mut self) {
        self.ssthresh = (self.size / 2).max(SSTHRESH_FLOOR);
        self.size = self.min;
    }

    /// `released` packets were acknowledged; `pending` are in flight or waiting; `holes` is true if the receiver misses
    /// a packet.
    pub(crate) fn released(&mut self, released: usize, pending: usize, holes: bool) {
        if released == 0 || pending < usize::from(self.size) || holes {
            return;
        }
        if self.size <= self.ssthresh {
            let grown = usize::from(self.size) + released;
            self.size = grown.min(usize::from(self.max)) as u16;
            return;
        }
        self.released += released as u32;
        if self.released >= u32::from(self.size) {
            self.size = (self.size + 1).min(self.max);
            self.released = 0;
        }
    }
}
