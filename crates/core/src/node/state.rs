//! The state of contact with a peer node, as a table. Spec: tipc.md §6.2.
//!
//! Both ends must see each other down before contact can be made anew; that is what the LEAVING and COMING
//! states are for.

/// What this node knows of the contact. The initial state is [`State::SelfDownPeerLeaving`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum State {
    /// No contact, and the peer knows.
    SelfDownPeerDown,
    /// Full contact.
    SelfUpPeerUp,
    /// No contact; the peer may not have noticed yet.
    SelfDownPeerLeaving,
    /// We have contact; the peer has not confirmed.
    SelfUpPeerComing,
    /// The peer has contact; we have not.
    SelfComingPeerUp,
    /// The peer lost contact; we still have to.
    SelfLeavingPeerDown,
    /// Contact, while the packets of a lost link arrive by the other.
    FailingOver,
    /// Contact, while a second link is being synchronised.
    Synching,
}

/// What can happen to the contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The first link came up here.
    SelfEstablished,
    /// The last link went down here.
    SelfLost,
    /// The peer shows that a link is up at its end.
    PeerEstablished,
    /// The peer shows that no link is up at its end.
    PeerLost,
    /// Packets of a lost link begin to arrive by the other.
    FailoverBegin,
    /// They have all arrived.
    FailoverEnd,
    /// A second link begins to be synchronised.
    SynchBegin,
    /// It is synchronised.
    SynchEnd,
}

/// The event cannot happen in this state: the caller or the peer is confused; the state stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal;

impl State {
    /// All states, for tables.
    pub const ALL: [State; 8] = [
        State::SelfDownPeerDown,
        State::SelfUpPeerUp,
        State::SelfDownPeerLeaving,
        State::SelfUpPeerComing,
        State::SelfComingPeerUp,
        State::SelfLeavingPeerDown,
        State::FailingOver,
        State::Synching,
    ];

    /// True while this node has contact: a link is up.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::SelfUpPeerUp | Self::SelfUpPeerComing | Self::FailingOver | Self::Synching)
    }

    /// The state after `event`.
    ///
    /// # Errors
    /// [`Illegal`] if the event cannot happen here.
    pub const fn next(self, event: Event) -> Result<State, Illegal> {
        use Event as E;
        use State as S;
        Ok(match (self, event) {
            (S::SelfDownPeerDown, E::SelfEstablished) => S::SelfUpPeerComing,
            (S::SelfDownPeerDown, E::PeerEstablished) => S::SelfComingPeerUp,
            (S::SelfDownPeerDown, E::SelfLost | E::PeerLost) => self,

            (S::SelfUpPeerUp, E::SelfLost) => S::SelfDownPeerLeaving,
            (S::SelfUpPeerUp, E::PeerLost) => S::SelfLeavingPeerDown,
            (S::SelfUpPeerUp, E::FailoverBegin) => S::FailingOver,
            (S::SelfUpPeerUp, E::SynchBegin) => S::Synching,
            (S::SelfUpPeerUp, E::SelfEstablished | E::PeerEstablished | E::SynchEnd | E::FailoverEnd) => self,

            (S::SelfDownPeerLeaving, E::PeerLost) => S::SelfDownPeerDown,
            (S::SelfDownPeerLeaving, E::SelfEstablished | E::PeerEstablished | E::SelfLost) => self,

            (S::SelfUpPeerComing, E::PeerEstablished) => S::SelfUpPeerUp,
            (S::SelfUpPeerComing, E::SelfLost) => S::SelfDownPeerDown,
            (S::SelfUpPeerComing, E::SelfEstablished | E::PeerLost | E::SynchEnd | E::FailoverBegin) => self,

            (S::SelfComingPeerUp, E::SelfEstablished) => S::SelfUpPeerUp,
            (S::SelfComingPeerUp, E::PeerLost) => S::SelfDownPeerDown,
            (S::SelfComingPeerUp, E::SelfLost | E::PeerEstablished) => self,

            (S::SelfLeavingPeerDown, E::SelfLost) => S::SelfDownPeerDown,
            (S::SelfLeavingPeerDown, E::SelfEstablished | E::PeerEstablished | E::PeerLost) => self,

            (S::FailingOver, E::SelfLost) => S::SelfDownPeerLeaving,
            (S::FailingOver, E::PeerLost) => S::SelfLeavingPeerDown,
            (S::FailingOver, E::FailoverEnd) => S::SelfUpPeerUp,
            (S::FailingOver, E::SelfEstablished | E::PeerEstablished | E::FailoverBegin) => self,

            (S::Synching, E::SelfLost) => S::SelfDownPeerLeaving,
            (S::Synching, E::PeerLost) => S::SelfLeavingPeerDown,
            (S::Synching, E::FailoverBegin) => S::FailingOver,
            (S::Synching, E::SynchEnd) => S::SelfUpPeerUp,
            (S::Synching, E::SelfEstablished | E::PeerEstablished | E::SynchBegin) => self,

            _ => return Err(Illegal),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 8] = [
        Event::SelfEstablished,
        Event::SelfLost,
        Event::PeerEstablished,
        Event::PeerLost,
        Event::FailoverBegin,
        Event::FailoverEnd,
        Event::SynchBegin,
        Event::SynchEnd,
    ];

    const fn short(s: State) -> &'static str {
        match s {
            State::SelfDownPeerDown => "DD",
            State::SelfUpPeerUp => "UU",
            State::SelfDownPeerLeaving => "DL",
            State::SelfUpPeerComing => "UC",
            State::SelfComingPeerUp => "CU",
            State::SelfLeavingPeerDown => "LD",
            State::FailingOver => "FO",
            State::Synching => "SY",
        }
    }

    /// The table of tipc.md §6.2 as the reference prints it.
    #[test]
    fn matrix() {
        let rows: Vec<String> = State::ALL
            .iter()
            .map(|&s| {
                let cells = EVENTS.iter().map(|&e| match s.next(e) {
                    Ok(to) if to == s => "-",
                    Ok(to) => short(to),
                    Err(Illegal) => "ill",
                });
                format!("{}: {}", short(s), cells.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let expected = [
            "DD: UC - CU - ill ill ill ill",
            "UU: - DL - LD FO - SY -",
            "DL: - - - DD ill ill ill ill",
            "UC: - DD UU - - ill ill -",
            "CU: UU - - DD ill ill ill ill",
            "LD: - DD - - ill ill ill ill",
            "FO: - DL - LD - UU ill ill",
            "SY: - DL - LD FO ill - UU",
        ];
        assert_eq!(rows, expected);
    }
}
