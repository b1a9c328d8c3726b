//! The state of `top`: what it shows, and what keys change.

use anyhow::Result;

use super::rates::Rates;
use super::table::{Tab, View};
use crate::operate::doctor;
use crate::operate::finding::Finding;
use crate::operate::snapshot::Snapshot;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Tab,
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    Interrupt,
}

/// The state of `top`.
#[derive(Debug)]
pub(super) struct App {
    pub(super) shot: Snapshot,
    pub(super) rates: Rates,
    pub(super) findings: Vec<Finding>,
    pub(super) view: View,
    /// The first row that is shown.
    pub(super) offset: usize,
    /// Rows that fit; set by drawing.
    pub(super) visible: usize,
    pub(super) is_typing: bool,
    pub(super) is_paused: bool,
    /// Why the last snapshot failed.
    pub(super) failed: Option<String>,
    pub(super) is_over: bool,
}

impl App {
    pub(super) fn new(shot: Snapshot) -> Self {
        Self {
            rates: Rates::between(&shot, &shot),
            findings: doctor::node::all(&shot),
            shot,
            view: View::default(),
            offset: 0,
            visible: 1,
            is_typing: false,
            is_paused: false,
            failed: None,
            is_over: false,
        }
    }

    /// A new snapshot, or the reason why it failed.
    pub(super) fn update(&mut self, shot: Result<Snapshot>) {
        match shot {
            Ok(shot) => {
                self.rates = Rates::between(&self.shot, &shot);
                self.findings = doctor::node::all(&shot);
                self.shot = shot;
                self.failed = None;
            }
            Err(error) => self.failed = Some(utipc_cli::one_line(&error)),
        }
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: Key) {
        if key == Key::Interrupt {
            self.is_over = true;
        } else if self.is_typing {
            self.type_filter(key);
        } else {
            self.command(key);
        }
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.view.filter.push(letter),
            Key::Backspace => _ = self.view.filter.pop(),
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.view.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        self.offset = 0;
    }

    fn command(&mut self, key: Key) {
        match key {
            Key::Char('q') => self.is_over = true,
            Key::Char('/') => self.is_typing = true,
            Key::Char('s') => {
                let next = self.view.sort.map_or(0, |column| column + 1);
                self.view.sort = (next < self.view.tab.columns().len()).then_some(next);
            }
            Key::Char('r') => self.view.reverse = !self.view.reverse,
            Key::Char(' ') => self.is_paused = !self.is_paused,
            Key::Char(digit @ '1'..='3') => self.show(Tab::ALL[digit as usize - '1' as usize]),
            Key::Tab => {
                let at = Tab::ALL.iter().position(|tab| *tab == self.view.tab).unwrap_or(0);
                self.show(Tab::ALL[(at + 1) % Tab::ALL.len()]);
            }
            Key::Escape => self.view.filter.clear(),
            Key::Up => self.offset = self.offset.saturating_sub(1),
            Key::Down => self.offset += 1,
            Key::PageUp => self.offset = self.offset.saturating_sub(self.visible),
            Key::PageDown => self.offset += self.visible,
            Key::Home => self.offset = 0,
            _ => {}
        }
    }

    fn show(&mut self, tab: Tab) {
        self.view.tab = tab;
        self.view.sort = None;
        self.view.reverse = false;
        self.offset = 0;
    }
}
