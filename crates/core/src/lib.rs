//! The TIPC protocol, pure.
