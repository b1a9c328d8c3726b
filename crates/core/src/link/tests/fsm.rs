//! Compares the state machine with the table of §5.2.

use super::super::fsm::{Event, State, Transition, next};

const TABLE: &str = "
             | PeerReset     LocalReset    Failure       Establish     FailoverBegin FailoverEnd   SynchBegin    SynchEnd
Resetting    | PeerReset     Reset         illegal       illegal       illegal       illegal       illegal       illegal
Reset        | Establishing  -             -             -             FailingOver   -             illegal       illegal
PeerReset    | -             Establishing  -             -             illegal       illegal       illegal       illegal
Establishing | -             Reset         -             Established   FailingOver   -             -             illegal
Established  | PeerReset v   Reset         Resetting v   -             illegal       illegal       Synching      -
Synching     | PeerReset v   Reset         Resetting v   -             illegal       illegal       -             Established
FailingOver  | -             -             -             -             illegal       Reset         illegal       illegal
";

fn print() -> String {
    let cell = |t| match t {
        Transition::Stay => "-".to_string(),
        Transition::To(s) => format!("{s:?}"),
        Transition::Down(s) => format!("{s:?} v"),
        Transition::Illegal => "illegal".to_string(),
    };
    let row = |head: String, cells: Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|c| format!("{c:<13}")).collect();
        format!("{head:<12} | {}", cells.join(" ")).trim_end().to_string() + "\n"
    };
    let mut text = row(String::new(), Event::ALL.map(|e| format!("{e:?}")).to_vec());
    for state in State::ALL {
        text += &row(format!("{state:?}"), Event::ALL.map(|e| cell(next(state, e))).to_vec());
    }
    text
}

#[test]
fn state_table_equals_the_reference() {
    assert_eq!(print(), TABLE.trim_start_matches('\n'));
}

#[test]
fn predicates_of_states() {
    let named = |f: fn(State) -> bool| State::ALL.into_iter().filter(|s| f(*s)).collect::<Vec<_>>();
    assert_eq!(named(State::is_up), [State::Established, State::Synching]);
    assert_eq!(named(State::is_blocked), [State::Resetting, State::PeerReset, State::FailingOver]);
    assert_eq!(named(State::is_reset), [State::Reset, State::Establishing, State::FailingOver]);
}

#[test]
fn down_is_reported_only_in_up_states() {
    for state in State::ALL {
        for event in Event::ALL {
            let down = matches!(next(state, event), Transition::Down(_));
            assert!(!down || state.is_up(), "{state:?} {event:?}");
        }
    }
}
