//! The state of a member, as a table.

/// A member's part in the life of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Not a member.
    #[default]
    Idle,
    /// Looks for a view that includes it.
    Joining,
    /// Belongs to a view, and waits for the application's state.
    Transferring,
    /// Belongs to a view; sends and delivers.
    Operational,
    /// Has reported its messages to a coordinator; the view takes no more.
    Flushing,
    /// Has all messages of the old view and has accepted the next one.
    Prepared,
    /// Its component has no majority.
    Blocked,
}

/// Events that change the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The application joins.
    Join,
    /// A coordinator's ballot is promised.
    Promise,
    /// A proposal is accepted.
    Accept,
    /// The accepted view is installed here, with the application's state.
    Install,
    /// The accepted view is installed here, and the application's state is to come.
    InstallWithoutState,
    /// The accepted view is installed without this member, or includes it as a new member only.
    Exclude,
    /// The application's state is complete.
    StateComplete,
    /// The coordinator has found no majority.
    NoMajority,
    /// The member has left, or has given up.
    Depart,
}

/// The event is impossible in this state, because of an error of the caller or the peer; the state does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal;

impl State {
    /// All states, for tests of the table.
    pub const ALL: [State; 7] = [
        State::Idle,
        State::Joining,
        State::Transferring,
        State::Operational,
        State::Flushing,
        State::Prepared,
        State::Blocked,
    ];

    /// The state after `event`.
    ///
    /// # Errors
    /// [`Illegal`] if the event is impossible in this state.
    pub const fn next(self, event: Event) -> Result<State, Illegal> {
        use Event as E;
        use State as S;
        Ok(match (self, event) {
            (S::Idle, E::Join) => S::Joining,
            (S::Idle, _) | (_, E::Join) => return Err(Illegal),
            (_, E::Depart) => S::Idle,
            (_, E::Promise) => S::Flushing,
            (S::Flushing, E::Accept) => S::Prepared,
            (S::Prepared, E::Accept) => self,
            // After this member has promised a later ballot, another may show that the view is installed.
            (S::Prepared | S::Flushing | S::Blocked, E::Install) => S::Operational,
            (S::Prepared | S::Flushing | S::Blocked, E::InstallWithoutState) => S::Transferring,
            (S::Prepared | S::Flushing | S::Blocked, E::Exclude) => S::Joining,
            (S::Transferring, E::StateComplete) => S::Operational,
            (S::Flushing, E::NoMajority) => S::Blocked,
            _ => return Err(Illegal),
        })
    }

    /// Whether messages of the view are still received and ordered.
    #[must_use]
    pub const fn is_in_view(self) -> bool {
        matches!(self, Self::Operational | Self::Transferring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_of_states_and_events() {
        const EVENTS: [Event; 9] = [
            Event::Join,
            Event::Promise,
            Event::Accept,
            Event::Install,
            Event::InstallWithoutState,
            Event::Exclude,
            Event::StateComplete,
            Event::NoMajority,
            Event::Depart,
        ];
        let mut text = String::new();
        for state in State::ALL {
            text += &format!("{state:?}:");
            for event in EVENTS {
                let next = state
                    .next(event)
                    .map_or("-".into(), |s| format!("{s:?}").chars().take(2).collect::<String>());
                text += &format!(" {next:>2}");
            }
            text.push('\n');
        }
        // Columns: the events above, in order.
        let expected = "\
Idle: Jo  -  -  -  -  -  -  -  -
Joining:  - Fl  -  -  -  -  -  - Id
Transferring:  - Fl  -  -  -  - Op  - Id
Operational:  - Fl  -  -  -  -  -  - Id
Flushing:  - Fl Pr Op Tr Jo  - Bl Id
Prepared:  - Fl Pr Op Tr Jo  -  - Id
Blocked:  - Fl  - Op Tr Jo  -  - Id
";
        assert_eq!(text, expected);
    }
}
