//! RSSL transport and RWF messages: the wire that market-data applications speak, as pure values.
//!
//! No I/O, no clock, no thread, no `unsafe`: bytes and time in, bytes and messages out. Decoders borrow from the
//! bytes they are given; encoders write into a caller's buffer.

pub mod dictionary;
mod error;
pub mod limits;
pub mod rdm;
pub mod rwf;
pub mod transport;
pub mod wire;

pub use error::{Error, Named, Result};
