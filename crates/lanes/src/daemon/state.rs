//! The states of a lane and what moves it between them.
//!
//! ```text
//!           stop                    writer done
//!  WRITING -------> DRAINING ------------------------> DRAINING_DONE
//!     |   \             |                                   |
//!     |    \ abandon    | reader done                       | reader done
//!     |     \           v                                   v
//!     |      +------> STOPPED ----- writer done --------> DONE   (free when the reader is done too)
//!     +--------------- writer done ------------------------^
//! ```

/// State of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// It writes.
    Writing,
    /// It has stopped, and the reader reads the rest; later messages between the two sockets wait for that.
    Draining,
    /// The same, and the writer no longer touches the lane.
    DrainingDone,
    /// It has stopped, and nothing waits for the rest.
    Stopped,
    /// It no longer touches the lane.
    Done,
}

/// State of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// It was not notified of the lane: it has to receive earlier messages first.
    Unopened,
    /// It reads.
    Reading,
    /// It no longer touches the lane.
    Done,
}

/// An event of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneEvent {
    /// The reader is notified.
    Open,
    /// The writer stops; later messages to the reader wait until the lane is drained.
    Stop,
    /// The writer stops; no later message has to wait.
    Abandon,
    /// The writer no longer touches it.
    WriterDone,
    /// The reader no longer touches it.
    ReaderDone,
}

/// State of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneState {
    writer: Writer,
    reader: Reader,
}

impl LaneState {
    /// A lane whose reader has no notice of it yet.
    pub(super) const UNOPENED: Self = Self { writer: Writer::Writing, reader: Reader::Unopened };
    /// A lane that both sides use.
    pub(super) const OPEN: Self = Self { writer: Writer::Writing, reader: Reader::Reading };

    /// The state after an event.
    #[must_use]
    pub(super) const fn next(self, event: LaneEvent) -> Self {
        let Self { writer, reader } = self;
        match event {
            LaneEvent::Open => {
                let reader = if matches!(reader, Reader::Unopened) { Reader::Reading } else { reader };
                Self { writer, reader }
            }
            LaneEvent::Stop => Self { writer: stopped(writer, Writer::Draining), reader },
            LaneEvent::Abandon => Self { writer: stopped(writer, Writer::Stopped), reader },
            LaneEvent::WriterDone => {
                let writer = match writer {
                    Writer::Draining | Writer::DrainingDone => Writer::DrainingDone,
                    Writer::Writing | Writer::Stopped | Writer::Done => Writer::Done,
                };
                Self { writer, reader }
            }
            LaneEvent::ReaderDone => {
                let writer = match writer {
                    Writer::Writing | Writer::Draining | Writer::Stopped => Writer::Stopped,
                    Writer::DrainingDone | Writer::Done => Writer::Done,
                };
                Self { writer, reader: Reader::Done }
            }
        }
    }

    /// The writer has stopped for good, or was asked to.
    pub(super) const fn has_ended(self) -> bool {
        !matches!(self.writer, Writer::Writing)
    }

    /// Later messages wait until it is drained.
    pub(super) const fn is_draining(self) -> bool {
        matches!(self.writer, Writer::Draining | Writer::DrainingDone)
    }

    /// The writer no longer touches it.
    pub(super) const fn is_writer_done(self) -> bool {
        matches!(self.writer, Writer::DrainingDone | Writer::Done)
    }

    /// The reader no longer touches it.
    pub(super) const fn is_reader_done(self) -> bool {
        matches!(self.reader, Reader::Done)
    }

    /// The reader was notified and has not finished.
    pub(super) const fn is_read(self) -> bool {
        matches!(self.reader, Reader::Reading)
    }

    /// Neither side touches it.
    pub(super) const fn is_free(self) -> bool {
        self.is_writer_done() && self.is_reader_done()
    }
}

/// Only the first reason to stop counts.
const fn stopped(writer: Writer, to: Writer) -> Writer {
    if matches!(writer, Writer::Writing) { to } else { writer }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [LaneEvent; 5] =
        [LaneEvent::Open, LaneEvent::Stop, LaneEvent::Abandon, LaneEvent::WriterDone, LaneEvent::ReaderDone];

    const TABLE: &str = "
                      | Open                  Stop                  Abandon               WriterDone            ReaderDone
Writing/Unopened      | Writing/Reading       Draining/Unopened     Stopped/Unopened      Done/Unopened         Stopped/Done
Draining/Unopened     | Draining/Reading      -                     -                     DrainingDone/Unopened Stopped/Done
DrainingDone/Unopened | DrainingDone/Reading  -                     -                     -                     Done/Done
Stopped/Unopened      | Stopped/Reading       -                     -                     Done/Unopened         Stopped/Done
Done/Unopened         | Done/Reading          -                     -                     -                     Done/Done
Writing/Reading       | -                     Draining/Reading      Stopped/Reading       Done/Reading          Stopped/Done
Draining/Reading      | -                     -                     -                     DrainingDone/Reading  Stopped/Done
DrainingDone/Reading  | -                     -                     -                     -                     Done/Done
Stopped/Reading       | -                     -                     -                     Done/Reading          Stopped/Done
Done/Reading          | -                     -                     -                     -                     Done/Done
Stopped/Done          | -                     -                     -                     Done/Done             -
Done/Done             | -                     -                     -                     -                     -
";

    /// Every state that a new lane can get into.
    fn states() -> Vec<LaneState> {
        let writers =
            [Writer::Writing, Writer::Draining, Writer::DrainingDone, Writer::Stopped, Writer::Done];
        let all = [Reader::Unopened, Reader::Reading, Reader::Done]
            .into_iter()
            .flat_map(|reader| writers.into_iter().map(move |writer| LaneState { writer, reader }));
        let mut reached = vec![LaneState::UNOPENED, LaneState::OPEN];
        let mut at = 0;
        while let Some(state) = reached.get(at).copied() {
            let new = EVENTS.map(|event| state.next(event));
            let new: Vec<_> = new.into_iter().filter(|state| !reached.contains(state)).collect();
            for state in new {
                if !reached.contains(&state) {
                    reached.push(state);
                }
            }
            at += 1;
        }
        all.filter(|state| reached.contains(state)).collect()
    }

    fn name(state: LaneState) -> String {
        format!("{:?}/{:?}", state.writer, state.reader)
    }

    #[test]
    fn transition_table_of_every_state_and_event() {
        let row = |head: &str, cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:<21}")).collect();
            format!("{head:<21} | {}", cells.join(" ")).trim_end().to_owned() + "\n"
        };
        let mut text = row("", EVENTS.map(|event| format!("{event:?}")).to_vec());
        for state in states() {
            let cell = |event| match state.next(event) {
                same if same == state => "-".to_owned(),
                to => name(to),
            };
            text += &row(&name(state), EVENTS.map(cell).to_vec());
        }
        assert_eq!(text, TABLE.trim_start_matches('\n'), "{text}");
    }

    #[test]
    fn lane_is_free_when_both_sides_are_done() {
        let free: Vec<String> = states().into_iter().filter(|s| s.is_free()).map(name).collect();
        assert_eq!(free, ["Done/Done"]);
        let draining: Vec<String> = states().into_iter().filter(|s| s.is_draining()).map(name).collect();
        let unread =
            ["Draining/Unopened", "DrainingDone/Unopened", "Draining/Reading", "DrainingDone/Reading"];
        assert_eq!(draining, unread);
    }
}
