//! Whether the last message of a socket had several receivers, among which the node chooses. Decision 38.

/// The receivers of the last message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::socket) enum Anycast {
    /// At most one, or it was no anycast.
    #[default]
    One,
    /// The receiver was chosen among several: only if all are full the next message waits.
    Several,
    /// All were full. Ends with the next wake-up, of whichever.
    AllFull,
}

impl Anycast {
    /// A wake-up ends the wait for any receiver.
    #[inline]
    pub(super) fn wakeup(&mut self) {
        if *self == Self::AllFull {
            *self = Self::Several;
        }
    }
}
