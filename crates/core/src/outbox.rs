//! Frames on their way to the bearers. Small frames are in one contiguous buffer, and parts of large messages
//! stay in the message, so nothing is copied again, and a run of equally long frames to one address can leave
//! as a single segmented send (decisions 2 and 9).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::addr::NodeAddr;
use crate::wire::{MediaAddr, Message};

/// Index of a bearer on its node, 0 to 2.
pub type BearerId = u8;

/// Destination of a frame on its bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All nodes that the bearer reaches.
    Broadcast,
    /// One media address.
    Unicast(MediaAddr),
}

/// One frame in a [`FrameBatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRef {
    /// The bearer that sends it.
    pub bearer: BearerId,
    /// Destination.
    pub to: Target,
    /// The node whose link sends it; none for discovery and broadcasts.
    pub(crate) peer: NodeAddr,
    /// The frame's own bytes in the buffer.
    head: Range<u32>,
    /// The bytes after them: a part of one of the shared messages.
    part: Range<u32>,
    message: u32,
}

impl FrameRef {
    /// Bytes in the frame.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.part.len()
    }

    /// True if the frame has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A part of a message that several packets share.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) message: Arc<Message>,
    pub(crate) range: Range<u32>,
}

impl Part {
    pub(crate) fn bytes(&self) -> &[u8] {
        slice(self.message.bytes(), &self.range)
    }
}

/// Frames in the order in which they must leave.
#[derive(Debug, Default)]
pub struct FrameBatch {
    buffer: Vec<u8>,
    messages: Vec<Arc<Message>>,
    frames: Vec<FrameRef>,
    /// The last frame is a plain acknowledgement, which a later one of the same link replaces.
    ends_with_ack: bool,
}

impl FrameBatch {
    /// Appends a frame.
    pub fn push(&mut self, bearer: BearerId, to: Target, frame: &[u8]) {
        let start = self.buffer.len() as u32;
        self.buffer.extend_from_slice(frame);
        let head = start..self.buffer.len() as u32;
        self.frames.push(FrameRef { bearer, to, peer: NodeAddr::NONE, head, part: 0..0, message: 0 });
        self.ends_with_ack = false;
    }

    /// Appends a frame that goes where another one goes; `write` appends its bytes to the buffer.
    pub(crate) fn push_with(&mut self, like: &FrameRef, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len() as u32;
        write(&mut self.buffer);
        let head = start..self.buffer.len() as u32;
        self.frames.push(FrameRef { head, part: 0..0, message: 0, ..like.clone() });
        self.ends_with_ack = false;
    }

    /// Notes the node whose link has sent the last frame.
    fn set_peer(&mut self, peer: NodeAddr) {
        if let Some(last) = self.frames.last_mut() {
            last.peer = peer;
        }
    }

    /// Appends a frame that consists of `head` and a part of a message; the part is not copied.
    pub(crate) fn push_part(&mut self, bearer: BearerId, to: Target, head: &[u8], part: &Part) {
        if self.messages.last().is_none_or(|last| !Arc::ptr_eq(last, &part.message)) {
            self.messages.push(Arc::clone(&part.message));
        }
        self.push(bearer, to, head);
        if let Some(frame) = self.frames.last_mut() {
            frame.message = (self.messages.len() - 1) as u32;
            frame.part = part.range.clone();
        }
    }

    /// Appends a plain acknowledgement, or replaces the last frame if that is a plain acknowledgement to the same
    /// receiver. Returns true if it replaced one.
    fn push_ack(&mut self, bearer: BearerId, to: Target, frame: &[u8]) -> bool {
        let mut replaces = false;
        if self.ends_with_ack
            && let Some(last) = self.frames.pop_if(|last| last.bearer == bearer && last.to == to)
        {
            self.buffer.truncate(last.head.start as usize);
            replaces = true;
        }
        self.push(bearer, to, frame);
        self.ends_with_ack = true;
        replaces
    }

    /// True if the batch is a single plain acknowledgement. If more frames have arrived, the batch may wait: the next
    /// acknowledgement replaces this one.
    #[must_use]
    pub fn only_acknowledges(&self) -> bool {
        self.ends_with_ack && self.frames.len() == 1
    }

    /// The frames, oldest first.
    #[must_use]
    pub fn frames(&self) -> &[FrameRef] {
        &self.frames
    }

    /// The bytes of one frame in two pieces; the second is empty for most frames. The first pieces of consecutive
    /// frames are adjacent in memory if nothing lies between them.
    #[must_use]
    pub fn pieces(&self, frame: &FrameRef) -> [&[u8]; 2] {
        let part = match self.messages.get(frame.message as usize) {
            Some(message) if !frame.part.is_empty() => slice(message.bytes(), &frame.part),
            _ => &[],
        };
        [slice(&self.buffer, &frame.head), part]
    }

    /// The bytes of one frame in one piece; copied if the frame has two.
    #[must_use]
    pub fn frame(&self, frame: &FrameRef) -> Cow<'_, [u8]> {
        match self.pieces(frame) {
            [whole, []] => Cow::Borrowed(whole),
            pieces => Cow::Owned(pieces.concat()),
        }
    }

    /// True if there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Removes all frames and keeps the memory.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.messages.clear();
        self.frames.clear();
        self.ends_with_ack = false;
    }
}

fn slice<'a>(bytes: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    bytes.get(range.start as usize..range.end as usize).unwrap_or_default()
}

/// The destination of a link's frames: a batch, and the bearer and address that the node layer chose.
#[derive(Debug)]
pub struct FrameSink<'a> {
    batch: &'a mut FrameBatch,
    bearer: BearerId,
    to: Target,
    peer: NodeAddr,
}

impl<'a> FrameSink<'a> {
    /// A sink that sends everything to `to` over `bearer`.
    pub fn new(batch: &'a mut FrameBatch, bearer: BearerId, to: Target) -> Self {
        Self { batch, bearer, to, peer: NodeAddr::NONE }
    }

    /// The sink of a link to this node.
    #[must_use]
    pub fn for_peer(self, peer: NodeAddr) -> Self {
        Self { peer, ..self }
    }

    /// Sends one frame.
    pub fn push(&mut self, frame: &[u8]) {
        self.batch.push(self.bearer, self.to, frame);
        self.batch.set_peer(self.peer);
    }

    /// Sends a frame that consists of a head and a part of a message.
    pub(crate) fn push_part(&mut self, head: &[u8], part: &Part) {
        self.batch.push_part(self.bearer, self.to, head, part);
        self.batch.set_peer(self.peer);
    }

    /// Sends a plain acknowledgement, which replaces one that is still the last of the batch. Returns true if it
    /// replaced one.
    pub(crate) fn push_ack(&mut self, frame: &[u8]) -> bool {
        let replaces = self.batch.push_ack(self.bearer, self.to, frame);
        self.batch.set_peer(self.peer);
        replaces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgement_replaces_the_last_frame_if_that_is_one() {
        let mut batch = FrameBatch::default();
        let to = |host: u8| Target::Unicast(MediaAddr::Udp(([127, 0, 0, host], 6118).into()));
        let mut sink = FrameSink::new(&mut batch, 0, to(1));
        sink.push_ack(b"ack 1");
        sink.push_ack(b"ack 16");
        sink.push(b"data");
        sink.push_ack(b"ack 32");
        FrameSink::new(&mut batch, 0, to(2)).push_ack(b"other");
        FrameSink::new(&mut batch, 1, to(2)).push_ack(b"bearer");
        let frames: Vec<_> = batch.frames().iter().map(|frame| batch.frame(frame)).collect();
        assert_eq!(frames, [&b"ack 16"[..], b"data", b"ack 32", b"other", b"bearer"]);
        assert_eq!(batch.buffer.len(), frames.iter().map(|frame| frame.len()).sum::<usize>());
        batch.clear();
        assert!(!batch.only_acknowledges());
        assert!(!FrameSink::new(&mut batch, 1, to(2)).push_ack(b"fresh"));
        assert!(FrameSink::new(&mut batch, 1, to(2)).push_ack(b"fresher"));
        assert!(batch.frames().len() == 1 && batch.only_acknowledges());
        batch.push(1, to(2), b"data");
        assert!(!batch.only_acknowledges());
    }

    #[test]
    fn frame_with_a_shared_part_is_head_then_part() {
        let message = Arc::new(Message::build(crate::wire::User::Low, 0, 24, b"0123456789"));
        let part = |range| Part { message: Arc::clone(&message), range };
        let mut batch = FrameBatch::default();
        let mut sink = FrameSink::new(&mut batch, 0, Target::Broadcast);
        sink.push(b"before ");
        sink.push_part(b"head ", &part(24..28));
        sink.push_part(b"neck ", &part(28..34));
        let frames: Vec<_> = batch.frames().iter().map(|frame| batch.frame(frame)).collect();
        assert_eq!(frames, [&b"before "[..], b"head 0123", b"neck 456789"]);
        assert_eq!(batch.frames().iter().map(FrameRef::len).collect::<Vec<_>>(), [7, 9, 11]);
        assert_eq!(batch.messages.len(), 1, "the batch holds the shared message once");
        assert_eq!(batch.pieces(&batch.frames()[1])[1].as_ptr(), message.bytes()[24..].as_ptr());
    }
}
