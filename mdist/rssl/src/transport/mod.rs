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

/// The newest version of the connection protocol (RIPC) there is.
pub const VERSION_NEWEST: u8 = 14;
/// The oldest version of the connection protocol (RIPC) still spoken by stock programs.
pub const VERSION_OLDEST: u8 = 10;
/// Largest payload of a frame that a server announces unless told otherwise, in bytes.
pub const MAX_FRAGMENT: u16 = 6144;
/// Longest message that is put together from fragments unless told otherwise, in bytes.
pub const MAX_ASSEMBLED: usize = crate::limits::MAX_MESSAGE;
