//! Captures: the request that begins one, and its records. A utipc extension.
//!
//! The answer of [`Request::Capture`](crate::Request::Capture) comes with a descriptor, a packet socket (AF_UNIX,
//! SEQPACKET). Each packet on it is one [`Record`]. The capture ends when either side closes the socket.

use std::net::SocketAddr;

use crate::attribute::{Nest, Writer};
use crate::errno::Errno;
use crate::family::{capture, longest};

/// Maximum number of bytes of a frame that a record contains. The rest of a longer one is left out; only messages in
/// lanes are longer.
pub const MAX_FRAME: usize = 65_507;

/// Maximum number of bytes of a record as a packet.
pub const MAX_RECORD: usize = MAX_FRAME + 512;

/// What to capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureRequest {
    /// Only frames of the bearer with this name.
    pub bearer: Option<String>,
    /// No frames of bearers.
    pub no_bearers: bool,
    /// Messages in lanes too.
    pub lanes: bool,
    /// Maximum number of bytes of each frame to copy.
    pub snap: Option<u32>,
}

impl CaptureRequest {
    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        if let Some(bearer) = &self.bearer {
            out.text(capture::ONLY_BEARER, bearer);
        }
        out.flag(capture::NO_BEARERS, self.no_bearers);
        out.flag(capture::LANES, self.lanes);
        out.optional_u32(capture::SNAP, self.snap);
    }

    pub(crate) fn read(nest: Nest<'_>) -> Result<Self, Errno> {
        Ok(Self {
            bearer: nest.text(capture::ONLY_BEARER, longest::BEARER)?,
            no_bearers: nest.flag(capture::NO_BEARERS),
            lanes: nest.flag(capture::LANES),
            snap: nest.u32(capture::SNAP)?,
        })
    }
}

/// A media address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of Ethernet and of media with the same form of address.
    Ethernet([u8; 6]),
    /// Of UDP.
    Udp(SocketAddr),
}

/// Where a frame was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On a bearer.
    Bearer {
        /// Name of the bearer.
        name: String,
        /// Whether the node sent it; otherwise it has received it.
        sent: bool,
        /// Sender and receiver. A frame to a group or to all has that address when sent, and the node's when received.
        path: [Place; 2],
    },
    /// In a lane, from the socket with the first port to that with the second.
    Lane([u32; 2]),
}

/// A captured frame, or a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time, nanoseconds since 1970. In a lane: when the message was found.
    pub time: u64,
    /// Where.
    pub origin: Origin,
    /// The frame or its beginning; empty if [`Record::missed`] is not 0.
    pub frame: Vec<u8>,
    /// Length of the whole frame.
    pub len: u32,
    /// Frames that were not copied since the record before, because the capture was not read in time.
    pub dropped: u64,
    /// Bytes of a lane's records that were overwritten before they could be copied.
    pub missed: u64,
}

impl Record {
    /// Encodes it as a packet.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let frame = self.frame.get(..MAX_FRAME).unwrap_or(&self.frame);
        let mut bytes = Vec::with_capacity(frame.len() + 160);
        let mut out = Writer::new(&mut bytes);
        out.u64(capture::TIME, self.time);
        match &self.origin {
            Origin::Bearer { name, sent, path } => {
                out.text(capture::BEARER, name);
                out.flag(capture::SENT, *sent);
                for (kind, place) in [capture::FROM, capture::TO].into_iter().zip(path) {
                    match place {
                        Place::Ethernet(mac) => out.bytes(kind, mac),
                        Place::Udp(at) => out.address(kind, *at),
                    }
                }
            }
            Origin::Lane([from, to]) => {
                out.u32(capture::FROM_PORT, *from);
                out.u32(capture::TO_PORT, *to);
            }
        }
        out.u32(capture::LENGTH, self.len);
        if self.dropped > 0 {
            out.u64(capture::DROPPED, self.dropped);
        }
        if self.missed > 0 {
            out.u64(capture::MISSED, self.missed);
        }
        out.bytes(capture::FRAME, frame);
        bytes
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// An attribute is missing or malformed.
    pub fn from_bytes(packet: &[u8]) -> Result<Self, Errno> {
        let all = Nest(packet);
        let place = |kind| -> Result<Place, Errno> {
            let value = all.value(kind).ok_or(Errno::INVALID)?;
            match value.try_into() {
                Ok(mac) => Ok(Place::Ethernet(mac)),
                Err(_) => all.address(kind)?.map(Place::Udp).ok_or(Errno::INVALID),
            }
        };
        let origin = match all.text(capture::BEARER, longest::BEARER)? {
            Some(name) => Origin::Bearer {
                name,
                sent: all.flag(capture::SENT),
                path: [place(capture::FROM)?, place(capture::TO)?],
            },
            None => Origin::Lane([
                all.u32(capture::FROM_PORT)?.ok_or(Errno::INVALID)?,
                all.u32(capture::TO_PORT)?.ok_or(Errno::INVALID)?,
            ]),
        };
        Ok(Self {
            time: all.u64(capture::TIME)?.ok_or(Errno::INVALID)?,
            origin,
            frame: all.value(capture::FRAME).unwrap_or_default().to_vec(),
            len: all.u32(capture::LENGTH)?.unwrap_or(0),
            dropped: all.u64(capture::DROPPED)?.unwrap_or(0),
            missed: all.u64(capture::MISSED)?.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let udp = |port| Place::Udp(SocketAddr::from(([10, 0, 0, 1], port)));
        let ethernet = |last| Place::Ethernet([2, 0, 0, 0, 0, last]);
        let bearer = |name: &str, path| Origin::Bearer { name: name.to_owned(), sent: true, path };
        for (origin, len) in [
            (bearer("udp:U", [udp(6118), udp(7)]), 3),
            (bearer("eth:e", [ethernet(1), ethernet(2)]), MAX_FRAME),
            (Origin::Lane([7, u32::MAX]), 0),
        ] {
            let record = Record {
                time: 1 << 60,
                origin,
                frame: vec![5; len],
                len: 70_000,
                dropped: 4,
                missed: 1 << 33,
            };
            let bytes = record.to_bytes();
            assert!(bytes.len() <= MAX_RECORD);
            assert_eq!(Record::from_bytes(&bytes), Ok(record));
            for cut in 0..bytes.len().min(100) {
                // A truncated packet must not decode to more than it contains.
                let _ = Record::from_bytes(&bytes[..cut]);
            }
        }
        assert_eq!(Record::from_bytes(&[]), Err(Errno::INVALID));
        let long = Record {
            time: 0,
            origin: Origin::Lane([1, 2]),
            frame: vec![1; MAX_FRAME + 9],
            len: 66_000,
            dropped: 0,
            missed: 0,
        };
        assert_eq!(Record::from_bytes(&long.to_bytes()).map(|record| record.frame.len()), Ok(MAX_FRAME));
    }
}
