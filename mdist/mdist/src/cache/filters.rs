//! A cached filter list: entries by id.

use super::Result;
use super::node::{Context, Node, Sets};
use super::table::Table;
use rssl::rwf::{DataType, FilterAction, FilterList, FilterListWriter};
use rssl::wire::Writer;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Clone, Debug, Default)]
pub(super) struct Filters {
    container: DataType,
    hinted: bool,
    rows: BTreeMap<u8, FilterRow>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FilterRow {
    container: DataType,
    perm: Option<Box<[u8]>>,
    node: Node,
}

impl Filters {
    pub(super) fn apply(&mut self, list: &FilterList<'_>, cx: &mut Context<'_>) -> Result<()> {
        if list.container != DataType::NO_DATA || self.rows.is_empty() {
            self.container = list.container;
        }
        self.hinted |= list.hint.is_some();
        for entry in list.entries() {
            let entry = entry?;
            if entry.action == FilterAction::Clear {
                self.rows.remove(&entry.id);
                continue;
            }
            let row = self.rows.entry(entry.id).or_default();
            if entry.action == FilterAction::Set {
                *row = FilterRow::default();
            }
            row.container = entry.container;
            row.node.apply(entry.container, entry.data, &Sets::default(), cx)?;
            if let Some(perm) = entry.perm {
                row.perm = Some(perm.into());
            }
        }
        Ok(())
    }

    pub(super) fn entries(&self) -> usize {
        self.rows.values().map(|row| 1 + row.node.entries()).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        let row = |row: &FilterRow| row.perm.as_deref().map_or(0, <[u8]>::len) + row.node.bytes();
        size_of::<Self>() + self.rows.values().map(|r| size_of::<FilterRow>() + row(r)).sum::<usize>()
    }
}

impl Table for Filters {
    type Row<'t> = (u8, &'t FilterRow);

    fn summary(&self) -> Option<&Node> {
        None
    }

    fn rows(&self) -> impl Iterator<Item = ((u8, &FilterRow), &Node, usize)> {
        self.rows
            .iter()
            .map(|(id, row)| ((*id, row), &row.node, 3 + 2 + row.perm.as_deref().map_or(0, <[u8]>::len) + 3))
    }

    fn write(
        &self,
        w: &mut Writer<'_>,
        _: Option<&[u8]>,
        rows: &[((u8, &FilterRow), Range<usize>)],
        body: &[u8],
    ) -> rssl::Result<()> {
        let mut list = FilterListWriter::new(w, self.container)?;
        if self.hinted {
            list.hint(self.rows.len().min(255) as u8)?;
        }
        for ((id, row), range) in rows {
            let data = body.get(range.clone()).unwrap_or_default();
            list.entry_with(FilterAction::Set, *id, row.container, row.perm.as_deref(), |w| w.bytes(data))?;
        }
        list.finish()
    }
}
