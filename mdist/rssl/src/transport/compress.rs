//! Compression of frames: zlib as one stream per direction, LZ4 as a block per frame. Spec: rssl.md §1.7

use flate2::{Compress, Decompress, FlushCompress, FlushDecompress};

use super::frame::Part;
use super::{Error, Result};

/// Method of compressing the frames of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// One zlib stream per direction.
    Zlib,
    /// An LZ4 block per frame.
    Lz4,
}

impl Compression {
    /// Number in the server's answer.
    pub(super) const fn number(self) -> u16 {
        match self {
            Compression::Zlib => 1,
            Compression::Lz4 => 2,
        }
    }

    /// Bit in the client's offer.
    pub(super) const fn bit(self) -> u8 {
        match self {
            Compression::Zlib => 1,
            Compression::Lz4 => 2,
        }
    }

    /// Payloads shorter than this are not compressed, in bytes.
    const fn threshold(self) -> usize {
        match self {
            Compression::Zlib => 30,
            Compression::Lz4 => 300,
        }
    }
}

/// Compresses the frames of one direction.
pub(super) enum Compressor {
    Zlib(Box<Compress>, Vec<u8>),
    Lz4(Vec<u8>),
}

impl Compressor {
    pub(super) fn new(kind: Compression, level: u8) -> Self {
        match kind {
            Compression::Zlib => {
                let level = flate2::Compression::new(u32::from(level.min(9)));
                Compressor::Zlib(Box::new(Compress::new(level, true)), Vec::new())
            }
            Compression::Lz4 => Compressor::Lz4(Vec::new()),
        }
    }

    /// The compressed payload; `None` if it is better sent uncompressed.
    pub(super) fn compress(&mut self, payload: &[u8]) -> Result<Option<&[u8]>> {
        match self {
            Compressor::Zlib(..) if payload.len() < Compression::Zlib.threshold() => Ok(None),
            Compressor::Lz4(_) if payload.len() < Compression::Lz4.threshold() => Ok(None),
            Compressor::Zlib(stream, out) => {
                out.clear();
                let mut left = payload;
                loop {
                    out.reserve(left.len() + left.len() / 16 + 128);
                    let before = stream.total_in();
                    stream
                        .compress_vec(left, out, FlushCompress::Sync)
                        .map_err(|_| Error::Compressed("zlib failed to compress"))?;
                    let taken = (stream.total_in() - before) as usize;
                    left = left.get(taken..).unwrap_or_default();
                    if left.is_empty() && out.len() < out.capacity() {
                        return Ok(Some(out));
                    }
                }
            }
            Compressor::Lz4(out) => {
                out.resize(lz4_flex::block::get_maximum_output_size(payload.len()), 0);
                let len = lz4_flex::block::compress_into(payload, out)
                    .map_err(|_| Error::Compressed("LZ4 failed to compress"))?;
                Ok(out.get(..len).filter(|packed| packed.len() < payload.len()))
            }
        }
    }
}

/// Expands the compressed frames of one direction. A frame expands to at most the size of an uncompressed
/// frame.
pub(super) struct Expander {
    zlib: Option<Box<Decompress>>,
    /// Part and flags of the first frame of a payload that continues in the next compressed frame.
    begun: Option<(Part, u8)>,
    held: Vec<u8>,
    limit: usize,
}

impl Expander {
    /// `limit`: maximum number of bytes to which one payload may expand.
    pub(super) fn new(kind: Compression, limit: usize) -> Self {
        let zlib = (kind == Compression::Zlib).then(|| Box::new(Decompress::new(true)));
        Expander { zlib, begun: None, held: Vec::new(), limit }
    }

    /// Part and flags of the first frame of an incomplete payload, if any.
    pub(super) fn begun(&self) -> Option<(Part, u8)> {
        self.begun
    }

    /// Keeps a part of an incomplete payload.
    pub(super) fn hold(&mut self, part: Part, flags: u8, bytes: &[u8]) -> Result<()> {
        if self.held.len() + bytes.len() > 2 * self.limit {
            return Err(Error::Compressed("a payload overflows into more frames than it can need"));
        }
        self.begun.get_or_insert((part, flags));
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    /// Expands a payload (the parts held and `bytes`) into `out`, replacing its content.
    pub(super) fn expand(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let begun = self.begun.take().is_some();
        let mut held = std::mem::take(&mut self.held);
        let input = if begun {
            held.extend_from_slice(bytes);
            held.as_slice()
        } else {
            bytes
        };
        out.clear();
        let done = match &mut self.zlib {
            Some(stream) => inflate(stream, input, out, self.limit),
            None => {
                out.resize(self.limit, 0);
                lz4_flex::block::decompress_into(input, out).map(|len| out.truncate(len)).map_err(|_| {
                    Error::Compressed("it is not an LZ4 block, or expands beyond a frame's size")
                })
            }
        };
        held.clear();
        self.held = held;
        done
    }
}

fn inflate(stream: &mut Decompress, input: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<()> {
    // One byte more than allowed, so that a full buffer always means too much.
    out.reserve_exact(limit + 1);
    let mut left = input;
    while !left.is_empty() {
        let (taken_before, made_before) = (stream.total_in(), out.len());
        stream
            .decompress_vec(left, out, FlushDecompress::Sync)
            .map_err(|_| Error::Compressed("it does not continue the zlib stream"))?;
        let taken = (stream.total_in() - taken_before) as usize;
        if out.len() > limit {
            return Err(Error::Compressed("it expands beyond a frame's size"));
        }
        if taken == 0 && out.len() == made_before {
            return Err(Error::Compressed("bytes follow the end of the zlib stream"));
        }
        left = left.get(taken..).unwrap_or_default();
    }
    Ok(())
}
