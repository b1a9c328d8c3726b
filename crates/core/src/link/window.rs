//! The send window: slow start, then one packet a window. Spec: tipc.md §5.7.

/// Below this the slow-start threshold does not fall, packets. Spec: tipc.md §15.
pub(crate) const SSTHRESH_FLOOR: u16 = 300;

/// How many packets may be under way.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    size: u16,
    min: u16,
    max: u16,
    ssthresh: u16,
    released: u32,
}

impl Window {
    /// A window between `min` and `max` packets that starts at `min`.
    pub(crate) fn new(min: u16, max: u16) -> Self {
        let max = max.max(min);
        Self { size: min, min, max, ssthresh: max, released: 0 }
    }

    /// Packets that may be under way.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Slow start ends here.
    #[cfg(test)]
    pub(crate) fn ssthresh(&self) -> u16 {
        self.ssthresh
    }

    /// Something had to be sent again.
    pub(crate) fn retransmitted(&mut self) {
        self.ssthresh = (self.size / 2).max(SSTHRESH_FLOOR);
        self.size = self.size.min(self.ssthresh);
    }

    /// Nothing was sent for a while.
    pub(crate) fn idle(&mut self) {
        self.ssthresh = (self.size / 2).max(SSTHRESH_FLOOR);
        self.size = self.min;
    }

    /// `released` packets were acknowledged; `pending` are under way or waiting, `holes` tells whether some
    /// packet is missing at the receiver.
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
