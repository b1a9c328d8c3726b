//! A cached field list: one block of memory with a place of eight bytes for each field, most changed fields first (see
//! `Layout`).
//!
//! ```text
//! place of a value of 0..=7 bytes:  length, value, zeros      (length and value as on the wire)
//! place of a value that was longer: 255, 0, length u16, offset u32 of its room in the block
//! room: capacity u16, value, spare bytes
//! ```
//! A value that once was long stays in its room even when it gets short. A value that outgrows its room gets a larger
//! one at the end; when abandoned rooms are half of the block, it is compacted.

use super::layout::{Layout, Layouts};
use super::node::{Context, Node, Sets};
use super::types::ESCAPE;
use super::{Error, Result};
use rssl::rwf::{DataType, Field, FieldList, FieldListInfo, FieldListWriter, FieldSets, rmtes};
use rssl::wire::Writer;
use std::collections::HashSet;
use std::sync::Arc;

const PLACE: usize = 8;
/// Size of a cache line in bytes.
const LINE: usize = 64;
/// First byte of the place of a value that is in a room.
const ROOM: u8 = 255;
/// Longest value that fits its place, in bytes.
const SHORT: usize = 7;
/// Flags of a list of fields with their ids and nothing else. Spec: rssl.md §4.1.
const STANDARD: u8 = 0x08;
/// Longest value of a field, in bytes.
const MAX_VALUE: usize = u16::MAX as usize;
/// Maximum number of bytes before the first field of an emitted list.
const HEAD: usize = 8;

/// The last values of a list's fields.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    layout: Arc<Layout>,
    block: Vec<u8>,
    /// Bytes of abandoned rooms.
    abandoned: u32,
    info: Option<FieldListInfo>,
}

/// The change of one field by an update, prepared before the record is touched.
#[derive(Clone, Copy, Debug)]
struct FieldPlan {
    id: i16,
    slot: u16,
    /// Length of a long value in the payload plus one; 0: `value` is the whole place.
    len: u32,
    /// Length of the field's last value, if that was short.
    short: u8,
    /// Bytes of the whole field, if its value has the length `short`.
    size: u16,
    /// The bytes of the loaded word that belong to a value of that length.
    mask: u64,
    /// The new place, or the offset of a long value in the payload.
    value: u64,
}

/// A plan of no field: no field has the id 0.
const NO_PLAN: FieldPlan = FieldPlan { id: 0, slot: 0, len: 0, short: 0, size: 3, mask: 0xff, value: 0 };

/// Memory that is reused for each message.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The plans. Those of earlier lists stay, so that a list with the same fields in the same order finds
    /// their slots here.
    plans: Vec<FieldPlan>,
    /// Number of the layout that the plans belong to.
    layout: u64,
    /// Number of plans of the present list.
    count: usize,
    ids: Vec<i16>,
}

impl Fields {
    /// Creates a list without fields.
    pub(super) fn new(layouts: &mut Layouts) -> Self {
        Self { layout: layouts.empty(), block: Vec::new(), abandoned: 0, info: None }
    }

    /// Applies a field list.
    ///
    /// # Errors
    /// The list is malformed, switches dictionaries, or outgrows the limit; nothing has changed.
    #[inline]
    pub(super) fn apply(
        &mut self,
        payload: &[u8],
        sets: Option<&FieldSets<'_>>,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        if let Some(next) = self.layout.next() {
            let next = next.clone();
            *self = self.moved(next);
        }
        if self.prepare(payload, cx.scratch, cx.bytes).is_some() {
            self.apply_plans(payload, cx.scratch);
            if self.layout.learns() {
                let plans = cx.scratch.plans.iter().take(cx.scratch.count);
                cx.layouts.learn(&self.layout, plans.map(|plan| plan.slot));
            }
            return Ok(());
        }
        self.apply_general(payload, sets, cx)
    }

    /// Prefetches the places that updates change, by reading them.
    #[inline]
    pub(super) fn touch(&self) -> usize {
        let hot = self.block.get(..self.layout.hot() * PLACE).unwrap_or_default();
        // Read the last byte, and one byte of each cache line before it.
        let (mut at, mut seen) = (0, hot.last().copied().unwrap_or_default());
        while let Some(byte) = hot.get(at) {
            seen ^= byte;
            at += LINE;
        }
        usize::from(seen)
    }

    /// Prepares the plans for a list that only replaces values of known fields, as nearly all updates do. It does not
    /// touch the record's own memory, which is seldom in the processor's cache. `None`: the list does something else or
    /// is malformed; [`Fields::apply_general`] decides.
    #[inline]
    fn prepare(&self, payload: &[u8], scratch: &mut Scratch, bytes: usize) -> Option<()> {
        let &[STANDARD, high, low, ..] = payload else { return None };
        let count = usize::from(u16::from_be_bytes([high, low]));
        if scratch.plans.len() < count {
            scratch.plans.resize(count, NO_PLAN);
        }
        scratch.count = count;
        if scratch.layout != self.layout.number() {
            scratch.plans.fill(NO_PLAN);
            scratch.layout = self.layout.number();
        }
        let (mut at, mut escapes, mut long) = (3, 0, 0);
        for plan in scratch.plans.get_mut(..count)? {
            // One load takes the length and all of a short value, which are the bytes of its place.
            let (id, word) = match payload.get(at..).and_then(<[u8]>::first_chunk::<10>) {
                Some(&[a, b, ref word @ ..]) => (i16::from_be_bytes([a, b]), u64::from_le_bytes(*word)),
                None => last_field(payload, at)?,
            };
            // Same field and length as last time: the next field's offset does not depend on a load, so that the
            // processor can read ahead.
            if plan.id == id && plan.short == word as u8 && plan.len == 0 && id != 0 {
                plan.value = word & plan.mask;
                escapes |= escaped(plan.value);
                at += usize::from(plan.size);
                continue;
            }
            if plan.id != id || id == 0 {
                // At most 65,534: see `Layout`.
                plan.slot = self.layout.slot(id)? as u16;
                plan.id = id;
            }
            let len = (word & 0xff) as usize;
            if len <= SHORT {
                let mask = u64::MAX >> ((SHORT - len) * 8);
                let value = word & mask;
                escapes |= escaped(value);
                (plan.len, plan.value) = (0, value);
                (plan.short, plan.size, plan.mask) = (len as u8, 3 + len as u16, mask);
                at += 3 + len;
            } else {
                let head = if len < 0xfe { 3 } else { 5 };
                let len = if len < 0xfe {
                    len
                } else {
                    (word >> 8 & 0xff) as usize * 256 + (word >> 16 & 0xff) as usize
                };
                let from = at + head;
                at = from + len;
                if payload.get(from..at)?.contains(&ESCAPE) {
                    return None;
                }
                long += len;
                (plan.len, plan.value) = (len as u32 + 1, from as u64);
            }
        }
        // An escape may begin an edit of a text, which depends on the types.
        let is_general = at > payload.len()
            || escapes != 0
            || self.layout.has_containers()
            || long != 0 && self.block.len() + long > bytes;
        (!is_general).then_some(())
    }

    /// Carries out the prepared plans.
    #[inline]
    fn apply_plans(&mut self, payload: &[u8], scratch: &Scratch) {
        for plan in scratch.plans.iter().take(scratch.count) {
            let slot = usize::from(plan.slot);
            match self.block.get_mut(slot * PLACE..slot * PLACE + PLACE) {
                Some(place) if plan.len == 0 && place.first() != Some(&ROOM) => {
                    place.copy_from_slice(&plan.value.to_le_bytes());
                }
                _ if plan.len == 0 => {
                    let [len, value @ ..] = plan.value.to_le_bytes();
                    self.put_long(slot, value.get(..usize::from(len)).unwrap_or_default());
                }
                _ => {
                    let (at, len) = (plan.value as usize, plan.len as usize - 1);
                    self.put_long(slot, payload.get(at..at + len).unwrap_or_default());
                }
            }
        }
    }

    /// Applies any list to a copy of the record: new fields, values that edit the old ones, set-encoded lists.
    #[cold]
    fn apply_general(
        &mut self,
        payload: &[u8],
        sets: Option<&FieldSets<'_>>,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        let list = FieldList::decode(payload, sets)?;
        let mut new = std::mem::take(&mut cx.scratch.ids);
        new.clear();
        let mut long = 0;
        for field in list.entries() {
            let field = field?;
            if field.id == 0 {
                return Err(Error::DictionarySwitch);
            }
            if self.layout.slot(field.id).is_none() {
                new.push(field.id);
                long += if field.data.len() > SHORT { room_for(field.data.len()) + 2 } else { 0 };
            }
        }
        let mut next = if new.is_empty() { self.clone() } else { self.with_fields(&new, long, cx) };
        cx.scratch.ids = new;
        if next.prepare(payload, cx.scratch, usize::MAX).is_some() {
            next.apply_plans(payload, cx.scratch);
        } else {
            for field in list.entries() {
                next.put_field(&field?, cx)?;
            }
        }
        if next.block.len() > cx.bytes {
            return Err(Error::Limit { what: "bytes", limit: cx.bytes });
        }
        next.info = list.info.or(self.info);
        *self = next;
        Ok(())
    }

    /// Applies a value of any kind to a known field.
    fn put_field(&mut self, field: &Field<'_>, cx: &mut Context<'_>) -> Result<()> {
        let Some(slot) = self.layout.slot(field.id) else { return Ok(()) };
        if let Some(container) = cx.types.container(field.id) {
            let value = self.merged(slot, container, field.data, cx)?;
            self.put(slot, &value);
        } else if cx.types.edits(field.id, field.data) {
            let mut value = self.value(slot).to_vec();
            rmtes::apply_to_vec(&mut value, field.data, MAX_VALUE)?;
            self.put(slot, &value);
        } else if let (DataType::REAL_4RB | DataType::REAL_8RB, [hint, mantissa @ ..]) =
            (field.set_type, field.data)
        {
            // In a set the two top bits of the hint are the length; in a plain value they are zero. Spec: rssl.md §3.1.
            self.put(slot, &[&[hint & 0x3f], mantissa].concat());
        } else {
            self.put(slot, field.data);
        }
        Ok(())
    }

    /// The value of a container in a field after an update, which may change single entries.
    fn merged(
        &self,
        slot: usize,
        container: DataType,
        update: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Vec<u8>> {
        let sets = Sets::default();
        let mut node = Node::from(container, self.value(slot), &sets, cx)?;
        node.apply(container, update, &sets, cx)?;
        let mut value = Vec::new();
        node.emit(&mut value)?;
        if value.len() > MAX_VALUE {
            return Err(Error::Limit { what: "bytes in one field", limit: MAX_VALUE });
        }
        Ok(value)
    }

    /// Copies the values to a layout with additional fields, which need `long` bytes of rooms.
    fn with_fields(&self, new: &[i16], long: usize, cx: &mut Context<'_>) -> Self {
        let old = self.layout.ids();
        // The last layout has each id once; if it equals these ids, they have no duplicates.
        let layout = cx.layouts.last_of(new).filter(|_| old.is_empty()).unwrap_or_else(|| {
            let mut seen = HashSet::with_capacity(new.len());
            let mut ids = old.to_vec();
            ids.extend(new.iter().filter(|id| seen.insert(**id)));
            cx.layouts.of(&ids, cx.types)
        });
        let mut next = Self { layout, block: Vec::new(), abandoned: 0, info: self.info };
        let places = next.layout.ids().len() * PLACE;
        next.block.reserve_exact(places + self.rooms() + long);
        next.block.resize(places, 0);
        // The old fields are the first of the new ones.
        next.take_over(self);
        next
    }

    /// Copies the values to another layout of the same fields.
    #[cold]
    fn moved(&self, layout: Arc<Layout>) -> Self {
        let mut next = Self { layout, block: Vec::new(), abandoned: 0, info: self.info };
        next.block.reserve_exact(self.block.len().saturating_sub(self.abandoned as usize));
        next.block.resize(next.layout.ids().len() * PLACE, 0);
        next.take_over(self);
        next
    }

    /// Copies the values of another list, whose fields are the first ones of this list.
    fn take_over(&mut self, from: &Self) {
        let layout = self.layout.clone();
        for ((_, to), (_, slot)) in layout.places().zip(from.layout.places()) {
            self.put(to, from.value(slot));
        }
    }

    /// Bytes of all rooms.
    fn rooms(&self) -> usize {
        self.block.len().saturating_sub(self.layout.ids().len() * PLACE)
    }

    fn place(&self, slot: usize) -> [u8; PLACE] {
        self.block.get(slot * PLACE..slot * PLACE + PLACE).and_then(|p| p.try_into().ok()).unwrap_or_default()
    }

    /// The value in a slot; empty: blank.
    fn value(&self, slot: usize) -> &[u8] {
        match self.place(slot) {
            [ROOM, _, a, b, c, d, e, f] => {
                let at = u32::from_le_bytes([c, d, e, f]) as usize + 2;
                self.block.get(at..at + usize::from(u16::from_le_bytes([a, b]))).unwrap_or_default()
            }
            [len, ..] => {
                let at = slot * PLACE + 1;
                self.block.get(at..at + usize::from(len)).unwrap_or_default()
            }
        }
    }

    /// Stores a value.
    fn put(&mut self, slot: usize, value: &[u8]) {
        match self.block.get_mut(slot * PLACE..slot * PLACE + PLACE) {
            Some(at) if value.len() <= SHORT && at.first() != Some(&ROOM) => {
                at.copy_from_slice(&place(value).to_le_bytes());
            }
            _ => self.put_long(slot, value),
        }
    }

    /// Stores a value in the room of its field, or in a new one.
    #[cold]
    fn put_long(&mut self, slot: usize, value: &[u8]) {
        let [mark, _, _, _, place @ ..] = self.place(slot);
        let mut at = u32::from_le_bytes(place) as usize;
        let cap = if mark == ROOM { self.cap(at) } else { 0 };
        if mark != ROOM || cap < value.len() {
            if mark == ROOM {
                self.abandoned += cap as u32 + 2;
            }
            // A value that grew may grow again.
            let cap = room_for(if mark == ROOM { value.len() + value.len() / 4 } else { value.len() });
            at = self.block.len();
            self.block.reserve_exact(cap + 2);
            self.block.extend_from_slice(&(cap as u16).to_le_bytes());
            self.block.resize(at + 2 + cap, 0);
        }
        if let Some(room) = self.block.get_mut(at + 2..at + 2 + value.len()) {
            room.copy_from_slice(value);
        }
        let [a, b] = (value.len() as u16).to_le_bytes();
        let [c, d, e, f] = (at as u32).to_le_bytes();
        if let Some(p) = self.block.get_mut(slot * PLACE..slot * PLACE + PLACE) {
            p.copy_from_slice(&[ROOM, 0, a, b, c, d, e, f]);
        }
        if self.abandoned as usize * 2 > self.block.len() {
            self.compact();
        }
    }

    /// Capacity of the room at this offset.
    fn cap(&self, at: usize) -> usize {
        let bytes = self.block.get(at..at + 2).and_then(|b| b.try_into().ok()).unwrap_or_default();
        usize::from(u16::from_le_bytes(bytes))
    }

    /// Rewrites the block without the abandoned rooms.
    fn compact(&mut self) {
        let old = std::mem::take(&mut self.block);
        let live = old.len().saturating_sub(self.abandoned as usize);
        let before = Self { layout: self.layout.clone(), block: old, abandoned: 0, info: None };
        self.block.reserve_exact(live);
        self.block.resize(self.layout.ids().len() * PLACE, 0);
        self.abandoned = 0;
        for slot in 0..self.layout.ids().len() {
            self.put(slot, before.value(slot));
        }
    }

    /// Appends the list as an RWF payload with all cached fields. Spec: rssl.md §4.1.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        // Each field is copied as a whole place, so the last one needs some bytes of space behind it.
        out.resize(start + HEAD + self.layout.ids().len() * (2 + PLACE + 3) + self.rooms(), 0);
        let to = out.get_mut(start..).unwrap_or_default();
        let mut at = self.emit_head(&mut Writer::new(to)).unwrap_or(0);
        let (places, _) = self.block.as_chunks::<PLACE>();
        for (id, slot) in self.layout.places() {
            let Some(place) = places.get(slot) else { break };
            let Some(([a, b], rest)) = to.get_mut(at..).and_then(|t| t.split_first_chunk_mut::<2>()) else {
                break;
            };
            [*a, *b] = id.to_be_bytes();
            if let [ROOM, _, l0, l1, room @ ..] = place {
                let (len, from) = (u16::from_le_bytes([*l0, *l1]), u32::from_le_bytes(*room) as usize + 2);
                let value = self.block.get(from..from + usize::from(len)).unwrap_or_default();
                let [hi, lo] = len.to_be_bytes();
                let head: &[u8] = if len < 0xfe { &[lo] } else { &[0xfe, hi, lo] };
                if let Some(t) = rest.get_mut(..head.len()) {
                    t.copy_from_slice(head);
                }
                if let Some(t) = rest.get_mut(head.len()..head.len() + value.len()) {
                    t.copy_from_slice(value);
                }
                at += 2 + head.len() + value.len();
            } else {
                if let Some(t) = rest.first_chunk_mut::<PLACE>() {
                    *t = *place;
                }
                let [len, ..] = place;
                at += 3 + usize::from(*len);
            }
        }
        out.truncate(start + at);
    }

    /// Writes the header before the fields; returns its length.
    fn emit_head(&self, w: &mut Writer<'_>) -> rssl::Result<usize> {
        match self.info {
            Some(info) => FieldListWriter::with_info(w, info)?.finish()?,
            None => FieldListWriter::new(w)?.finish()?,
        }
        // At most 65,535: all ids but 0.
        w.set_u16(w.len() - 2, self.layout.ids().len() as u16)?;
        Ok(w.len())
    }

    /// Memory of this list in bytes, without its shared layout.
    pub(super) fn bytes(&self) -> usize {
        self.block.capacity()
    }
}

/// The place of a short value: its length, its bytes, zeros.
#[inline]
fn place(value: &[u8]) -> u64 {
    let wide = |b: &[u8]| -> u64 {
        match *b {
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            _ => 0,
        }
    };
    let bytes = match *value {
        [] => 0,
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        // Two loads that may overlap: no loop over the bytes.
        _ => {
            let tail = value.len() - 4;
            wide(value.get(..4).unwrap_or_default())
                | wide(value.get(tail..).unwrap_or_default()) << (tail * 8)
        }
    };
    bytes << 8 | value.len() as u64
}

/// Not 0 if a place contains [`ESCAPE`].
#[inline]
fn escaped(place: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // A byte of `other` is zero where the place has an escape; then the usual test for a zero byte in a word.
    let other = place ^ (EACH * ESCAPE as u64);
    other.wrapping_sub(EACH) & !other & (EACH << 7)
}

/// Loads a field near the end of a list, where fewer bytes than a whole place are left. `None`: there is no field, or
/// the payload is too short.
#[inline]
fn last_field(payload: &[u8], at: usize) -> Option<(i16, u64)> {
    let [a, b] = *payload.get(at..)?.first_chunk::<2>()?;
    let left = payload.len().checked_sub(at + 2).filter(|left| (1..8).contains(left))?;
    // The last eight bytes, without those before the value.
    let word = u64::from_le_bytes(*payload.last_chunk::<8>()?);
    Some((i16::from_be_bytes([a, b]), word >> ((8 - left) * 8)))
}

/// Capacity of a new room for a value of this length: a multiple of eight with its header of two bytes.
fn room_for(len: usize) -> usize {
    ((len + 2).next_multiple_of(8) - 2).min(usize::from(u16::MAX))
}
