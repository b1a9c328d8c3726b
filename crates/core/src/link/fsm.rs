//! The states of a link endpoint and what moves it between them. Spec: tipc.md §5.2.

/// State of a link endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Taken down here; the node has not finished with it.
    Resetting,
    /// Down; tells the peer so.
    Reset,
    /// Taken down by the peer; the node has not finished with it.
    PeerReset,
    /// Both ends are reset and say so.
    Establishing,
    /// Carries packets.
    Established,
    /// Carries packets, its first ones wait for those on the other link.
    Synching,
    /// Down, its packets travel on the other link.
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

    /// Packets pass.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Established | Self::Synching)
    }

    /// No protocol message is sent or processed.
    #[must_use]
    pub const fn is_blocked(self) -> bool {
        matches!(self, Self::Resetting | Self::PeerReset | Self::FailingOver)
    }

    /// The endpoint was reset and can be established again.
    #[must_use]
    pub const fn is_reset(self) -> bool {
        matches!(self, Self::Reset | Self::FailingOver | Self::Establishing)
    }
}

/// What happens to a link endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The peer's endpoint was reset.
    PeerReset,
    /// The node has finished taking the endpoint down.
    LocalReset,
    /// The endpoint cannot go on.
    Failure,
    /// The node brings it up.
    Establish,
    /// Its packets go to the other link.
    FailoverBegin,
    /// They have arrived.
    FailoverEnd,
    /// It waits for the other link's packets.
    SynchBegin,
    /// They have arrived.
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

/// What an event does in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Nothing.
    Stay,
    /// A new state.
    To(State),
    /// A new state, and the node must learn that the link is down.
    Down(State),
    /// It cannot happen here; the state is kept.
    Illegal,
}

/// The table of §5.2.
///
/// ```text
///  RESETTING --local reset--> RESET --peer reset--> ESTABLISHING --establish--> ESTABLISHED <--> SYNCHING
///      ^                        |^ failover begin/end       |                      |  |
///      |                        v|                          |                      |  +-- peer reset --> PEER_RESET
///      |                    FAILINGOVER <-------------------+                      |        (local reset: ESTABLISHING)
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
