//! The tables of `top`: columns, rows, order and filter.

use std::cmp::Ordering;

use super::rates::{LinkRate, Rates, ServiceRate, SocketRate};
use crate::operate::text::{bytes, short};

/// A table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Sockets,
    Services,
    Links,
}

impl Tab {
    pub(super) const ALL: [Self; 3] = [Self::Sockets, Self::Services, Self::Links];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sockets => "Sockets",
            Self::Services => "Services",
            Self::Links => "Links",
        }
    }

    /// Titles and widths of the columns. The last column takes the remaining width.
    pub(super) const fn columns(self) -> &'static [(&'static str, u16)] {
        match self {
            Self::Sockets => &[
                ("Program", 18),
                ("Port", 10),
                ("Kind", 9),
                ("Sent/s", 6),
                ("Recv/s", 6),
                ("Node B/s", 8),
                ("Lane B/s", 8),
                ("Waits", 8),
            ],
            Self::Services => &[
                ("Service", 10),
                ("Bindings", 8),
                ("Nodes", 6),
                ("Local", 6),
                ("Sent/s", 7),
                ("Recv/s", 7),
                ("Node B/s", 9),
                ("Lane B/s", 9),
                ("Unread", 8),
            ],
            Self::Links => &[
                ("Link", 28),
                ("State", 5),
                ("Sent/s", 7),
                ("Recv/s", 7),
                ("Resent/s", 8),
                ("Congest/s", 9),
                ("Queue", 6),
            ],
        }
    }
}

/// A cell: its text, and the number by which it sorts, if any.
#[derive(Clone, Debug, PartialEq)]
struct Cell(String, Option<f64>);

fn words(text: impl Into<String>) -> Cell {
    Cell(text.into(), None)
}

fn rate(value: f64) -> Cell {
    Cell(short(value.round() as u64), Some(value))
}

fn size(value: f64) -> Cell {
    Cell(bytes(value.round() as u64), Some(value))
}

fn number(value: u64) -> Cell {
    Cell(value.to_string(), Some(value as f64))
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    cells: Vec<Cell>,
    /// Something waits or is down.
    pub(super) is_marked: bool,
}

impl Row {
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().map(|cell| cell.0.as_str())
    }

    fn matches(&self, filter: &str) -> bool {
        filter.is_empty() || self.texts().any(|text| text.to_lowercase().contains(filter))
    }
}

/// How a table is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) tab: Tab,
    /// The column of the order; by default what is busiest comes first.
    pub(super) sort: Option<usize>,
    pub(super) reverse: bool,
    pub(super) filter: String,
}

/// The rows of a table, filtered and in order.
pub(super) fn rows(rates: &Rates, view: &View) -> Vec<Row> {
    let mut rows: Vec<(f64, Row)> = match view.tab {
        Tab::Sockets => rates.sockets.iter().map(|s| (busy(s), socket(s))).collect(),
        Tab::Services => {
            rates.services.iter().map(|s| (s.bytes + s.lane_bytes + s.received, service(s))).collect()
        }
        Tab::Links => rates.links.iter().map(|l| (l.sent + l.received, link(l))).collect(),
    };
    let filter = view.filter.to_lowercase();
    rows.retain(|(_, row)| row.matches(&filter));
    rows.sort_by(|(a, one), (b, other)| match view.sort {
        None => b.total_cmp(a),
        Some(column) => by_column(one, other, column),
    });
    if view.reverse {
        rows.reverse();
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Numbers descend, texts ascend.
fn by_column(one: &Row, other: &Row, column: usize) -> Ordering {
    match (one.cells.get(column), other.cells.get(column)) {
        (Some(Cell(_, Some(a))), Some(Cell(_, Some(b)))) => b.total_cmp(a),
        (Some(Cell(a, _)), Some(Cell(b, _))) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

fn busy(socket: &SocketRate) -> f64 {
    // A message costs about as much as 100 bytes.
    socket.bytes + socket.lane_bytes + 100.0 * (socket.sent + socket.received)
}

fn socket(s: &SocketRate) -> Row {
    let owner = if s.pid == 0 { "(node)".to_owned() } else { format!("{} {}", s.program, s.pid) };
    let waits = s.waits_for.clone().unwrap_or_else(|| {
        if s.unread_bytes > 0 { format!("reader: {} unread", bytes(s.unread_bytes)) } else { String::new() }
    });
    Row {
        cells: vec![
            words(owner),
            number(s.port.into()),
            words(s.kind),
            rate(s.sent),
            rate(s.received),
            size(s.bytes),
            size(s.lane_bytes),
            words(waits),
        ],
        is_marked: s.waits_for.is_some(),
    }
}

fn service(s: &ServiceRate) -> Row {
    Row {
        cells: vec![
            number(s.service.into()),
            number(s.bindings as u64),
            number(s.nodes as u64),
            number(s.local as u64),
            rate(s.sent),
            rate(s.received),
            size(s.bytes),
            size(s.lane_bytes),
            size(s.unread_bytes as f64),
        ],
        is_marked: false,
    }
}

fn link(l: &LinkRate) -> Row {
    Row {
        cells: vec![
            words(&*l.name),
            words(if l.up { "up" } else { "DOWN" }),
            rate(l.sent),
            rate(l.received),
            rate(l.retransmitted),
            rate(l.congestions),
            number(l.max_queue.into()),
        ],
        is_marked: !l.up || l.congestions > 0.0,
    }
}

/// The tables as text, for scripts and for terminals that are none.
pub(super) fn plain(rates: &Rates, filter: &str) -> String {
    let mut out = String::new();
    for tab in Tab::ALL {
        let view = View { tab, filter: filter.to_owned(), ..View::default() };
        let columns = tab.columns();
        let lines = rows(rates, &view);
        out.push_str(&format!("{} ({})\n", tab.name(), lines.len()));
        line(&mut out, columns.iter().map(|(title, width)| (*title, *width)));
        for row in &lines {
            line(&mut out, row.texts().zip(columns).map(|(text, (_, width))| (text, *width)));
        }
        out.push('\n');
    }
    out
}

fn line<'a>(out: &mut String, cells: impl Iterator<Item = (&'a str, u16)>) {
    let mut text = String::new();
    for (cell, width) in cells {
        text.push_str(&format!("{cell:<width$} ", width = usize::from(width)));
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> Rates {
        let socket = |port, program: &str, sent, unread_bytes| SocketRate {
            port,
            kind: "RDM",
            pid: 1,
            program: program.to_owned(),
            sent,
            unread_bytes,
            ..SocketRate::default()
        };
        Rates {
            sockets: vec![
                socket(1, "quiet", 0.0, 0),
                socket(2, "busy", 5000.0, 0),
                socket(3, "full", 9.0, 4096),
            ],
            links: vec![LinkRate { name: "a-b".to_owned(), ..LinkRate::default() }],
            ..Rates::default()
        }
    }

    fn first_cells(view: &View) -> Vec<String> {
        rows(&rates(), view).iter().map(|row| row.texts().next().unwrap().to_owned()).collect()
    }

    #[test]
    fn busiest_comes_first_and_columns_order_rows() {
        assert_eq!(first_cells(&View::default()), ["busy 1", "full 1", "quiet 1"]);
        let by_port = View { sort: Some(1), ..View::default() };
        assert_eq!(first_cells(&by_port), ["full 1", "busy 1", "quiet 1"]);
        let reverse = View { reverse: true, ..by_port };
        assert_eq!(first_cells(&reverse), ["quiet 1", "busy 1", "full 1"]);
        let by_name = View { sort: Some(0), filter: "U".to_owned(), ..View::default() };
        assert_eq!(first_cells(&by_name), ["busy 1", "full 1", "quiet 1"]);
        assert_eq!(first_cells(&View { filter: "full".to_owned(), ..View::default() }), ["full 1"]);
        assert!(
            rows(&rates(), &View { tab: Tab::Links, ..View::default() })[0].is_marked,
            "a link that is down"
        );
        let text = plain(&rates(), "");
        assert!(text.contains("reader: 4.0 KiB unread") && text.contains("Links (1)"), "{text}");
    }
}
