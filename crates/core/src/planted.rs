//! Deliberate protocol faults, which prove that the simulator's checks can fail. They exist only with the cargo feature
//! `planted-faults`; without it [`active`] is a constant `false` and the faults are compiled out.

/// A fault that can be planted. Each is checked at one place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted-faults"), allow(dead_code, unreachable_pub))]
pub enum Fault {
    /// The reported gap lacks its last missing packet.
    GapOffByOne,
    /// A gap-ack block claims one received packet too many.
    GapBlockOffByOne,
    /// An acknowledgement includes the next expected packet.
    AckBeyond,
    /// A duplicate packet is delivered again.
    DuplicateNotDropped,
    /// Packets are never retransmitted.
    NoRetransmission,
    /// A RESET of an earlier session is accepted.
    StaleSession,
    /// Every STATE is answered with a STATE.
    StateStorm,
    /// Fragments are assembled in the wrong order.
    FragmentOrder,
    /// Sockets waiting for a link are not woken.
    LostWakeup,
    /// Broadcast reception starts one packet too late.
    BroadcastSyncOffByOne,
    /// The broadcast acknowledgement is one packet ahead.
    BroadcastAckBeyond,
    /// A packet acknowledged by one peer counts as acknowledged by all.
    BroadcastAckedByOne,
    /// The broadcast receiver keeps its sequence numbers when contact is lost.
    BroadcastNotReset,
    /// Sequence numbers of name updates sometimes skip one.
    NameNumberSkipped,
    /// Withdrawals are not sent to peers.
    WithdrawalLost,
    /// The bulk lacks its last binding.
    BulkLacksLast,
    /// Bindings of a lost node are not removed.
    NodeBindingsStay,
    /// Connections to a lost node are not aborted.
    ConnectionsStay,
    /// Consumed small messages are not acknowledged to the sender.
    FlowControlLeak,
    /// A sender ignores its peer's window.
    WindowIgnored,
    /// Undeliverable messages are dropped instead of returned.
    ReturnLost,
    /// A socket with two matching bindings gets two copies of a multicast.
    CopyPerBinding,
    /// When the multicast method changes, the message with data is dropped instead of the dummy.
    WrongSyn,
    /// Subscribers get no event for withdrawals from ranges that have other bindings.
    SilentWithdrawal,
}

/// Makes `plant` and `active` for the faults of a crate with the feature `planted-faults`.
#[doc(hidden)]
#[macro_export]
macro_rules! planted_switch {
    ($fault:ident) => {
        #[cfg(feature = "planted-faults")]
        mod switch {
            use super::$fault;
            use core::cell::Cell;

            std::thread_local! {
                static PLANTED: Cell<Option<$fault>> = const { Cell::new(None) };
            }

            /// Plants a fault for everything that runs on this thread; `None` removes it.
            pub fn plant(fault: Option<$fault>) {
                PLANTED.set(fault);
            }

            pub(crate) fn active(fault: $fault) -> bool {
                PLANTED.get() == Some(fault)
            }
        }

        #[cfg(feature = "planted-faults")]
        pub(crate) use switch::active;
        #[cfg(feature = "planted-faults")]
        pub use switch::plant;

        #[cfg(not(feature = "planted-faults"))]
        pub(crate) const fn active(_: $fault) -> bool {
            false
        }
    };
}

planted_switch!(Fault);
