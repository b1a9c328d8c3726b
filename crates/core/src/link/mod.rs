//! Links: reliable, ordered packets to one peer over one bearer. Spec: tipc.md §5.
//!
//! `receive`, `transmit`, `window`, `backlog`, `fragment` and `unpack` are the machinery of a numbered sequence
//! of packets, which the broadcast link uses as well.

mod backlog;
mod fragment;
mod receive;
mod transmit;
mod unpack;
mod window;

#[cfg(test)]
mod tests;

use crate::addr::Importance;

#[allow(unused_imports, reason = "the broadcast link is their other user")]
pub(crate) use self::{
    backlog::{Backlog, Level, MAX_BACKLOG, Queued},
    fragment::{FragmentFault, Fragments, Reassembly},
    receive::{Arrival, GapBlock, MAX_GAP_BLOCKS, ReceiveQueue},
    transmit::{Sent, TransmitQueue},
    unpack::{Carrier, Unpacker, may_be_inside},
    window::Window,
};

/// A port that may send again at this importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The waiting port.
    pub port: u32,
    /// What it wanted to send.
    pub importance: Importance,
}
