//! States of items in trouble, as each consumer gets them by its choice at login. Spec: rssl.md §6.3

rssl::with_defaults! {
    /// A consumer's choice at login about items in trouble.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct RecoveryOptions {
        /// The server keeps streams open and recovers items itself. Default: true.
        pub single_open: bool = true,
        /// The consumer may get suspect data. Default: true.
        pub allow_suspect: bool = true,
    }
}

/// A reason for which an item is not open with good data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemTrouble {
    /// It is open with suspect data: a change of an open item, or the answer to a request.
    Suspect,
    /// Its stream upstream is closed and may be opened again.
    Recoverable,
    /// It was requested while its service is down but accepts requests.
    ServiceDown,
}

/// The state that the consumer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedState {
    /// OPEN/SUSPECT: the stream stays.
    OpenSuspect,
    /// CLOSED_RECOVER/SUSPECT: the stream is over, the consumer may open it again.
    ClosedRecover,
}

/// The state that a consumer with these options gets. CLOSED is not in the table: every consumer gets it unchanged.
pub fn reported_state(trouble: ItemTrouble, options: RecoveryOptions) -> ReportedState {
    use ItemTrouble::{Recoverable, ServiceDown, Suspect};
    match (trouble, options.single_open, options.allow_suspect) {
        (_, true, _) => ReportedState::OpenSuspect,
        (Suspect, false, true) => ReportedState::OpenSuspect,
        (Suspect, false, false) => ReportedState::ClosedRecover,
        (Recoverable | ServiceDown, false, _) => ReportedState::ClosedRecover,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_is_reported_as_in_the_table() {
        use ItemTrouble::{Recoverable, ServiceDown, Suspect};
        use ReportedState::{ClosedRecover as C, OpenSuspect as O};
        let columns = [(true, true), (true, false), (false, true), (false, false)];
        for (trouble, cells) in
            [(Suspect, [O, O, O, C]), (Recoverable, [O, O, C, C]), (ServiceDown, [O, O, C, C])]
        {
            for ((single_open, allow_suspect), cell) in columns.into_iter().zip(cells) {
                assert_eq!(
                    reported_state(trouble, RecoveryOptions { single_open, allow_suspect }),
                    cell,
                    "{trouble:?} with single open {single_open}, allow suspect {allow_suspect}"
                );
            }
        }
    }
}
