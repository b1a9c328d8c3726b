//! Frames on their way to the bearers: one contiguous arena, so that a run of equal frames to one
//! address can leave as a single segmented send without another copy (DESIGN D10, D11).

use core::ops::Range;

use crate::wire::MediaAddr;

/// Index of a bearer on its node, 0 to 2.
pub type BearerId = u8;

/// Where a frame goes on its bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To everybody that the bearer reaches.
    Broadcast,
    /// To one media address.
    Unicast(MediaAddr),
}

/// One frame in a [`FrameBatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRef {
    /// The bearer that sends it.
    pub bearer: BearerId,
    /// Where to.
    pub to: Target,
    /// Its bytes in [`FrameBatch::bytes`].
    pub range: Range<usize>,
}

/// Frames in the order in which they must leave.
#[derive(Debug, Default)]
pub struct FrameBatch {
    bytes: Vec<u8>,
    frames: Vec<FrameRef>,
    /// The last frame only acknowledges: a later one of its link stands in for it.
    ends_with_ack: bool,
}

impl FrameBatch {
    /// Appends a frame.
    pub fn push(&mut self, bearer: BearerId, to: Target, frame: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        self.frames.push(FrameRef { bearer, to, range: start..self.bytes.len() });
        self.ends_with_ack = false;
    }

    /// Appends a frame that only acknowledges, in the place of the last one if that did so for the same receiver.
    fn push_ack(&mut self, bearer: BearerId, to: Target, frame: &[u8]) {
        if self.ends_with_ack
            && let Some(last) = self.frames.pop_if(|last| last.bearer == bearer && last.to == to)
        {
            self.bytes.truncate(last.range.start);
        }
        self.push(bearer, to, frame);
        self.ends_with_ack = true;
    }

    /// The arena that the frames' ranges refer to.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The frames, oldest first; frames that follow one another lie back to back in the arena.
    #[must_use]
    pub fn frames(&self) -> &[FrameRef] {
        &self.frames
    }

    /// The bytes of one frame.
    #[must_use]
    pub fn frame(&self, frame: &FrameRef) -> &[u8] {
        self.bytes.get(frame.range.clone()).unwrap_or_default()
    }

    /// True if there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Forgets all frames and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
        self.ends_with_ack = false;
    }
}

/// Where a link writes its frames: a batch, and the address that the node layer chose for them.
#[derive(Debug)]
pub struct FrameSink<'a> {
    batch: &'a mut FrameBatch,
    bearer: BearerId,
    to: Target,
}

impl<'a> FrameSink<'a> {
    /// A sink that sends everything to `to` over `bearer`.
    pub fn new(batch: &'a mut FrameBatch, bearer: BearerId, to: Target) -> Self {
        Self { batch, bearer, to }
    }

    /// Sends one frame.
    pub fn push(&mut self, frame: &[u8]) {
        self.batch.push(self.bearer, self.to, frame);
    }

    /// Sends a frame that only acknowledges: while the one before it waits to leave, it stands in for that.
    pub(crate) fn push_ack(&mut self, frame: &[u8]) {
        self.batch.push_ack(self.bearer, self.to, frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_replaces_the_one_before_it_if_nothing_lies_between() {
        let mut batch = FrameBatch::default();
        let to = |host: u8| Target::Unicast(MediaAddr::Udp(([127, 0, 0, host], 6118).into()));
        let mut sink = FrameSink::new(&mut batch, 0, to(1));
        sink.push_ack(b"ack 1");
        sink.push_ack(b"ack 16");
        sink.push(b"data");
        sink.push_ack(b"ack 32");
        FrameSink::new(&mut batch, 0, to(2)).push_ack(b"other");
        FrameSink::new(&mut batch, 1, to(2)).push_ack(b"bearer");
        let frames: Vec<&[u8]> = batch.frames().iter().map(|frame| batch.frame(frame)).collect();
        assert_eq!(frames, [&b"ack 16"[..], b"data", b"ack 32", b"other", b"bearer"]);
        assert_eq!(batch.bytes().len(), frames.iter().map(|frame| frame.len()).sum::<usize>());
        batch.clear();
        FrameSink::new(&mut batch, 1, to(2)).push_ack(b"fresh");
        assert_eq!(batch.frames().len(), 1);
    }
}
