//! What the application sees: views, each with its messages, and events before and after them.

use std::collections::VecDeque;

use crate::event::{Event, Outcome, Token, ViewChange};
use crate::log::Log;
use crate::view::View;

/// A view's part of what the application sees.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) log: Log,
    /// Events before the view.
    pub(super) before: VecDeque<Event>,
    /// The view, until the application has taken it.
    pub(super) change: Option<ViewChange>,
    /// Whether the application's state is there.
    pub(super) ready: bool,
    /// Offset of the next message in the packet whose turn it is.
    pub(super) offset: usize,
    /// Atomic messages of this member in packets of the view, oldest first.
    pub(super) tokens: VecDeque<Token>,
}

/// What the application has not taken.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Views whose events the application has not all taken; the last one is current.
    epochs: VecDeque<Epoch>,
    /// Events after all epochs, for a member without a view.
    after: VecDeque<Event>,
}

impl History {
    /// The current view.
    pub(super) fn view(&self) -> Option<&View> {
        self.log().map(|log| &log.view)
    }

    /// The log of the current view.
    pub(super) fn log(&self) -> Option<&Log> {
        self.epochs.back().map(|epoch| &epoch.log).filter(|log| !log.sealed)
    }

    pub(super) fn log_mut(&mut self) -> Option<&mut Log> {
        self.epochs.back_mut().map(|epoch| &mut epoch.log).filter(|log| !log.sealed)
    }

    /// The last view.
    pub(super) fn last_mut(&mut self) -> Option<&mut Epoch> {
        self.epochs.back_mut()
    }

    /// The oldest view, and whether it is the only one.
    pub(super) fn first_mut(&mut self) -> Option<(&mut Epoch, bool)> {
        let is_only = self.epochs.len() == 1;
        Some((self.epochs.front_mut()?, is_only))
    }

    /// Forgets the oldest view if the application has taken all of it.
    pub(super) fn end_first(&mut self) -> bool {
        let is_exhausted = self.epochs.front().is_some_and(|epoch| epoch.log.is_exhausted());
        is_exhausted && self.epochs.pop_front().is_some()
    }

    /// A view begins, after all events so far.
    pub(super) fn begin(&mut self, change: ViewChange, ready: bool) {
        self.epochs.push_back(Epoch {
            log: Log::new(change.view.clone()),
            before: std::mem::take(&mut self.after),
            change: Some(change),
            ready,
            offset: 0,
            tokens: VecDeque::new(),
        });
    }

    /// Forgets the current view and what the application has not taken of it; true if there was one.
    pub(super) fn drop_view(&mut self) {
        if self.log().is_some()
            && let Some(epoch) = self.epochs.pop_back()
        {
            let events = epoch.before.into_iter().filter(|event| !matches!(event, Event::State { .. }));
            self.after.extend(events);
            let unknown = |token| Event::Outcome(token, Outcome::Unknown);
            self.after.extend(epoch.tokens.into_iter().map(unknown));
        }
    }

    /// An event after all views.
    pub(super) fn push(&mut self, event: Event) {
        self.after.push_back(event);
    }

    /// The next event after all views.
    pub(super) fn next_after(&mut self) -> Option<Event> {
        self.after.pop_front()
    }

    /// Tells the application something as soon as its history allows.
    pub(super) fn notify(&mut self, event: Event) {
        match self.epochs.back_mut() {
            Some(epoch) if epoch.change.is_some() => epoch.before.push_back(event),
            _ => self.after.push_back(event),
        }
    }

    /// Events that the application has not taken, without messages and those before views.
    pub(super) fn untaken(&self) -> usize {
        self.epochs.len() + self.after.len()
    }

    /// Events before views that the application has not taken.
    pub(super) fn untaken_before(&self) -> usize {
        self.epochs.iter().map(|epoch| epoch.before.len()).sum()
    }

    /// Bytes of messages that the application has not taken.
    pub(super) fn undelivered(&self) -> usize {
        self.epochs.iter().map(|epoch| epoch.log.undelivered).sum()
    }

    /// Packets that the application has not taken.
    pub(super) fn waiting(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.log.waiting()).sum()
    }
}
