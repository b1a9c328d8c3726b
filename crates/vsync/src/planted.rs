//! Deliberate faults of the protocol, which prove that the simulator's checks can fail. They exist only with the cargo
//! feature `planted-faults`; without it [`active`] is a constant `false` and the faults are compiled out.

/// A fault that can be planted. Each is checked at one place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "planted-faults"), allow(dead_code, unreachable_pub))]
pub enum Fault {
    /// The cut is made from the shortest known order instead of the longest.
    ShortestOrder,
    /// The cut contains only packets that the coordinator itself has.
    CoordinatorsPacketsOnly,
    /// A member that has reported its messages still takes messages of the old view.
    NotFrozen,
    /// A member accepts a view before it has all messages of the old one.
    AcceptedTooEarly,
    /// Every component counts as primary.
    NoMajorityNeeded,
    /// A coordinator ignores proposals that were accepted before.
    AcceptedForgotten,
    /// Proposals of ballots older than the promised one are accepted.
    PromiseBroken,
    /// A view is installed when half of its members have accepted it.
    InstalledTooEarly,
    /// A joiner drops what was ordered before its state was complete.
    JoinerSkips,
    /// The fetched packets lack the last one.
    FetchOffByOne,
    /// Packets that were in flight at a view change are sent again in the next view.
    SentAgain,
    /// The most advanced member instead of the last determines stability.
    StableTooEarly,
    /// Packets without a place in the order are left out of the cut.
    UnplacedDropped,
}

utipc_core::planted_switch!(Fault);
