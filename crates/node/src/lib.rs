//! A TIPC node: drives utipc-core over utipc-os.

pub mod bearers;
