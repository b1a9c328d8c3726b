//! What waits to be written to one mount: contiguous bytes, counted in buffers, bounded.

use super::pool::{BUFFER, Pool};
use super::slots::Ticket;

/// Buffers borrowed from the pool at a time, so that the shared counter is not touched for each.
const BORROW: usize = 16;

/// How much one mount may hold. Spec: rssl.md §1.8
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Buffers that belong to the mount whatever others do.
    pub guaranteed: usize,
    /// Most buffers it may hold, borrowed ones included.
    pub max: usize,
}

/// A mount holds as much as it may, and the next message does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{used} output buffers of {max} in use, {pool_free} free in the pool, {bytes} bytes unread")]
pub struct Overflow {
    /// Buffers in use, the refused message included.
    pub used: usize,
    /// Most buffers the mount may hold.
    pub max: usize,
    /// Buffers left in the shared pool.
    pub pool_free: usize,
    /// Bytes that the client had not read.
    pub bytes: usize,
}

/// The output of one mount. The hot fields come first: an update touches these and the tail of the bytes.
#[derive(Debug)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    start: usize,
    /// Bytes that may wait before more must be borrowed.
    room: usize,
    /// The frames of a batch are what this mount's transport would write: no compression, no other fragment size.
    pub(crate) plain: bool,
    /// In the worker's list of mounts to write.
    pub(crate) dirty: bool,
    pub(crate) messages: u64,
    /// Whose it is.
    pub(crate) mount: Ticket,
    limits: Limits,
    borrowed: usize,
    high_water: usize,
}

impl Output {
    pub(crate) fn new(mount: Ticket, limits: Limits) -> Self {
        let own = limits.guaranteed.min(limits.max);
        Self {
            bytes: Vec::new(),
            start: 0,
            room: own * BUFFER,
            plain: false,
            dirty: false,
            messages: 0,
            mount,
            limits,
            borrowed: 0,
            high_water: 0,
        }
    }

    /// Appends a framed message of another stream, for `stream`: a copy and four bytes.
    #[inline]
    pub(crate) fn push_frame(&mut self, framed: &[u8], stream: i32, pool: &Pool) -> Result<(), Overflow> {
        let at = self.bytes.len();
        self.admit(framed.len(), pool)?;
        self.bytes.extend_from_slice(framed);
        // The stream id of the message behind the three bytes of the frame's header. Spec: rssl.md §2
        if let Some(id) = self.bytes.get_mut(at + 7..at + 11) {
            id.copy_from_slice(&stream.to_be_bytes());
        }
        self.messages += 1;
        Ok(())
    }

    /// Appends whatever `write` appends to the bytes it is given, refused when it is too much.
    pub(crate) fn append<T>(
        &mut self,
        pool: &Pool,
        write: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> Result<T, Overflow> {
        let before = self.bytes.len();
        let result = write(&mut self.bytes);
        if self.waiting() > self.room {
            self.borrow(0, pool).inspect_err(|_| self.bytes.truncate(before))?;
        }
        Ok(result)
    }

    #[inline]
    fn admit(&mut self, more: usize, pool: &Pool) -> Result<(), Overflow> {
        if self.waiting() + more > self.room {
            return self.borrow(more, pool);
        }
        Ok(())
    }

    #[cold]
    fn borrow(&mut self, more: usize, pool: &Pool) -> Result<(), Overflow> {
        let need = (self.waiting() + more).div_ceil(BUFFER);
        let have = self.room / BUFFER;
        let missing = need.saturating_sub(have);
        let wanted = missing.max(BORROW).min(self.limits.max.saturating_sub(have));
        let got = if need > self.limits.max {
            0
        } else if pool.take(wanted) {
            wanted
        } else if pool.take(missing) {
            missing
        } else {
            0
        };
        if got < missing {
            return Err(Overflow {
                used: need,
                max: self.limits.max,
                pool_free: pool.free(),
                bytes: self.waiting(),
            });
        }
        self.borrowed += got;
        self.room += got * BUFFER;
        self.high_water = self.high_water.max(need);
        Ok(())
    }

    /// Bytes not yet written to the socket.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Buffers that the waiting bytes fill.
    pub(crate) fn buffers(&self) -> usize {
        self.waiting().div_ceil(BUFFER)
    }

    /// The most buffers ever filled.
    pub(crate) fn high_water(&self) -> usize {
        self.high_water.max(self.buffers())
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// What to write next.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// `count` bytes were written; what was borrowed for them goes back.
    pub(crate) fn written(&mut self, count: usize, pool: &Pool) {
        self.high_water = self.high_water();
        self.start = (self.start + count).min(self.bytes.len());
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
        if self.borrowed > 0 {
            let own = self.room / BUFFER - self.borrowed;
            let need = self.buffers().saturating_sub(own);
            let back = self.borrowed.saturating_sub(need);
            self.borrowed -= back;
            self.room -= back * BUFFER;
            pool.give(back);
        }
    }

    /// Forgets all bytes and gives everything back: the mount is gone.
    pub(crate) fn release(&mut self, pool: &Pool) {
        let waiting = self.waiting();
        self.written(waiting, pool);
        self.bytes = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: usize) -> Vec<u8> {
        let mut frame = vec![0, 0, 2];
        frame.resize(3 + payload, 0);
        frame
    }

    #[test]
    fn patches_the_stream_and_nothing_else() {
        let pool = Pool::new(0);
        let mut output = Output::new(Ticket::from_u64(0), Limits { guaranteed: 1, max: 1 });
        output.push_frame(&frame(12), 0x0102_0304, &pool).unwrap();
        output.push_frame(&frame(12), -1, &pool).unwrap();
        assert_eq!(output.bytes().get(4..16).unwrap(), [0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0]);
        assert_eq!(output.bytes().get(22..26).unwrap(), [0xff; 4]);
        assert_eq!(output.messages, 2);
    }

    #[test]
    fn borrows_and_gives_back() {
        let pool = Pool::new(20);
        let mut output = Output::new(Ticket::from_u64(0), Limits { guaranteed: 2, max: 30 });
        let piece = frame(BUFFER - 3);
        for _ in 0..2 {
            output.push_frame(&piece, 1, &pool).unwrap();
        }
        assert_eq!(pool.free(), 20, "the guarantee costs the pool nothing");
        output.push_frame(&piece, 1, &pool).unwrap();
        assert_eq!(pool.free(), 4, "borrowed in a block");
        for _ in 0..19 {
            output.push_frame(&piece, 1, &pool).unwrap();
        }
        assert_eq!((output.buffers(), pool.free()), (22, 0));
        let overflow = output.push_frame(&piece, 1, &pool).unwrap_err();
        assert_eq!(overflow, Overflow { used: 23, max: 30, pool_free: 0, bytes: 22 * BUFFER });
        output.written(15 * BUFFER, &pool);
        assert_eq!((output.buffers(), pool.free()), (7, 15));
        output.release(&pool);
        assert_eq!((output.waiting(), pool.free(), output.high_water()), (0, 20, 22));
    }

    #[test]
    fn stops_at_its_own_limit_while_the_pool_is_full() {
        let pool = Pool::new(100);
        let mut output = Output::new(Ticket::from_u64(0), Limits { guaranteed: 1, max: 3 });
        for _ in 0..3 {
            output.push_frame(&frame(BUFFER - 3), 1, &pool).unwrap();
        }
        assert_eq!(output.push_frame(&frame(9), 1, &pool).unwrap_err().used, 4);
        assert_eq!(pool.free(), 98);
        let refused = output.append(&pool, |bytes| bytes.extend_from_slice(&[0; 10]));
        assert!(refused.is_err());
        assert_eq!(output.waiting(), 3 * BUFFER, "nothing half written");
    }

    #[test]
    fn what_is_written_in_parts_stays_in_order() {
        let pool = Pool::new(0);
        let mut output = Output::new(Ticket::from_u64(0), Limits { guaranteed: 4, max: 4 });
        let mut expected = Vec::new();
        let mut seen = Vec::new();
        for round in 0..200_u8 {
            output.append(&pool, |bytes| bytes.extend_from_slice(&[round; 37])).unwrap();
            expected.extend_from_slice(&[round; 37]);
            let some = output.bytes().get(..usize::from(round) % 61).unwrap_or(output.bytes()).to_vec();
            output.written(some.len(), &pool);
            seen.extend_from_slice(&some);
        }
        seen.extend_from_slice(output.bytes());
        assert_eq!(seen, expected);
    }
}
