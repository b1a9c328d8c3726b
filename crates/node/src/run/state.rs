//! State of the drive: the thread that drives the event loop; and the state of the supervisor.

/// The thread that drives the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drive {
    /// No thread: the supervisor checks every few milliseconds whether it must drive.
    Undriven,
    /// A thread that waits in a call, in its event loop.
    Caller,
    /// A thread in a call that waits on the express path with this index, or is about to.
    Express(usize),
    /// The supervisor.
    Supervisor,
}

/// An event that changes which thread drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriveEvent {
    /// A call that has to wait begins to drive.
    CallerBegins,
    /// The driving call is about to wait on the express path with this index.
    CallerWaitsOn(usize),
    /// The driving call has waited there, or another thread is about to wake it.
    CallerReturns,
    /// The event for which the driving call waited has happened.
    CallerEnds,
    /// A call that does not wait takes over from the supervisor: further calls are likely.
    CallPasses,
    /// The supervisor begins to drive.
    SupervisorBegins,
    /// The supervisor stops driving.
    SupervisorEnds,
}

impl Drive {
    /// The state after an event; an event that does not concern a state leaves it as it is.
    #[must_use]
    pub(super) const fn next(self, event: DriveEvent) -> Self {
        match (self, event) {
            (Self::Undriven | Self::Supervisor, DriveEvent::CallerBegins)
            | (Self::Express(_), DriveEvent::CallerReturns) => Self::Caller,
            (Self::Caller | Self::Express(_), DriveEvent::CallerWaitsOn(path)) => Self::Express(path),
            (Self::Caller | Self::Express(_), DriveEvent::CallerEnds)
            | (Self::Supervisor, DriveEvent::CallPasses | DriveEvent::SupervisorEnds) => Self::Undriven,
            (Self::Undriven, DriveEvent::SupervisorBegins) => Self::Supervisor,
            (state, _) => state,
        }
    }

    /// A call drives.
    pub(super) const fn is_by_caller(self) -> bool {
        matches!(self, Self::Caller | Self::Express(_))
    }

    /// A call waiting on an express path is driving.
    pub(super) const fn is_express(self) -> bool {
        matches!(self, Self::Express(_))
    }
}

/// State of the supervisor while it does not drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supervision {
    /// The supervisor checks at intervals whether it must drive.
    Working,
    /// The supervisor sleeps until a call wakes it.
    Asleep,
    /// The supervisor sleeps until frames arrive elsewhere than on the express path where a call waits.
    WatchingOthers,
}

impl Supervision {
    /// Whether the supervisor sleeps until it is woken.
    pub(super) const fn is_asleep(self) -> bool {
        matches!(self, Self::Asleep | Self::WatchingOthers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [Drive; 4] = [Drive::Undriven, Drive::Caller, Drive::Express(0), Drive::Supervisor];

    const EVENTS: [DriveEvent; 7] = [
        DriveEvent::CallerBegins,
        DriveEvent::CallerWaitsOn(1),
        DriveEvent::CallerReturns,
        DriveEvent::CallerEnds,
        DriveEvent::CallPasses,
        DriveEvent::SupervisorBegins,
        DriveEvent::SupervisorEnds,
    ];

    const TABLE: &str = "
           | CallerBegins     CallerWaitsOn(1) CallerReturns    CallerEnds       CallPasses       SupervisorBegins SupervisorEnds
Undriven   | Caller           -                -                -                -                Supervisor       -
Caller     | -                Express(1)       -                Undriven         -                -                -
Express(0) | -                Express(1)       Caller           Undriven         -                -                -
Supervisor | Caller           -                -                -                Undriven         -                Undriven
";

    #[test]
    fn transition_table_of_every_state_and_event() {
        let row = |head: &str, cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:<16}")).collect();
            format!("{head:<10} | {}", cells.join(" ")).trim_end().to_owned() + "\n"
        };
        let mut text = row("", EVENTS.map(|event| format!("{event:?}")).to_vec());
        for state in STATES {
            let cell = |event| match state.next(event) {
                same if same == state => "-".to_owned(),
                to => format!("{to:?}"),
            };
            text += &row(&format!("{state:?}"), EVENTS.map(cell).to_vec());
        }
        assert_eq!(text, TABLE.trim_start_matches('\n'), "{text}");
    }

    #[test]
    fn only_calls_wait_on_an_express_path() {
        for state in STATES {
            let waits = state.next(DriveEvent::CallerWaitsOn(1)).is_express();
            assert_eq!(waits, state.is_by_caller(), "{state:?}");
        }
    }
}
