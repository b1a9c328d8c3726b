//! Commands for operators: `utipc status`, `top`, `doctor` and `capture`.
//!
//! `snapshot.rs` is the state of a node, `finding.rs` its problems; `node.rs` asks the node.

pub(crate) mod capture;
pub(crate) mod doctor;
mod finding;
mod node;
mod snapshot;
pub(crate) mod status;
pub(crate) mod text;
pub(crate) mod top;
