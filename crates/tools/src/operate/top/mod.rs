//! `utipc top`: sockets, services and links by rate, live.

mod app;
mod rates;
mod screen;
mod table;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde::Serialize;

use super::node::{Node, Target};
use super::snapshot::Snapshot;
use app::{App, Key};
use rates::Rates;

/// Options of `utipc top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,
    /// Print the tables once, after one interval
    #[arg(short, long)]
    once: bool,
    /// Print the rates once as JSON
    #[arg(short, long)]
    json: bool,
    /// Interval between two looks, seconds
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Show only rows with this text
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    filter: String,
}

/// The JSON output: the state, and the rates.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    shot: &'a Snapshot,
    rates: &'a Rates,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "is not a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("is out of range (0.1 to 3600)".to_owned())
    }
}

/// Shows the rates until the user quits.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let node = options.target.open()?;
    let first = Snapshot::take(&node, true)?;
    if options.once || options.json || !std::io::stdout().is_terminal() {
        std::thread::sleep(options.interval);
        let shot = Snapshot::take(&node, true)?;
        let rates = Rates::between(&first, &shot);
        if options.json {
            println!("{}", serde_json::to_string_pretty(&Report { shot: &shot, rates: &rates })?);
        } else {
            print!("{}", table::plain(&rates, &options.filter));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut app = App::new(first);
    app.view.filter.clone_from(&options.filter);
    let mut terminal = ratatui::try_init().context("cannot use this terminal (use --once)")?;
    let ended = live(&mut terminal, &mut app, node, options);
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS)
}

fn live(terminal: &mut ratatui::DefaultTerminal, app: &mut App, node: Node, options: &Options) -> Result<()> {
    let mut node = Some(node);
    let mut due = Instant::now() + options.interval;
    while !app.is_over {
        terminal.draw(|frame| screen::draw(frame, app)).context("cannot draw")?;
        let left = due.saturating_duration_since(Instant::now());
        if event::poll(left).context("cannot read the terminal")? {
            match event::read().context("cannot read the terminal")? {
                Event::Key(pressed) if pressed.kind != KeyEventKind::Release => {
                    if let Some(key) = key(pressed.code, pressed.modifiers) {
                        app.press(key);
                    }
                }
                // Drawing takes the new size.
                _ => {}
            }
        }
        if Instant::now() >= due {
            due = Instant::now() + options.interval;
            if !app.is_paused {
                look(app, &mut node, options);
            }
        }
    }
    Ok(())
}

/// Takes a snapshot; connects again if the daemon was restarted.
fn look(app: &mut App, node: &mut Option<Node>, options: &Options) {
    if node.is_none() {
        match options.target.open() {
            Ok(opened) => *node = Some(opened),
            Err(error) => return app.update(Err(error.into())),
        }
    }
    let Some(open) = node else { return };
    let shot = Snapshot::take(open, true);
    if shot.is_err() {
        *node = None;
    }
    app.update(shot);
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Tab => Key::Tab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        _ => return None,
    })
}
