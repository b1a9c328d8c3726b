//! Framing of records on connections that carry bytes.

use super::{MAX_RECORD, Result, WireError};

/// Splits a stream of bytes into records, for backbones whose connections carry pieces: `u32` length, record.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    taken: usize,
}

impl Records {
    /// Appends `record` with its length to the bytes for a connection.
    pub fn append(out: &mut Vec<u8>, record: &[u8]) {
        // Fits: a record has at most `MAX_RECORD` bytes.
        out.extend_from_slice(&(record.len() as u32).to_be_bytes());
        out.extend_from_slice(record);
    }

    /// Appends bytes that a connection has carried.
    pub fn put(&mut self, piece: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..std::mem::take(&mut self.taken));
        }
        self.bytes.extend_from_slice(piece);
    }

    /// The next whole record.
    ///
    /// # Errors
    /// Its length is above [`MAX_RECORD`]: the connection has to be closed.
    pub fn take(&mut self) -> Result<Option<&[u8]>> {
        let Some((len, rest)) = self.bytes.get(self.taken..).and_then(<[u8]>::split_first_chunk::<4>) else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*len) as usize;
        if len > MAX_RECORD {
            return Err(WireError::Unknown { what: "a record", field: "length", value: len as u64 });
        }
        let Some(record) = rest.get(..len) else { return Ok(None) };
        self.taken += 4 + len;
        Ok(Some(record))
    }
}
