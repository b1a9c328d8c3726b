//! The screen of `top`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::app::App;
use super::table::{Tab, rows};
use crate::operate::finding::Level;
use crate::operate::text::duration;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, app, head);
    draw_tabs(frame, app, tabs);
    draw_table(frame, app, body);
    draw_foot(frame, app, foot);
}

fn draw_head(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let shot = &app.shot;
    let up = shot.links.iter().filter(|link| link.up).count();
    let mut first = format!("utipc top  node {} {}", shot.node.address, shot.node.identity);
    let mut second = format!("links {up}/{} up", shot.links.len());
    if let Some(daemon) = &shot.daemon {
        first.push_str(&format!("  up {}", duration(shot.time.saturating_sub(daemon.started))));
        second.push_str(&format!(
            "  programs {}  sockets {}  lanes {}  longest turn {:.1} ms",
            daemon.processes,
            daemon.sockets,
            daemon.lanes,
            daemon.longest_turn_us as f64 / 1000.0
        ));
    }
    let waiting = app.rates.sockets.iter().filter(|socket| socket.waits_for.is_some()).count();
    let third = match (&app.failed, app.findings.iter().max_by_key(|found| found.level)) {
        (Some(why), _) => Line::from(format!("the node does not answer: {why}")).red().bold(),
        (None, Some(found)) if found.level > Level::Note => {
            Line::from(format!("{} {}: {}", found.level.mark().trim(), found.check, found.text)).red().bold()
        }
        _ if waiting > 0 => Line::from(format!("{waiting} sockets wait to send")).yellow(),
        _ => Line::from("nothing is wrong").green(),
    };
    frame.render_widget(Paragraph::new(vec![Line::from(first).bold(), Line::from(second), third]), area);
}

fn draw_tabs(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let mut spans = Vec::new();
    for (number, tab) in (1..).zip(Tab::ALL) {
        let text = format!(" {number} {} ", tab.name());
        spans.push(if tab == app.view.tab { Span::from(text).reversed() } else { Span::from(text) });
    }
    if app.is_paused {
        spans.push(Span::from("  paused").yellow());
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn draw_table(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let columns = app.view.tab.columns();
    let lines = rows(&app.rates, &app.view);
    app.visible = usize::from(area.height.saturating_sub(1)).max(1);
    app.offset = app.offset.min(lines.len().saturating_sub(1));
    let title = |(index, (title, _)): (usize, &(&'static str, u16))| {
        let mark = match app.view.sort {
            Some(column) if column == index => {
                if app.view.reverse {
                    "^"
                } else {
                    "v"
                }
            }
            _ => "",
        };
        Cell::from(format!("{title}{mark}"))
    };
    let header = Row::new(columns.iter().enumerate().map(title))
        .style(Style::new().add_modifier(Modifier::UNDERLINED));
    let last = columns.len().saturating_sub(1);
    let widths = columns.iter().enumerate().map(|(index, (_, width))| {
        if index == last { Constraint::Min(*width) } else { Constraint::Length(*width) }
    });
    let body = lines.iter().skip(app.offset).take(app.visible).map(|row| {
        let cells = Row::new(row.texts().map(|text| Cell::from(text.to_owned())));
        if row.is_marked { cells.yellow() } else { cells }
    });
    let table = Table::new(body, widths).header(header).column_spacing(1);
    frame.render_stateful_widget(table, area, &mut TableState::default());
}

fn draw_foot(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let line = if app.is_typing {
        Line::from(format!("filter: {}_", app.view.filter)).bold()
    } else if app.view.filter.is_empty() {
        Line::from("q quit  Tab table  s sort  r reverse  / filter  space pause  arrows scroll").dim()
    } else {
        Line::from(format!("filter: {}  (Esc clears it)", app.view.filter))
    };
    frame.render_widget(Paragraph::new(line), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::operate::finding::Finding;
    use crate::operate::snapshot::{Daemon, Link, OwnNode, Snapshot, Socket};
    use crate::operate::top::app::Key;

    fn shot(time: u64, messages: u64) -> Snapshot {
        let socket = |port: u32| Socket {
            port,
            kind: "RDM",
            pid: 4000 + port,
            program: format!("feed{port}"),
            sent: messages * u64::from(port),
            lane_sent_bytes: messages * 1024,
            waits_for: (port == 3).then(|| "congested link to 1001002".to_owned()),
            ..Socket::default()
        };
        Snapshot {
            time,
            node: OwnNode { address: "1001001".to_owned(), identity: "alpha".to_owned(), cluster: 4711 },
            daemon: Some(Daemon {
                release: env!("CARGO_PKG_VERSION").to_owned(),
                processes: 9,
                sockets: 40,
                lanes: 12,
                ..Daemon::default()
            }),
            sockets: (1..=40).map(socket).collect(),
            links: vec![Link { name: "alpha:U-beta:U".to_owned(), up: true, ..Link::default() }],
            ..Snapshot::default()
        }
    }

    /// The screen as text.
    fn drawn(app: &mut App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        let buffer = terminal.backend().buffer();
        (0..height)
            .map(|y| {
                let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
                line.trim_end().to_owned()
            })
            .collect()
    }

    fn app() -> App {
        let mut app = App::new(shot(1000, 0));
        app.update(Ok(shot(2000, 100)));
        app
    }

    #[test]
    fn screen_fits_80_columns_and_24_lines() {
        let mut app = app();
        let lines = drawn(&mut app, 80, 24);
        let text = lines.join("\n");
        assert!(lines[0].starts_with("utipc top  node 1001001 alpha"), "{text}");
        assert!(lines[1].contains("links 1/1 up  programs 9  sockets 40  lanes 12"), "{text}");
        assert_eq!(lines[2], "1 sockets wait to send", "{text}");
        assert_eq!(
            lines[4], "Program            Port       Kind      Sent/s Recv/s Node B/s Lane B/s Waits",
            "{text}"
        );
        assert!(lines[5].starts_with("feed40 4040        40         RDM       4.0 k  0"), "{text}");
        assert!(lines[23].starts_with("q quit"), "{text}");
        for (width, height) in [(40, 10), (20, 5), (1, 1), (200, 60)] {
            drawn(&mut app, width, height);
        }
    }

    #[test]
    fn keys_change_table_order_filter_and_place() {
        let mut app = app();
        app.press(Key::Char('/'));
        for letter in "feed3".chars() {
            app.press(Key::Char(letter));
        }
        assert!(drawn(&mut app, 80, 24)[23].starts_with("filter: feed3_"));
        app.press(Key::Enter);
        let lines = drawn(&mut app, 80, 24);
        assert!(lines[5].starts_with("feed39") && lines[15].starts_with("feed3 ") && lines[16].is_empty());
        assert!(lines[15].ends_with("congeste"), "cut at the edge: {:?}", lines[15]);
        app.press(Key::Escape);
        app.press(Key::PageDown);
        assert!(drawn(&mut app, 80, 24)[5].starts_with("feed22"));
        app.press(Key::Home);
        app.press(Key::Char('s'));
        app.press(Key::Char('r'));
        let lines = drawn(&mut app, 80, 24);
        assert!(lines[4].starts_with("Program^") && lines[5].starts_with("feed9"), "{lines:?}");
        app.press(Key::Tab);
        app.press(Key::Char('3'));
        assert!(drawn(&mut app, 80, 24)[5].starts_with("alpha:U-beta:U"));
        app.press(Key::Char(' '));
        assert!(drawn(&mut app, 80, 24)[3].contains("paused"));
        assert!(!app.is_over);
        app.press(Key::Char('q'));
        assert!(app.is_over);
    }

    #[test]
    fn what_is_wrong_is_in_the_head() {
        let mut app = app();
        app.findings = vec![Finding::new("duplicate-address", Level::Error, "two nodes", "change one")];
        assert_eq!(drawn(&mut app, 80, 24)[2], "ERROR duplicate-address: two nodes");
        app.update(Err(anyhow::anyhow!("gone")));
        assert_eq!(drawn(&mut app, 80, 24)[2], "the node does not answer: gone");
    }
}
