//! Output of the demo.

use std::fmt::Display;
use std::time::Instant;

/// Prints the demo with the time since its start.
pub(super) struct Narrator {
    start: Instant,
    chapters: u32,
}

impl Narrator {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), chapters: 0 }
    }

    /// Begins a part of the demo.
    pub(super) fn chapter(&mut self, title: &str) {
        self.chapters += 1;
        println!("\n{}. {title}", self.chapters);
    }

    /// Prints a line of explanation.
    pub(super) fn line(&self, text: &str) {
        println!("   {text}");
    }

    /// Prints a line in the name of a node or a subscriber.
    pub(super) fn say(&self, who: &str, what: impl Display) {
        println!("   {:6.3} s  {who:<13} {what}", self.start.elapsed().as_secs_f64());
    }

    pub(super) fn end(&self) {
        println!("\ndemo: ok");
    }
}
