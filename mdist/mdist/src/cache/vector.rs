//! A cached vector: entries by index.

use super::Result;
use super::map::MAX_HINT;
use super::node::{Context, Node, Sets};
use super::table::Table;
use rssl::rwf::{DataType, Vector, VectorAction, VectorFlags, VectorWriter};
use rssl::wire::Writer;
use std::collections::BTreeMap;
use std::ops::Range;

/// One more than the largest index that the wire can carry.
const END: u32 = 1 << 30;

#[derive(Clone, Debug, Default)]
pub(super) struct VectorTable {
    container: DataType,
    sorting: bool,
    hinted: bool,
    summary: Option<Node>,
    /// The entries by index.
    rows: BTreeMap<u32, VectorRow>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct VectorRow {
    perm: Option<Box<[u8]>>,
    node: Node,
}

impl VectorTable {
    pub(super) fn apply(&mut self, vector: &Vector<'_>, cx: &mut Context<'_>) -> Result<()> {
        if vector.container != DataType::NO_DATA && vector.container != self.container {
            // Entries of different types cannot be mixed: start again.
            if self.container != DataType::NO_DATA {
                *self = Self::default();
            }
            self.container = vector.container;
        }
        self.sorting |= vector.flags.contains(VectorFlags::SORTING);
        self.hinted |= vector.hint.is_some();
        let sets = Sets::decode(vector.container, vector.sets)?;
        if let Some(summary) = vector.summary {
            self.summary.get_or_insert_default().apply(vector.container, summary, &sets, cx)?;
        }
        for entry in vector.entries() {
            let entry = entry?;
            match entry.action {
                VectorAction::Update => {}
                VectorAction::Set | VectorAction::Clear => drop(self.rows.remove(&entry.index)),
                VectorAction::Insert => self.shift(entry.index, 1),
                VectorAction::Delete => {
                    self.rows.remove(&entry.index);
                    self.shift(entry.index, -1);
                }
            }
            if !matches!(entry.action, VectorAction::Clear | VectorAction::Delete) {
                let row = self.rows.entry(entry.index).or_default();
                row.node.apply(vector.container, entry.data, &sets, cx)?;
                if let Some(perm) = entry.perm {
                    row.perm = Some(perm.into());
                }
            }
        }
        Ok(())
    }

    /// Shifts all entries from `index` on; one that would go beyond the largest index is dropped.
    fn shift(&mut self, index: u32, by: i32) {
        let moved = self.rows.split_off(&index);
        self.rows.extend(
            moved
                .into_iter()
                .filter_map(|(at, row)| Some((at.checked_add_signed(by).filter(|at| *at < END)?, row))),
        );
    }

    pub(super) fn entries(&self) -> usize {
        let inside = self.rows.values().map(|row| 1 + row.node.entries()).sum::<usize>();
        inside + self.summary.as_ref().map_or(0, Node::entries)
    }

    pub(super) fn bytes(&self) -> usize {
        let row = |row: &VectorRow| row.perm.as_deref().map_or(0, <[u8]>::len) + row.node.bytes();
        size_of::<Self>()
            + self.rows.values().map(|r| size_of::<(u32, VectorRow)>() + row(r)).sum::<usize>()
            + self.summary.as_ref().map_or(0, Node::bytes)
    }
}

impl Table for VectorTable {
    type Row<'t> = (u32, &'t VectorRow);

    fn summary(&self) -> Option<&Node> {
        self.summary.as_ref()
    }

    fn rows(&self) -> impl Iterator<Item = ((u32, &VectorRow), &Node, usize)> {
        self.rows.iter().map(|(at, row)| {
            ((*at, row), &row.node, 1 + 4 + 2 + row.perm.as_deref().map_or(0, <[u8]>::len) + 3)
        })
    }

    fn write(
        &self,
        w: &mut Writer<'_>,
        summary: Option<&[u8]>,
        rows: &[((u32, &VectorRow), Range<usize>)],
        body: &[u8],
    ) -> rssl::Result<()> {
        let mut vector = VectorWriter::new(w, self.container, self.sorting)?;
        if let Some(summary) = summary {
            vector.summary(|w| w.bytes(summary))?;
        }
        if self.hinted {
            vector.hint(self.rows.len().min(MAX_HINT) as u32)?;
        }
        for ((at, row), range) in rows {
            let data = body.get(range.clone()).unwrap_or_default();
            vector.entry(VectorAction::Set, *at, row.perm.as_deref(), |w| w.bytes(data))?;
        }
        vector.finish()
    }
}
