//! RSSL over TCP ("RIPC"): handshake, frames, pings, packing, fragments and compression, in either role, as a
//! state machine: received bytes in, messages and bytes to send out.
//!
//! Spec: rssl.md §1

mod assemble;
mod channel;
mod compress;
mod error;
mod frame;
mod handshake;
mod input;
mod pack;
mod ping;

pub use channel::{Channel, Counts, Pulled};
pub use compress::Compression;
pub use error::{Error, Result};
pub use frame::{FRAME_HEADER, PING_FRAME, frame_header};
pub use handshake::{ClientOptions, Opened, ServerOptions};
pub use input::{InputBuffer, Received};
pub use pack::Packer;
pub use ping::Tick;

/// Newest version of the connection protocol (RIPC).
pub const VERSION_NEWEST: u8 = 14;
/// Oldest version of the connection protocol (RIPC) that stock programs still use.
pub const VERSION_OLDEST: u8 = 10;
/// Default of the largest payload of a frame that a server announces, in bytes.
pub const MAX_FRAGMENT: u16 = 6144;
/// Default of the longest message that is assembled from fragments, in bytes.
pub const MAX_ASSEMBLED: usize = crate::limits::MAX_MESSAGE;
