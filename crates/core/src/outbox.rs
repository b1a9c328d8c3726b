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
}

impl FrameBatch {
    /// Appends a frame.
    pub fn push(&mut self, bearer: BearerId, to: Target, frame: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame);
        self.frames.push(FrameRef { bearer, to, range: start..self.bytes.len() });
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
}
