//! Code shared by the programs of utipc and mdist: [`log`], errors of the command line ([`usage`]), standard
//! output ([`output`]), and texts of errors.

mod error;
pub mod log;
pub mod output;
pub mod usage;

pub use error::{nearest, one_line, plain};
