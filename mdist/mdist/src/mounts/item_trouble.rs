//! What a client hears of an item's trouble, by what it said at login. Spec: rssl.md §6.3

/// What a client said at login about items in trouble; both default to yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecoveryOptions {
    /// The server keeps streams open and recovers items itself.
    pub single_open: bool,
    /// Suspect data may be shown.
    pub allow_suspect: bool,
}

impl Default for RecoveryOptions {
    fn default() -> Self {
        Self { single_open: true, allow_suspect: true }
    }
}

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemTrouble {
    /// It is open, its data are suspect: of an old item or as the answer to a request.
    Suspect,
    /// Its stream upstream is closed and may be opened again.
    Recoverable,
    /// It was asked for while its service is down, and the service accepts requests.
    ServiceDown,
}

/// What the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedState {
    /// OPEN/SUSPECT: the stream stays.
    OpenSuspect,
    /// CLOSED_RECOVER/SUSPECT: the stream is over, the client may open it again.
    ClosedRecover,
}

/// The table. CLOSED is not in it: everybody is told that unchanged.
pub fn reported_state(event: ItemTrouble, wants: RecoveryOptions) -> ReportedState {
    use ItemTrouble::{Recoverable, ServiceDown, Suspect};
    match (event, wants.single_open, wants.allow_suspect) {
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
    fn every_cell_of_the_table() {
        use ItemTrouble::{Recoverable, ServiceDown, Suspect};
        use ReportedState::{ClosedRecover as C, OpenSuspect as O};
        let columns = [(true, true), (true, false), (false, true), (false, false)];
        for (event, cells) in
            [(Suspect, [O, O, O, C]), (Recoverable, [O, O, C, C]), (ServiceDown, [O, O, C, C])]
        {
            for ((single_open, allow_suspect), cell) in columns.into_iter().zip(cells) {
                assert_eq!(
                    reported_state(event, RecoveryOptions { single_open, allow_suspect }),
                    cell,
                    "{event:?} for single open {single_open}, suspect {allow_suspect}"
                );
            }
        }
    }
}
