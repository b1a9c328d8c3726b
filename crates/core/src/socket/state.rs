//! States of a socket.

/// State of a socket; the numbers that diagnostics show are TCP's. Spec: tipc.md §8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Neither connected nor listening.
    Open = 7,
    /// Accepts connection requests.
    Listen = 10,
    /// A connection request is on its way.
    Connecting = 2,
    /// Connected.
    Established = 1,
    /// The connection is over.
    Disconnecting = 8,
}
