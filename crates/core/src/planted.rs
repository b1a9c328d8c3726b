//! Deliberate faults in the protocol, to show that the simulator's checks can fail. They exist only with the cargo
//! feature `planted-faults`; without it [`active`] is `false` at compile time and nothing of this is in the program.

/// A fault that can be planted. Each stands at one place in the code, where its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted-faults"), allow(dead_code, unreachable_pub))]
pub enum Fault {
    /// The gap that a receiver reports lacks its last packet.
    GapOffByOne,
    /// A gap-ack block claims one packet more than was received.
    GapBlockOffByOne,
    /// A packet acknowledges the one that is expected next.
    AckBeyond,
    /// A packet that was received before is delivered again.
    DuplicateNotDropped,
    /// A packet is never sent again.
    NoRetransmission,
    /// A RESET of an earlier session is obeyed.
    StaleSession,
    /// Every STATE is answered by one.
    StateStorm,
    /// The slices of a fragmented message are put together in the wrong order.
    FragmentOrder,
    /// Sockets that wait for a link are not woken.
    LostWakeup,
    /// Broadcast reception starts one packet too late.
    BroadcastSyncOffByOne,
    /// The broadcast ack is one packet ahead.
    BroadcastAckBeyond,
    /// What one peer has acknowledged counts as acknowledged by all.
    BroadcastAckedByOne,
    /// The broadcast receiver keeps its numbers over the loss of contact.
    BroadcastNotReset,
    /// Numbers of name updates skip one now and then.
    NameNumberSkipped,
    /// Peers are not told of a withdrawal.
    WithdrawalLost,
    /// The bulk lacks its last binding.
    BulkLacksLast,
    /// Bindings of a lost node stay.
    NodeBindingsStay,
    /// Connections to a lost node stay.
    ConnectionsStay,
    /// Small messages that were consumed are not told to the sender.
    FlowControlLeak,
    /// A sender ignores the window of its peer.
    WindowIgnored,
    /// An undeliverable message vanishes instead of going back.
    ReturnLost,
    /// A socket with two matching bindings gets two copies of a multicast.
    CopyPerBinding,
    /// At a change of the multicast method the message with data is dropped instead of the dummy.
    WrongTwin,
    /// Topology subscribers are not told of withdrawals from ranges that stay bound.
    SilentWithdrawal,
}

#[cfg(feature = "planted-faults")]
mod switch {
    use super::Fault;
    use core::cell::Cell;

    std::thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Plants a fault in everything that runs on this thread, or with `None` removes it.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.set(fault);
    }

    pub(crate) fn active(fault: Fault) -> bool {
        PLANTED.get() == Some(fault)
    }
}

#[cfg(feature = "planted-faults")]
pub(crate) use switch::active;
#[cfg(feature = "planted-faults")]
pub use switch::plant;

#[cfg(not(feature = "planted-faults"))]
pub(crate) const fn active(_: Fault) -> bool {
    false
}
