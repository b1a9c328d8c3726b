//! RSSL transport and RWF messages: the wire protocol of market-data applications.
//!
//! No I/O, no clock, no thread, no `unsafe`: bytes and time in, bytes and messages out. Decoders borrow from the
//! given bytes; encoders write into a caller's buffer.

mod defaults;
pub mod dictionary;
mod error;
pub mod limits;
pub mod rdm;
pub mod rwf;
pub mod transport;
pub mod wire;

pub use error::{Error, Named, Result};
