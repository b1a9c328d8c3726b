//! The state table of a socket.

/// State of a socket. Diagnostics show the numbers of the corresponding TCP states. Spec: tipc.md §8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum State {
    /// Neither connected nor listening.
    Open = 7,
    /// Accepts connection requests.
    Listen = 10,
    /// A connection request is in progress.
    Connecting = 2,
    /// Connected.
    Established = 1,
    /// The connection has ended.
    Disconnecting = 8,
}

/// Events that change the state. Connectionless sockets stay open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The application listens.
    Listen,
    /// A connection request was sent.
    Request,
    /// The socket was created for a connection request.
    Accept,
    /// The connection request was accepted.
    Answer,
    /// The connection request was returned.
    Refuse,
    /// The connection request timed out.
    GiveUp,
    /// The peer ended the connection, or its node was lost.
    PeerEnd,
    /// A probe was not answered.
    ProbeLost,
    /// The application shut down or closed.
    Shutdown,
}

impl State {
    /// The state after `event`; `None` if the event is illegal in this state.
    pub(super) const fn next(self, event: Event) -> Option<State> {
        Some(match (self, event) {
            (State::Open, Event::Listen) => State::Listen,
            (State::Open, Event::Request) => State::Connecting,
            (State::Open, Event::Accept) | (State::Connecting, Event::Answer) => State::Established,
            (State::Connecting, Event::Refuse | Event::GiveUp | Event::Shutdown)
            | (State::Established, Event::PeerEnd | Event::ProbeLost | Event::Shutdown) => {
                State::Disconnecting
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, State};

    #[test]
    fn state_table() {
        let states =
            [State::Open, State::Listen, State::Connecting, State::Established, State::Disconnecting];
        let events = [
            Event::Listen,
            Event::Request,
            Event::Accept,
            Event::Answer,
            Event::Refuse,
            Event::GiveUp,
            Event::PeerEnd,
            Event::ProbeLost,
            Event::Shutdown,
        ];
        let mut table = String::from("\n");
        for event in events {
            let to: Vec<_> =
                states.iter().map(|s| s.next(event).map_or("-".into(), |s| format!("{s:?}"))).collect();
            table += &format!(
                "{:<9} {:<12}{:<3}{:<15}{:<15}{}\n",
                format!("{event:?}"),
                to[0],
                to[1],
                to[2],
                to[3],
                to[4]
            );
        }
        //        Open        Listen Connecting  Established    Disconnecting
        assert_eq!(
            table,
            "
Listen    Listen      -  -              -              -
Request   Connecting  -  -              -              -
Accept    Established -  -              -              -
Answer    -           -  Established    -              -
Refuse    -           -  Disconnecting  -              -
GiveUp    -           -  Disconnecting  -              -
PeerEnd   -           -  -              Disconnecting  -
ProbeLost -           -  -              Disconnecting  -
Shutdown  -           -  Disconnecting  Disconnecting  -
"
        );
    }

    #[test]
    fn state_numbers_equal_those_of_tcp() {
        let n = [State::Established, State::Connecting, State::Open, State::Disconnecting, State::Listen];
        assert_eq!(n.map(|s| s as u8), [1, 2, 7, 8, 10]);
    }
}
