//! The open items of one session, which are updated in turn.

use std::collections::HashMap;
use std::time::Duration;

use rssl::rwf::{DataType, Update, UpdateFlags};

use crate::message_set::{MessageSet, TIM_TRK_1};

/// One open stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenItem {
    pub(super) stream: i32,
    pub(super) seed: u32,
    /// Updates so far.
    pub(super) n: u32,
    /// Index of the message set.
    pub(super) set: u8,
}

/// All open items. An update touches one entry of a dense table, nothing else.
#[derive(Debug, Default)]
pub(super) struct Items {
    open: Vec<OpenItem>,
    places: HashMap<i32, u32>,
    names: Vec<Box<[u8]>>,
    cursor: usize,
}

impl Items {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn get(&self, stream: i32) -> Option<OpenItem> {
        self.open.get(*self.places.get(&stream)? as usize).copied()
    }

    pub(super) fn add(&mut self, item: OpenItem, name: &[u8]) {
        self.places.insert(item.stream, self.open.len() as u32);
        self.open.push(item);
        self.names.push(name.into());
    }

    pub(super) fn remove(&mut self, stream: i32) {
        let Some(place) = self.places.remove(&stream).map(|place| place as usize) else { return };
        self.open.swap_remove(place);
        self.names.swap_remove(place);
        if let Some(moved) = self.open.get(place) {
            self.places.insert(moved.stream, place as u32);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Updates until all items have the same number.
    pub(super) fn rest_of_round(&self) -> u64 {
        if self.cursor == 0 || self.cursor >= self.open.len() {
            0
        } else {
            (self.open.len() - self.cursor) as u64
        }
    }

    /// Name and number of updates so far of all items.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.names.iter().zip(&self.open).map(|(name, item)| (&**name, item.n))
    }

    /// Appends up to `count` updates of the items in turn to `out`, until it has `full` bytes; returns how many.
    pub(super) fn updates(&mut self, sets: &[MessageSet], count: u64, full: usize, out: &mut Vec<u8>) -> u64 {
        let mut left = count;
        if self.open.is_empty() {
            return 0;
        }
        while left > 0 && out.len() < full {
            let ahead = self.open.get_mut(self.cursor..).unwrap_or_default();
            let run = left.min(ahead.len() as u64) as usize;
            let mut done = 0;
            for item in ahead.iter_mut().take(run) {
                if out.len() >= full {
                    break;
                }
                done += 1;
                item.n = item.n.wrapping_add(1);
                let Some(set) = sets.get(usize::from(item.set)) else { continue };
                if let Some(template) = set.update(item.n) {
                    template.append(out, item.stream, item.seed, item.n, set.running);
                }
            }
            left -= done as u64;
            self.cursor += done;
            if self.cursor >= self.open.len() {
                self.cursor = 0;
            }
        }
        count - left
    }

    /// The update of the next item, with a stamp.
    pub(super) fn stamped_update(
        &mut self,
        sets: &[MessageSet],
        stamp: Duration,
        nanoseconds: bool,
    ) -> Option<Vec<u8>> {
        if self.cursor >= self.open.len() {
            self.cursor = 0;
        }
        let item = self.open.get_mut(self.cursor)?;
        let set = sets.get(usize::from(item.set))?;
        self.cursor += 1;
        item.n = item.n.wrapping_add(1);
        let stamp = if nanoseconds { stamp.as_nanos() } else { stamp.as_micros() };
        let body = set
            .update(item.n)?
            .body()
            .at(item.seed, item.n, set.sequence, set.running)
            .stamped(TIM_TRK_1, stamp as u64);
        let payload = body.encode().ok()?;
        let update = Update {
            flags: UpdateFlags::default(),
            kind: UPDATE_KIND,
            ..Update::new(set.domain, item.stream, body.container(), &payload)
        };
        update.to_vec().ok()
    }

    /// A post as an update of its stream.
    pub(super) fn posted(
        set: &MessageSet,
        stream: i32,
        user: rssl::rwf::PostUser,
        container: DataType,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let update = Update {
            kind: UPDATE_KIND,
            post_user: Some(user),
            ..Update::new(set.domain, stream, container, payload)
        };
        update.to_vec().ok()
    }
}

/// The kind of all updates: quote.
pub(super) const UPDATE_KIND: u8 = 1;
