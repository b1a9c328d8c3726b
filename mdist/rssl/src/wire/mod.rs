//! Integers and buffers as RSSL writes them: big-endian, with lengths of one to four bytes.
//!
//! Senders often use a long form for a small length, because they fill in lengths afterwards; readers accept every
//! form. Spec: rssl.md, "Conventions".

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::{Writer, to_vec};
