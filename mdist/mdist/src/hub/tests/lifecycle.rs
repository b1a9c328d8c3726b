//! The three state machines of an item against their tables.

use std::fmt::Debug;

use super::super::item::{Event, Image, Phase, Publication, Transition};
use super::super::item::{next_image, next_phase, next_publication};

/// Prints one machine: a row for each event, a column for each state.
fn print<S: Debug + Copy>(states: &[S], next: fn(S, Event) -> Transition<S>) -> String {
    let row = |head: String, cells: Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|c| format!("{c:<13}")).collect();
        format!("{head:<13} | {}", cells.join(" ")).trim_end().to_string() + "\n"
    };
    let cell = |transition| match transition {
        Transition::Stay => "-".to_string(),
        Transition::To(state) => format!("{state:?}"),
        Transition::Illegal => "illegal".to_string(),
    };
    let mut text = row(String::new(), states.iter().map(|s| format!("{s:?}")).collect());
    for event in Event::ALL {
        text += &row(format!("{event:?}"), states.iter().map(|s| cell(next(*s, event))).collect());
    }
    text
}

const PHASES: &str = "
              | NoStream      Opening       Live          Receiving     Ended         Free
Awaited       | -             illegal       illegal       illegal       illegal       illegal
StreamOpened  | Opening       illegal       illegal       illegal       illegal       illegal
Published     | illegal       -             illegal       illegal       illegal       illegal
Part          | illegal       Receiving     Receiving     -             illegal       illegal
LastPart      | illegal       Live          -             Live          illegal       illegal
ImageComplete | illegal       illegal       -             illegal       illegal       illegal
ImageOverdue  | illegal       illegal       -             Live          illegal       illegal
ImageCleared  | illegal       -             -             -             illegal       illegal
RestartDue    | -             -             -             -             -             illegal
ServiceBack   | illegal       -             -             -             illegal       illegal
StreamClosed  | illegal       NoStream      NoStream      NoStream      illegal       illegal
Ended         | Ended         illegal       illegal       illegal       -             illegal
Freed         | Free          illegal       illegal       illegal       Free          illegal
";

const IMAGES: &str = "
              | Missing       MissingForAll Known         Outdated
Awaited       | -             -             -             -
StreamOpened  | -             -             -             -
Published     | MissingForAll -             Outdated      -
Part          | -             -             -             -
LastPart      | -             -             -             -
ImageComplete | Known         Known         Known         Known
ImageOverdue  | -             -             -             -
ImageCleared  | -             -             Missing       MissingForAll
RestartDue    | MissingForAll -             Outdated      -
ServiceBack   | -             Missing       -             Known
StreamClosed  | -             -             -             -
Ended         | -             -             -             -
Freed         | -             -             -             -
";

const PUBLICATIONS: &str = "
              | Requested     Awaited       Publishing    Published
Awaited       | Awaited       illegal       illegal       illegal
StreamOpened  | -             -             -             -
Published     | Published     Publishing    -             -
Part          | -             -             -             -
LastPart      | -             -             -             -
ImageComplete | -             Requested     Published     -
ImageOverdue  | -             -             -             -
ImageCleared  | -             -             -             -
RestartDue    | -             -             -             -
ServiceBack   | -             -             -             -
StreamClosed  | -             -             -             -
Ended         | -             -             Awaited       Requested
Freed         | Requested     Requested     Requested     Requested
";

#[test]
fn every_event_moves_the_phase_as_in_the_table() {
    assert_eq!(print(&Phase::ALL, next_phase), PHASES.trim_start_matches('\n'));
}

#[test]
fn every_event_moves_the_image_as_in_the_table() {
    assert_eq!(print(&Image::ALL, next_image), IMAGES.trim_start_matches('\n'));
}

#[test]
fn every_event_moves_the_publication_as_in_the_table() {
    assert_eq!(print(&Publication::ALL, next_publication), PUBLICATIONS.trim_start_matches('\n'));
}

#[test]
fn classes_of_states() {
    let phases = |f: fn(Phase) -> bool| Phase::ALL.into_iter().filter(|s| f(*s)).collect::<Vec<_>>();
    assert_eq!(phases(Phase::is_open), [Phase::NoStream, Phase::Opening, Phase::Live, Phase::Receiving]);
    assert_eq!(phases(Phase::is_live), [Phase::Live, Phase::Receiving]);
    let images = |f: fn(Image) -> bool| Image::ALL.into_iter().filter(|s| f(*s)).collect::<Vec<_>>();
    assert_eq!(images(Image::is_known), [Image::Known, Image::Outdated]);
    assert_eq!(images(Image::restarts), [Image::MissingForAll, Image::Outdated]);
    let all = Publication::ALL;
    let publications = |f: fn(Publication) -> bool| all.into_iter().filter(|s| f(*s)).collect::<Vec<_>>();
    assert_eq!(publications(Publication::is_awaited), [Publication::Awaited, Publication::Publishing]);
    assert_eq!(publications(Publication::is_published), [Publication::Publishing, Publication::Published]);
}
