//! The state machine of a link endpoint. Spec: tipc.md §5.2.

/// State of a link endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Taken down by this node, which has not finished yet.
    Resetting,
    /// Down; sends RESET.
    Reset,
    /// Taken down by the peer; this node has not finished yet.
    PeerReset,
    /// Both ends are reset and know it; sends ACTIVATE.
    Establishing,
    /// Packets pass.
    Established,
    /// Packets pass; delivery waits for packets on the other link.
    Synching,
    /// Down; its packets are sent over the other link.
    FailingOver,
}

impl State {
    /// All states, in the order of the reference.
    pub const ALL: [State; 7] = [
        Self::Resetting,
        Self::Reset,
        Self::PeerReset,
        Self::Establishing,
        Self::Established,
        Self::Synching,
        Self::FailingOver,
    ];

    /// True if packets pass.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Established | Self::Synching)
    }

    /// True if protocol messages are neither sent nor processed.
    #[must_use]
    pub const fn is_blocked(self) -> bool {
        matches!(self, Self::Resetting | Self::PeerReset | Self::FailingOver)
    }

    /// True if the endpoint is reset and can be established.
    #[must_use]
    pub const fn is_reset(self) -> bool {
        matches!(self, Self::Reset | Self::FailingOver | Self::Establishing)
    }
}

/// Events of a link endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The peer's endpoint was reset.
    PeerReset,
    /// The node has finished taking the endpoint down.
    LocalReset,
    /// The endpoint cannot continue.
    Failure,
    /// The node establishes the link.
    Establish,
    /// The other link starts carrying its packets.
    FailoverBegin,
    /// The failover is complete.
    FailoverEnd,
    /// The endpoint starts to wait for packets on the other link.
    SynchBegin,
    /// The synchronisation is complete.
    SynchEnd,
}

impl Event {
    /// All events, in the order of the reference.
    pub const ALL: [Event; 8] = [
        Self::PeerReset,
        Self::LocalReset,
        Self::Failure,
        Self::Establish,
        Self::FailoverBegin,
        Self::FailoverEnd,
        Self::SynchBegin,
        Self::SynchEnd,
    ];
}

/// Effect of an event in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// No change.
    Stay,
    /// A new state.
    To(State),
    /// A new state; the node must handle the link as down.
    Down(State),
    /// The event is illegal in this state, which does not change.
    Illegal,
}

/// The transition table of §5.2.
///
/// ```text
///  RESETTING --local reset--> RESET --peer reset--> ESTABLISHING --establish--> ESTABLISHED <--> SYNCHING
///      ^                        |^ failover begin/end       |                      |  |
///      |                        v|                          |                      |  +-- peer reset --> PEER_RESET
///      |                    FAILINGOVER <-------------------+                      |       (local reset: ESTABLISHING)
///      +------------------------------- failure -----------------------------------+
/// ```
#[must_use]
pub(super) const fn next(state: State, event: Event) -> Transition {
    use Transition::{Down, Illegal, Stay, To};
    match state {
        State::Resetting => match event {
            Event::PeerReset => To(State::PeerReset),
            Event::LocalReset => To(State::Reset),
            _ => Illegal,
        },
        State::Reset => match event {
            Event::PeerReset => To(State::Establishing),
            Event::FailoverBegin => To(State::FailingOver),
            Event::SynchBegin | Event::SynchEnd => Illegal,
            _ => Stay,
        },
        State::PeerReset => match event {
            Event::LocalReset => To(State::Establishing),
            Event::PeerReset | Event::Failure | Event::Establish => Stay,
            _ => Illegal,
        },
        State::Establishing => match event {
            Event::LocalReset => To(State::Reset),
            Event::Establish => To(State::Established),
            Event::FailoverBegin => To(State::FailingOver),
            Event::SynchEnd => Illegal,
            _ => Stay,
        },
        State::Established => match event {
            Event::PeerReset => Down(State::PeerReset),
            Event::LocalReset => To(State::Reset),
            Event::Failure => Down(State::Resetting),
            Event::SynchBegin => To(State::Synching),
            Event::FailoverBegin | Event::FailoverEnd => Illegal,
            _ => Stay,
        },
        State::Synching => match event {
            Event::PeerReset => Down(State::PeerReset),
            Event::LocalReset => To(State::Reset),
            Event::Failure => Down(State::Resetting),
            Event::SynchEnd => To(State::Established),
            Event::FailoverBegin | Event::FailoverEnd => Illegal,
            _ => Stay,
        },
        State::FailingOver => match event {
            Event::FailoverEnd => To(State::Reset),
            Event::FailoverBegin | Event::SynchBegin | Event::SynchEnd => Illegal,
            _ => Stay,
        },
    }
}
