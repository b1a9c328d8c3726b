//! Containers of entries, emitted in parts.

use super::Result;
use super::node::Node;
use rssl::limits::MAX_BUF15;
use rssl::wire::Writer;
use std::ops::Range;

/// Maximum number of entries of one part; the count has two bytes.
const MAX_ROWS: usize = 65_535;
/// Bytes before the first entry, without the summary: flags, types, key field, lengths, hint, count.
const HEAD: usize = 32;

/// A container of entries.
pub(super) trait Table {
    /// An entry, as [`Table::write`] needs it.
    type Row<'t>
    where
        Self: 't;

    /// The summary data, which only the first part has.
    fn summary(&self) -> Option<&Node>;

    /// All entries in order, each with its content and an upper bound of its other bytes.
    fn rows(&self) -> impl Iterator<Item = (Self::Row<'_>, &Node, usize)>;

    /// Writes a container of these entries. The content of each is a range of `body`.
    fn write(
        &self,
        w: &mut Writer<'_>,
        summary: Option<&[u8]>,
        rows: &[(Self::Row<'_>, Range<usize>)],
        body: &[u8],
    ) -> rssl::Result<()>;
}

/// Calls `f` with each part of a table, of at most `max` bytes unless a single entry is longer, and whether it is the
/// last. An empty table is one part.
pub(super) fn split<T: Table>(table: &T, max: usize, mut f: impl FnMut(&[u8], bool)) -> Result<()> {
    let mut summary = Vec::new();
    if let Some(node) = table.summary() {
        node.emit(&mut summary)?;
        if summary.len() > MAX_BUF15 {
            return Err(rssl::Error::TooLong { what: "summary", len: summary.len(), max: MAX_BUF15 }.into());
        }
    }
    let mut summary = table.summary().is_some().then_some(summary);
    let (mut out, mut body, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let mut need = HEAD + summary.as_ref().map_or(0, Vec::len);
    let mut part = |summary: Option<Vec<u8>>, rows: &[_], body: &[u8], need: usize, last: bool| {
        out.clear();
        out.resize(need, 0);
        let mut w = Writer::new(&mut out);
        table.write(&mut w, summary.as_deref(), rows, body)?;
        f(w.written(), last);
        Result::Ok(())
    };
    for (row, node, beside) in table.rows() {
        let from = body.len();
        node.emit(&mut body)?;
        let more = beside + body.len() - from;
        if !rows.is_empty() && (need + more > max || rows.len() == MAX_ROWS) {
            part(summary.take(), &rows, &body, need, false)?;
            rows.clear();
            body.drain(..from);
            need = HEAD;
        }
        let from = body.len() - (more - beside);
        need += more;
        rows.push((row, from..body.len()));
    }
    part(summary.take(), &rows, &body, need, true)
}

/// Appends a table as one payload.
///
/// # Errors
/// It has more entries than one part can have.
pub(super) fn emit_whole<T: Table>(table: &T, out: &mut Vec<u8>) -> Result<()> {
    let mut whole = true;
    split(table, usize::MAX, |payload, last| {
        whole &= last;
        out.extend_from_slice(payload);
    })?;
    if whole {
        Ok(())
    } else {
        Err(rssl::Error::TooLong { what: "nested container", len: MAX_ROWS + 1, max: MAX_ROWS }.into())
    }
}
