//! A cached series: entries in order; later parts and updates append entries.

use super::Result;
use super::map::MAX_HINT;
use super::node::{Context, Node, Sets};
use super::table::Table;
use rssl::rwf::{DataType, Series, SeriesWriter};
use rssl::wire::Writer;
use std::ops::Range;

#[derive(Clone, Debug, Default)]
pub(super) struct SeriesTable {
    container: DataType,
    hinted: bool,
    summary: Option<Node>,
    rows: Vec<Node>,
}

impl SeriesTable {
    pub(super) fn apply(&mut self, series: &Series<'_>, cx: &mut Context<'_>) -> Result<()> {
        if series.container != DataType::NO_DATA && series.container != self.container {
            // Entries of different types cannot be mixed: start again.
            if self.container != DataType::NO_DATA {
                *self = Self::default();
            }
            self.container = series.container;
        }
        self.hinted |= series.hint.is_some();
        let sets = Sets::decode(series.container, series.sets)?;
        if let Some(summary) = series.summary {
            self.summary.get_or_insert_default().apply(series.container, summary, &sets, cx)?;
        }
        for entry in series.entries() {
            self.rows.push(Node::from(series.container, entry?, &sets, cx)?);
        }
        Ok(())
    }

    pub(super) fn entries(&self) -> usize {
        let inside = self.rows.iter().map(|node| 1 + node.entries()).sum::<usize>();
        inside + self.summary.as_ref().map_or(0, Node::entries)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.rows.capacity() * size_of::<Node>()
            + self.rows.iter().map(Node::bytes).sum::<usize>()
            + self.summary.as_ref().map_or(0, Node::bytes)
    }
}

impl Table for SeriesTable {
    type Row<'t> = ();

    fn summary(&self) -> Option<&Node> {
        self.summary.as_ref()
    }

    fn rows(&self) -> impl Iterator<Item = ((), &Node, usize)> {
        self.rows.iter().map(|node| ((), node, 3))
    }

    fn write(
        &self,
        w: &mut Writer<'_>,
        summary: Option<&[u8]>,
        rows: &[((), Range<usize>)],
        body: &[u8],
    ) -> rssl::Result<()> {
        let mut series = SeriesWriter::new(w, self.container)?;
        if let Some(summary) = summary {
            series.summary(|w| w.bytes(summary))?;
        }
        if self.hinted {
            series.hint(self.rows.len().min(MAX_HINT) as u32)?;
        }
        for ((), range) in rows {
            series.entry(|w| w.bytes(body.get(range.clone()).unwrap_or_default()))?;
        }
        series.finish()
    }
}
