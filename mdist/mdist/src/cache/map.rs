//! A cached map: entries by key, in the order in which they were added.

use super::Result;
use super::node::{Context, Node, Sets};
use super::table::Table;
use rssl::rwf::{DataType, Map, MapAction, MapWriter};
use rssl::wire::Writer;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The table is compacted when it has more removed entries than this, and more removed than other entries.
const COMPACT_ABOVE: usize = 32;
/// A hint above this takes three bytes, which some encoders get wrong. Spec: rssl.md §11.
pub(super) const MAX_HINT: usize = 16_383;

#[derive(Clone, Debug, Default)]
pub(super) struct MapTable {
    key_type: DataType,
    container: DataType,
    key_field: Option<i16>,
    /// Whether the publisher sends count hints, so that images have one too.
    hinted: bool,
    summary: Option<Node>,
    index: HashMap<Arc<[u8]>, usize>,
    /// The entries by position. Removed ones are `None`, so that the others keep their positions.
    rows: Vec<Option<MapRow>>,
}

#[derive(Clone, Debug)]
pub(super) struct MapRow {
    key: Arc<[u8]>,
    perm: Option<Box<[u8]>>,
    node: Node,
}

impl MapTable {
    pub(super) fn apply(&mut self, map: &Map<'_>, cx: &mut Context<'_>) -> Result<()> {
        if map.container != DataType::NO_DATA && map.container != self.container {
            // Entries of different types cannot be mixed: start again.
            let changes = self.container != DataType::NO_DATA;
            if changes {
                *self = Self::default();
            }
            self.container = map.container;
        }
        self.key_type = map.key_type;
        self.key_field = map.key_field.or(self.key_field);
        self.hinted |= map.hint.is_some();
        let sets = Sets::decode(map.container, map.sets)?;
        if let Some(summary) = map.summary {
            self.summary.get_or_insert_default().apply(map.container, summary, &sets, cx)?;
        }
        for entry in map.entries() {
            let entry = entry?;
            if entry.action == MapAction::Delete {
                self.remove(entry.key);
                continue;
            }
            let row = match self.index.get(entry.key).and_then(|at| self.rows.get_mut(*at)) {
                Some(Some(row)) => {
                    if entry.action == MapAction::Add {
                        row.node = Node::Nothing;
                        row.perm = None;
                    }
                    row
                }
                _ => {
                    // An update of an entry that was never added adds it.
                    let key: Arc<[u8]> = entry.key.into();
                    self.index.insert(key.clone(), self.rows.len());
                    self.rows.push(None);
                    let Some(place) = self.rows.last_mut() else { continue };
                    place.insert(MapRow { key, perm: None, node: Node::Nothing })
                }
            };
            row.node.apply(map.container, entry.data, &sets, cx)?;
            if let Some(perm) = entry.perm {
                row.perm = Some(perm.into());
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) {
        let Some(at) = self.index.remove(key) else { return };
        if let Some(place) = self.rows.get_mut(at) {
            *place = None;
        }
        if self.rows.len() - self.index.len() > self.index.len().max(COMPACT_ABOVE) {
            self.rows.retain(Option::is_some);
            for (at, row) in self.rows.iter().flatten().enumerate() {
                if let Some(place) = self.index.get_mut(&row.key) {
                    *place = at;
                }
            }
        }
    }

    pub(super) fn entries(&self) -> usize {
        let inside = self.rows.iter().flatten().map(|row| row.node.entries()).sum::<usize>();
        self.index.len() + inside + self.summary.as_ref().map_or(0, Node::entries)
    }

    pub(super) fn bytes(&self) -> usize {
        let row =
            |row: &MapRow| row.key.len() + 16 + row.perm.as_deref().map_or(0, <[u8]>::len) + row.node.bytes();
        size_of::<Self>()
            + self.rows.capacity() * size_of::<Option<MapRow>>()
            + self.index.capacity() * (size_of::<(Arc<[u8]>, usize)>() + 1)
            + self.rows.iter().flatten().map(row).sum::<usize>()
            + self.summary.as_ref().map_or(0, Node::bytes)
    }
}

impl Table for MapTable {
    type Row<'t> = &'t MapRow;

    fn summary(&self) -> Option<&Node> {
        self.summary.as_ref()
    }

    fn rows(&self) -> impl Iterator<Item = (&MapRow, &Node, usize)> {
        self.rows.iter().flatten().map(|row| {
            (row, &row.node, 1 + 2 + row.key.len() + 2 + row.perm.as_deref().map_or(0, <[u8]>::len) + 3)
        })
    }

    fn write(
        &self,
        w: &mut Writer<'_>,
        summary: Option<&[u8]>,
        rows: &[(&MapRow, Range<usize>)],
        body: &[u8],
    ) -> rssl::Result<()> {
        let mut map = MapWriter::new(w, self.key_type, self.container)?;
        if let Some(id) = self.key_field {
            map.key_field(id)?;
        }
        if let Some(summary) = summary {
            map.summary(|w| w.bytes(summary))?;
        }
        if self.hinted {
            map.hint(self.index.len().min(MAX_HINT) as u32)?;
        }
        for (row, range) in rows {
            let data = body.get(range.clone()).unwrap_or_default();
            map.entry_with(MapAction::Add, row.perm.as_deref(), &row.key, |w| w.bytes(data))?;
        }
        map.finish()
    }
}
