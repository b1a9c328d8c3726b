//! What a client hears of an item's trouble, by what it said at login. Spec: rssl.md §6.3

/// What a client said at login about items in trouble; both default to yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wants {
    /// The server keeps streams open and recovers items itself.
    pub single_open: bool,
    /// Suspect data may be shown.
    pub allow_suspect: bool,
}

impl Default for Wants {
    fn default() -> Self {
        Self { single_open: true, allow_suspect: true }
    }
}

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is open, its data are suspect: of an old item or as the answer to a request.
    Suspect,
    /// Its stream upstream is closed and may be opened again.
    Recoverable,
    /// It was asked for while its service is down, and the service accepts requests.
    ServiceDown,
}

/// What the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// OPEN/SUSPECT: the stream stays.
    OpenSuspect,
    /// CLOSED_RECOVER/SUSPECT: the stream is over, the client may open it again.
    ClosedRecover,
}

/// The table. CLOSED is not in it: everybody is told that unchanged.
pub fn told(event: Event, wants: Wants) -> Told {
    use Event::{Recoverable, ServiceDown, Suspect};
    match (event, wants.single_open, wants.allow_suspect) {
        (_, true, _) => Told::OpenSuspect,
        (Suspect, false, true) => Told::OpenSuspect,
        (Suspect, false, false) => Told::ClosedRecover,
        (Recoverable | ServiceDown, false, _) => Told::ClosedRecover,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_the_table() {
        use Event::{Recoverable, ServiceDown, Suspect};
        use Told::{ClosedRecover as C, OpenSuspect as O};
        let columns = [(true, true), (true, false), (false, true), (false, false)];
        for (event, cells) in
            [(Suspect, [O, O, O, C]), (Recoverable, [O, O, C, C]), (ServiceDown, [O, O, C, C])]
        {
            for ((single_open, allow_suspect), cell) in columns.into_iter().zip(cells) {
                assert_eq!(
                    told(event, Wants { single_open, allow_suspect }),
                    cell,
                    "{event:?} for single open {single_open}, suspect {allow_suspect}"
                );
            }
        }
    }
}
