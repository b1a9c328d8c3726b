//! Code shared by the programs of utipc and mdist: [`log`], errors of the command line ([`usage`]), standard
//! output ([`output`]), texts of errors, and the profile of a build.

mod error;
pub mod log;
pub mod output;
mod profile;
pub mod usage;

pub use error::{nearest, one_line, plain};
pub use profile::build_options;
