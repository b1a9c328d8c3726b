//! The state of contact with a peer node, as a table. Spec: tipc.md §6.2.
//!
//! Both ends must see each other down before they can establish contact again; the LEAVING and COMING states ensure
//! that.

/// This node's view of the contact. The initial state is [`State::SelfDownPeerLeaving`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum State {
    /// No contact, and the peer has also lost it.
    SelfDownPeerDown,
    /// Full contact.
    SelfUpPeerUp,
    /// No contact; the peer may not have noticed yet.
    SelfDownPeerLeaving,
    /// Contact at this end; not confirmed by the peer.
    SelfUpPeerComing,
    /// Contact at the peer's end; none at this end.
    SelfComingPeerUp,
    /// The peer lost contact; this end has not taken its links down yet.
    SelfLeavingPeerDown,
    /// Contact, while packets of a failed link arrive over the other.
    FailingOver,
    /// Contact, while a second link is being synchronised.
    Synching,
}

/// Events that change the contact.
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
    /// Packets of a failed link start to arrive over the other.
    FailoverBegin,
    /// All of them have arrived.
    FailoverEnd,
    /// Synchronisation of a second link starts.
    SynchBegin,
    /// Synchronisation is complete.
    SynchEnd,
}

/// The event is illegal in this state, because of an error of the caller or the peer; the state does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal;

impl State {
    /// All states by their number.
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

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The state with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// True while this node has contact: at least one link is up.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::SelfUpPeerUp | Self::SelfUpPeerComing | Self::FailingOver | Self::Synching)
    }

    /// The state after `event`.
    ///
    /// # Errors
    /// [`Illegal`] if the event is not possible in this state.
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

    #[test]
    fn numbers_are_unique() {
        for state in State::ALL {
            assert_eq!(State::from_number(state.number().into()), Some(state));
        }
        assert_eq!(State::from_number(8), None);
    }

    /// The table of tipc.md §6.2, printed as in the reference.
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
