//! The output of one mount: bytes or a list of shared messages that wait for its socket, counted in buffers and
//! bounded.

use super::arena::{Arena, Listed};
use super::delivery::Delivery;
use super::pool::{BUFFER, Pool};
use super::slots::Ticket;
use super::slow_consumer::{Limits, Overflow, buffers_to_borrow};

/// Maximum number of bytes of a list that are gathered for one write: few enough to stay in the processor's own caches.
pub(crate) const CHUNK: usize = 64 * 1024;

/// Maximum number of messages for which an empty list keeps its memory.
const RETAINED: usize = 8 * 1024;

/// Messages that are staged in the output itself before they go to the list. They fill one cache line.
const STAGED: usize = 8;

/// The output of one mount: a list of messages or bytes, never both, so that their order is unambiguous.
///
/// The hot fields come first: a message for many mounts touches the first two cache lines of each output, and outputs
/// lie side by side. The tails of the lists are scattered: touching one for each message would cost more than all the
/// rest.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Output {
    /// Messages of the arena, except those that are staged.
    listed: Vec<Listed>,
    /// Bytes not yet written to the socket, including those of listed messages.
    waiting: usize,
    /// Bytes that may wait before more buffers must be borrowed.
    capacity: usize,
    pub(crate) messages: u64,
    /// The mount that it belongs to.
    pub(crate) mount: Ticket,
    /// Whether the mount's transport would write the frames of a batch unchanged, without compression or
    /// smaller fragments.
    pub(crate) plain: bool,
    /// Whether the mount is in the worker's list of mounts to write.
    pub(crate) dirty: bool,
    /// The policy of what is queued. One that does not keep all messages in order excludes `plain`.
    pub(crate) delivery: Delivery,
    /// Whether bytes wait, so that no message may be listed.
    has_bytes: bool,
    /// The half of the arena in which the list began.
    upper: bool,
    /// Number of staged messages.
    staged: u8,
    /// The last messages of the list.
    stage: [Listed; STAGED],
    bytes: Vec<u8>,
    /// Number of bytes that are written already.
    start: usize,
    limits: Limits,
    borrowed: usize,
    high_water: usize,
}

impl Output {
    pub(crate) fn new(mount: Ticket, limits: Limits) -> Self {
        let own = limits.guaranteed.min(limits.max);
        Self {
            listed: Vec::new(),
            waiting: 0,
            capacity: own * BUFFER,
            messages: 0,
            mount,
            plain: false,
            dirty: false,
            delivery: Delivery::default(),
            has_bytes: false,
            upper: false,
            staged: 0,
            stage: [Listed::new(0, 0); STAGED],
            bytes: Vec::new(),
            start: 0,
            limits,
            borrowed: 0,
            high_water: 0,
        }
    }

    #[inline]
    fn is_listing(&self) -> bool {
        self.staged > 0 || !self.listed.is_empty()
    }

    fn unstage(&mut self) {
        self.listed.extend_from_slice(self.stage.get(..usize::from(self.staged)).unwrap_or_default());
        self.staged = 0;
    }

    /// Whether the next message may be listed instead of copied.
    #[inline]
    pub(crate) fn can_list(&self) -> bool {
        !self.has_bytes
    }

    /// Lists a framed message of `len` bytes that the arena has at `at`, for `stream`.
    ///
    /// # Errors
    /// The mount is a slow consumer; the message is not listed.
    #[inline]
    pub(crate) fn list(
        &mut self,
        at: u32,
        len: usize,
        stream: i32,
        arena: &mut Arena,
        pool: &Pool,
    ) -> Result<(), Overflow> {
        self.reserve(len, pool)?;
        if !self.is_listing() {
            self.upper = arena.list_begins();
        }
        if let Some(place) = self.stage.get_mut(usize::from(self.staged)) {
            *place = Listed::new(at, stream);
        }
        self.staged += 1;
        if usize::from(self.staged) == STAGED {
            self.listed.extend_from_slice(&self.stage);
            self.staged = 0;
        }
        self.waiting += len;
        self.messages += 1;
        Ok(())
    }

    /// Copies a framed message, with `stream` as its stream id.
    ///
    /// # Errors
    /// The mount is a slow consumer; the message is not copied.
    #[inline]
    pub(crate) fn push_frame(
        &mut self,
        framed: &[u8],
        stream: i32,
        arena: &mut Arena,
        pool: &Pool,
    ) -> Result<(), Overflow> {
        self.reserve(framed.len(), pool)?;
        self.copy_list(arena);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(framed);
        // The stream id of the message behind the three bytes of the frame's header. Spec: rssl.md §2
        if let Some(id) = self.bytes.get_mut(at + 7..at + 11) {
            id.copy_from_slice(&stream.to_be_bytes());
        }
        self.has_bytes = true;
        self.waiting += framed.len();
        self.messages += 1;
        Ok(())
    }

    /// Calls `write` to append bytes.
    ///
    /// # Errors
    /// The mount is a slow consumer; nothing is appended.
    pub(crate) fn append<T>(
        &mut self,
        arena: &mut Arena,
        pool: &Pool,
        write: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> Result<T, Overflow> {
        self.copy_list(arena);
        let before = self.bytes.len();
        let result = write(&mut self.bytes);
        let more = self.bytes.len() - before;
        self.waiting += more;
        if self.waiting > self.capacity
            && let Err(overflow) = self.borrow(0, pool)
        {
            self.bytes.truncate(before);
            self.waiting -= more;
            return Err(overflow);
        }
        self.has_bytes = !self.bytes.is_empty();
        Ok(result)
    }

    /// Copies the list if it began in this half of the arena, which is needed for other messages.
    pub(crate) fn copy_list_of(&mut self, upper: bool, arena: &mut Arena) {
        if self.upper == upper {
            self.copy_list(arena);
        }
    }

    /// Turns the list into bytes, because bytes follow it or the arena needs its memory.
    #[inline]
    pub(crate) fn copy_list(&mut self, arena: &mut Arena) {
        if self.is_listing() {
            self.unstage();
            arena.copy(&self.listed, &mut self.bytes);
            self.has_bytes = true;
            self.end_list(arena);
        }
    }

    fn end_list(&mut self, arena: &mut Arena) {
        self.listed.clear();
        self.listed.shrink_to(RETAINED);
        arena.list_ends(self.upper);
    }

    #[inline]
    fn reserve(&mut self, more: usize, pool: &Pool) -> Result<(), Overflow> {
        if self.waiting + more > self.capacity {
            return self.borrow(more, pool);
        }
        Ok(())
    }

    #[cold]
    fn borrow(&mut self, more: usize, pool: &Pool) -> Result<(), Overflow> {
        let need = (self.waiting + more).div_ceil(BUFFER);
        let have = self.capacity / BUFFER;
        let got = buffers_to_borrow(self.limits, have, need, self.waiting, pool)?;
        self.borrowed += got;
        self.capacity += got * BUFFER;
        self.high_water = self.high_water.max(need);
        Ok(())
    }

    /// Bytes not yet written to the socket.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Number of buffers that the waiting bytes fill.
    pub(crate) fn buffers(&self) -> usize {
        self.waiting.div_ceil(BUFFER)
    }

    /// The highest number of buffers ever filled.
    pub(crate) fn high_water(&self) -> usize {
        self.high_water.max(self.buffers())
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Writes the waiting bytes with `put`, which returns how many it took, or `None` if it can take none now. Returns
    /// the number of bytes written, and whether that was all. Listed messages are gathered in `scratch`.
    pub(crate) fn write<E>(
        &mut self,
        arena: &mut Arena,
        pool: &Pool,
        scratch: &mut [u8],
        mut put: impl FnMut(&[u8]) -> Result<Option<usize>, E>,
    ) -> (usize, Result<bool, E>) {
        let (mut sum, mut result) = (0, Ok(true));
        if self.is_listing() {
            self.unstage();
            let mut rest = self.listed.as_slice();
            while !rest.is_empty() {
                let (count, filled) = arena.gather(rest, scratch);
                rest = rest.get(count..).unwrap_or_default();
                let chunk = scratch.get(..filled).unwrap_or_default();
                let put = put(chunk);
                let took = put.as_ref().map_or(0, |took| took.unwrap_or(0)).min(filled);
                sum += took;
                if took < filled {
                    self.bytes.extend_from_slice(chunk.get(took..).unwrap_or_default());
                    arena.copy(rest, &mut self.bytes);
                    result = put.map(|_| false);
                    break;
                }
            }
            self.end_list(arena);
        } else {
            while let rest @ [_, ..] = self.bytes.get(self.start..).unwrap_or_default() {
                let size = rest.len();
                let put = put(rest);
                let took = put.as_ref().map_or(0, |took| took.unwrap_or(0)).min(size);
                sum += took;
                self.start += took;
                if took < size {
                    result = put.map(|_| false);
                    break;
                }
            }
        }
        self.account(sum, pool);
        (sum, result)
    }

    /// Accounts for `count` written bytes, and gives back the buffers that were borrowed for them.
    fn account(&mut self, count: usize, pool: &Pool) {
        self.high_water = self.high_water();
        self.waiting -= count.min(self.waiting);
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
            if self.bytes.capacity() > self.limits.guaranteed.max(1) * BUFFER {
                self.bytes.shrink_to(BUFFER);
            }
        } else if self.start >= self.bytes.len() / 2 {
            self.bytes.copy_within(self.start.., 0);
            self.bytes.truncate(self.bytes.len() - self.start);
            self.start = 0;
        }
        self.has_bytes = !self.bytes.is_empty();
        if self.borrowed > 0 {
            let own = self.capacity / BUFFER - self.borrowed;
            let need = self.buffers().saturating_sub(own);
            let back = self.borrowed.saturating_sub(need);
            self.borrowed -= back;
            self.capacity -= back * BUFFER;
            pool.give(back);
        }
    }

    /// Drops all bytes and gives back all buffers of a mount that is closed.
    pub(crate) fn release(&mut self, arena: &mut Arena, pool: &Pool) {
        if self.is_listing() {
            self.staged = 0;
            self.end_list(arena);
        }
        self.bytes = Vec::new();
        self.start = 0;
        self.account(self.waiting, pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: usize) -> Vec<u8> {
        let mut frame = u16::try_from(payload + 3).unwrap().to_be_bytes().to_vec();
        frame.push(2);
        frame.resize(3 + payload, 0);
        frame
    }

    /// An output with its arena and pool.
    struct Rig {
        output: Output,
        arena: Arena,
        pool: Pool,
    }

    impl Rig {
        fn new(guaranteed: usize, max: usize, pool: usize) -> Self {
            let output = Output::new(Ticket::from_u64(0), Limits { guaranteed, max });
            Self { output, arena: Arena::default(), pool: Pool::new(pool) }
        }

        fn push(&mut self, framed: &[u8], stream: i32) -> Result<(), Overflow> {
            self.output.push_frame(framed, stream, &mut self.arena, &self.pool)
        }

        fn list(&mut self, framed: &[u8], stream: i32) -> Result<(), Overflow> {
            let at = self.arena.store(framed);
            self.output.list(at, framed.len(), stream, &mut self.arena, &self.pool)
        }

        fn append(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
            self.output.append(&mut self.arena, &self.pool, |out| out.extend_from_slice(bytes))
        }

        /// Writes to a socket that takes `count` bytes.
        fn take(&mut self, count: usize) -> Vec<u8> {
            let mut taken = Vec::new();
            let mut scratch = vec![0; 2 * BUFFER];
            let put = |bytes: &[u8]| {
                let some = bytes.len().min(count - taken.len());
                taken.extend_from_slice(&bytes[..some]);
                Ok::<_, ()>((some > 0).then_some(some))
            };
            let (sum, _) = self.output.write(&mut self.arena, &self.pool, &mut scratch, put);
            assert_eq!(sum, taken.len());
            taken
        }
    }

    #[test]
    fn copied_frame_differs_only_in_its_stream_id() {
        let mut rig = Rig::new(1, 1, 0);
        rig.push(&frame(12), 0x0102_0304).unwrap();
        rig.push(&frame(12), -1).unwrap();
        assert_eq!(rig.output.messages, 2);
        let bytes = rig.take(100);
        assert_eq!(bytes.get(4..16).unwrap(), [0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0]);
        assert_eq!(bytes.get(22..26).unwrap(), [0xff; 4]);
    }

    #[test]
    fn buffers_are_borrowed_in_blocks_and_given_back() {
        for listing in [false, true] {
            let mut rig = Rig::new(2, 30, 20);
            let piece = frame(BUFFER - 3);
            let add = |rig: &mut Rig| if listing { rig.list(&piece, 1) } else { rig.push(&piece, 1) };
            for _ in 0..2 {
                add(&mut rig).unwrap();
            }
            assert_eq!(rig.pool.free(), 20, "guaranteed buffers are not taken from the pool");
            add(&mut rig).unwrap();
            assert_eq!(rig.pool.free(), 4, "borrowed in a block");
            for _ in 0..19 {
                add(&mut rig).unwrap();
            }
            assert_eq!((rig.output.buffers(), rig.pool.free()), (22, 0));
            let overflow = add(&mut rig).unwrap_err();
            assert_eq!(overflow, Overflow { used: 23, max: 30, pool_free: 0, bytes: 22 * BUFFER });
            rig.take(15 * BUFFER);
            assert_eq!((rig.output.buffers(), rig.pool.free()), (7, 15));
            rig.output.release(&mut rig.arena, &rig.pool);
            assert_eq!((rig.output.waiting(), rig.pool.free(), rig.output.high_water()), (0, 20, 22));
            assert!(rig.arena.is_idle());
        }
    }

    #[test]
    fn output_overflows_at_its_own_limit_while_the_pool_has_buffers() {
        let mut rig = Rig::new(1, 3, 100);
        for _ in 0..3 {
            rig.list(&frame(BUFFER - 3), 1).unwrap();
        }
        assert_eq!(rig.list(&frame(9), 1).unwrap_err().used, 4);
        assert_eq!(rig.push(&frame(9), 1).unwrap_err().used, 4);
        assert_eq!(rig.pool.free(), 98);
        assert!(rig.append(&[0; 10]).is_err());
        assert_eq!(rig.output.waiting(), 3 * BUFFER, "a refused message leaves no bytes");
        assert_eq!(rig.take(usize::MAX).len(), 3 * BUFFER);
    }

    #[test]
    fn messages_written_in_parts_stay_in_order() {
        let mut rig = Rig::new(16, 16, 0);
        let mut expected = Vec::new();
        let mut seen = Vec::new();
        for round in 0..400_u16 {
            let mut piece = frame(usize::from(round) % 200 + 9);
            if round % 7 == 3 {
                rig.append(&piece).unwrap();
            } else {
                piece.get_mut(7..11).unwrap().copy_from_slice(&i32::from(round).to_be_bytes());
                if rig.output.can_list() && round % 5 != 0 {
                    rig.list(&piece, round.into()).unwrap();
                } else {
                    rig.push(&piece, round.into()).unwrap();
                }
            }
            expected.extend_from_slice(&piece);
            if round % 11 > 3 {
                seen.extend(rig.take(usize::from(round) * 31 % 1000));
            }
            assert_eq!(rig.output.waiting(), expected.len() - seen.len());
        }
        seen.extend(rig.take(usize::MAX));
        assert_eq!(seen, expected);
        assert!(rig.arena.is_idle());
    }
}
