//! Checked reading and writing of big-endian fields.

use super::WireError;
use crate::view::{Ballot, MAX_MEMBERS, MemberId, Seat, View};

/// Reads fields from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A counter. Half of the range is refused, so that additions never overflow.
    pub(crate) fn count(&mut self) -> Result<u64, WireError> {
        let n = self.u64()?;
        if n > u64::MAX / 2 { Err(WireError::OutOfRange) } else { Ok(n) }
    }

    pub(crate) fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::OutOfRange),
        }
    }

    pub(crate) fn member(&mut self) -> Result<MemberId, WireError> {
        self.u64().map(MemberId)
    }

    pub(crate) fn ballot(&mut self) -> Result<Ballot, WireError> {
        Ok(Ballot { round: self.count()?, coordinator: self.member()? })
    }

    /// The length of a list, at most `limit`.
    pub(crate) fn len(&mut self, limit: usize) -> Result<usize, WireError> {
        let len = usize::from(self.u16()?);
        if len > limit { Err(WireError::TooLong) } else { Ok(len) }
    }

    /// A list of at most `limit` elements.
    pub(crate) fn list<T>(
        &mut self,
        limit: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let len = self.len(limit)?;
        (0..len).map(|_| element(self)).collect()
    }

    pub(crate) fn members(&mut self) -> Result<Vec<MemberId>, WireError> {
        self.list(MAX_MEMBERS, Self::member)
    }

    /// A view whose members are distinct.
    pub(crate) fn view(&mut self) -> Result<View, WireError> {
        let id = self.ballot()?;
        let seats = self.list(MAX_MEMBERS, |r| Ok(Seat { id: r.member()?, weight: r.u16()? }))?;
        let mut ids: Vec<MemberId> = seats.iter().map(|seat| seat.id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() == seats.len() { Ok(View { id, seats }) } else { Err(WireError::OutOfRange) }
    }

    pub(crate) fn optional<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        if self.flag()? { value(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::TrailingBytes) }
    }
}

/// Writes fields to the end of a buffer.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    pub(crate) fn u16(&mut self, n: u16) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.u8(flag.into());
    }

    pub(crate) fn ballot(&mut self, ballot: Ballot) {
        self.u64(ballot.round);
        self.u64(ballot.coordinator.0);
    }

    pub(crate) fn list<T>(&mut self, list: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.u16(u16::try_from(list.len()).unwrap_or(u16::MAX));
        for item in list.iter().take(usize::from(u16::MAX)) {
            element(self, item);
        }
    }

    pub(crate) fn members(&mut self, members: &[MemberId]) {
        self.list(members, |w, m| w.u64(m.0));
    }

    pub(crate) fn counts(&mut self, counts: &[u64]) {
        self.list(counts, |w, n| w.u64(*n));
    }

    pub(crate) fn view(&mut self, view: &View) {
        self.ballot(view.id);
        self.list(&view.seats, |w, seat| {
            w.u64(seat.id.0);
            w.u16(seat.weight);
        });
    }

    pub(crate) fn optional<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}
