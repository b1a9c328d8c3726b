//! A cached field list: one block of memory with a place of eight bytes for every field.
//!
//! ```text
//! place of a value of 0..=7 bytes:  length, value, zeros      (length and value are what the wire carries too)
//! place of a value that was longer: 255, 0, length u16, offset u32 of its room in the block
//! room: capacity u16, value, spare bytes
//! ```
//! A value that once was long stays in its room, also when it gets short again; one that outgrows its room gets a
//! larger one at the end, and the block is packed anew when the rooms left behind are half of it.

use super::layout::{Layout, Layouts};
use super::node::{Context, Node, Sets};
use super::types::ESCAPE;
use super::{Error, Result};
use rssl::rwf::{DataType, Field, FieldList, FieldListInfo, FieldListWriter, rmtes};
use rssl::wire::Writer;
use std::sync::Arc;

const PLACE: usize = 8;
/// First byte of the place of a value that lives in a room.
const ROOM: u8 = 255;
/// Longest value that its place holds itself, in bytes.
const SHORT: usize = 7;
/// Longest value of a field, in bytes.
const MAX_VALUE: usize = u16::MAX as usize;
/// Most bytes before the first field of an emitted list.
const HEAD: usize = 8;

/// The last value of every field of a list.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    layout: Arc<Layout>,
    block: Vec<u8>,
    /// Bytes of rooms that nobody lives in any more.
    left: u32,
    info: Option<FieldListInfo>,
}

/// What an update does to one field, worked out before the record is touched.
#[derive(Clone, Copy, Debug)]
struct Step {
    slot: u32,
    /// Length of a long value in the payload; 0 = `value` is the whole place.
    len: u32,
    /// The new place, or where a long value begins in the payload.
    value: u64,
}

/// Memory that is used again for every message.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    steps: Vec<Step>,
}

impl Fields {
    /// A list without fields.
    pub(super) fn new(layouts: &mut Layouts) -> Self {
        Self { layout: layouts.empty(), block: Vec::new(), left: 0, info: None }
    }

    /// Applies the fields of `list`, which was decoded from `payload`. On an error nothing has changed.
    pub(super) fn apply(&mut self, list: &FieldList<'_>, payload: &[u8], cx: &mut Context<'_>) -> Result<()> {
        if self.layout.has_containers() {
            return self.grow(list, cx);
        }
        let mut long = 0;
        cx.scratch.steps.clear();
        for field in list.entries() {
            let field = field?;
            let Some(slot) = self.layout.slot(field.id) else { return self.grow(list, cx) };
            let mut step = match field.data.len() {
                0..=SHORT => Step { slot: slot as u32, len: 0, value: place(field.data) },
                len => {
                    let at = (field.data.as_ptr() as usize).wrapping_sub(payload.as_ptr() as usize);
                    Step { slot: slot as u32, len: len as u32, value: at as u64 }
                }
            };
            if let Some(keep) = hint_bits(&field) {
                if step.len != 0 {
                    return self.grow(list, cx);
                }
                step.value &= !0xff00 | u64::from(keep) << 8;
            }
            if has_escape(step, field.data) && cx.types.edits(field.id, field.data) {
                return self.grow(list, cx);
            }
            long += step.len as usize;
            cx.scratch.steps.push(step);
        }
        if long != 0 && self.block.len() + long > cx.bytes {
            return Err(Error::Limit { what: "bytes", limit: cx.bytes });
        }
        for step in &cx.scratch.steps {
            let slot = step.slot as usize;
            if step.len == 0 {
                match self.block.get_mut(slot * PLACE..slot * PLACE + PLACE) {
                    Some(place) if place.first() != Some(&ROOM) => {
                        place.copy_from_slice(&step.value.to_le_bytes())
                    }
                    _ => {
                        let [len, value @ ..] = step.value.to_le_bytes();
                        self.put_long(slot, value.get(..usize::from(len)).unwrap_or_default());
                    }
                }
            } else {
                let at = step.value as usize;
                self.put_long(slot, payload.get(at..at + step.len as usize).unwrap_or_default());
            }
        }
        self.take_info(list);
        Ok(())
    }

    /// The careful way: fields that are new, and values that edit what is there. Works on a copy.
    #[cold]
    fn grow(&mut self, list: &FieldList<'_>, cx: &mut Context<'_>) -> Result<()> {
        let mut new = Vec::new();
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
        let mut next = if new.is_empty() { self.clone() } else { self.with_fields(new, long, cx) };
        for field in list.entries() {
            let field = field?;
            let Some(slot) = next.layout.slot(field.id) else { continue };
            if let Some(container) = cx.types.container(field.id) {
                let value = next.merged(slot, container, field.data, cx)?;
                next.put(slot, &value);
            } else if cx.types.edits(field.id, field.data) {
                let mut value = next.value(slot).to_vec();
                rmtes::apply_to_vec(&mut value, field.data, MAX_VALUE)?;
                next.put(slot, &value);
            } else if let (Some(keep), [hint, mantissa @ ..]) = (hint_bits(&field), field.data) {
                next.put(slot, &[&[hint & keep], mantissa].concat());
            } else {
                next.put(slot, field.data);
            }
        }
        if next.block.len() > cx.bytes {
            return Err(Error::Limit { what: "bytes", limit: cx.bytes });
        }
        next.take_info(list);
        *self = next;
        Ok(())
    }

    /// What a container in a field is after an update of it: entries may change singly there too.
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

    /// The same values in a layout that has some fields more; `long` bytes will be needed for rooms.
    fn with_fields(&self, new: Vec<i16>, long: usize, cx: &mut Context<'_>) -> Self {
        let mut ids = self.layout.ids().to_vec();
        if self.layout.ids().is_empty() {
            let mut seen = std::collections::HashSet::with_capacity(new.len());
            ids.extend(new.into_iter().filter(|id| seen.insert(*id)));
        } else {
            for id in new {
                // Only the new ones can be there twice, and they are few.
                if !ids.iter().skip(self.layout.ids().len()).any(|i| *i == id) {
                    ids.push(id);
                }
            }
        }
        let mut next =
            Self { layout: cx.layouts.of(&ids, cx.types), block: Vec::new(), left: 0, info: self.info };
        next.block.reserve_exact(ids.len() * PLACE + self.rooms() + long);
        next.block.resize(ids.len() * PLACE, 0);
        for slot in 0..self.layout.ids().len() {
            next.put(slot, self.value(slot));
        }
        next
    }

    fn rooms(&self) -> usize {
        self.block.len().saturating_sub(self.layout.ids().len() * PLACE)
    }

    fn take_info(&mut self, list: &FieldList<'_>) {
        if let Some(info) = list.info {
            self.info = Some(info);
        }
    }

    fn place(&self, slot: usize) -> [u8; PLACE] {
        self.block.get(slot * PLACE..slot * PLACE + PLACE).and_then(|p| p.try_into().ok()).unwrap_or_default()
    }

    /// The value in a slot; empty = blank.
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

    fn put(&mut self, slot: usize, value: &[u8]) {
        match self.block.get_mut(slot * PLACE..slot * PLACE + PLACE) {
            Some(at) if value.len() <= SHORT && at.first() != Some(&ROOM) => {
                at.copy_from_slice(&place(value).to_le_bytes());
            }
            _ => self.put_long(slot, value),
        }
    }

    /// Puts a value into the room of its field, or into a new one.
    #[cold]
    fn put_long(&mut self, slot: usize, value: &[u8]) {
        let [mark, _, _, _, place @ ..] = self.place(slot);
        let mut at = u32::from_le_bytes(place) as usize;
        let cap = if mark == ROOM { self.cap(at) } else { 0 };
        if mark != ROOM || cap < value.len() {
            if mark == ROOM {
                self.left += cap as u32 + 2;
            }
            // A value that grew once may grow again.
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
        if self.left as usize * 2 > self.block.len() {
            self.pack();
        }
    }

    fn cap(&self, at: usize) -> usize {
        let bytes = self.block.get(at..at + 2).and_then(|b| b.try_into().ok()).unwrap_or_default();
        usize::from(u16::from_le_bytes(bytes))
    }

    /// Writes the block anew without the rooms that were left.
    fn pack(&mut self) {
        let old = std::mem::take(&mut self.block);
        let live = old.len().saturating_sub(self.left as usize);
        let before = Self { layout: self.layout.clone(), block: old, left: 0, info: None };
        self.block.reserve_exact(live);
        self.block.resize(self.layout.ids().len() * PLACE, 0);
        self.left = 0;
        for slot in 0..self.layout.ids().len() {
            self.put(slot, before.value(slot));
        }
    }

    /// Appends the list as RWF writes it, with all fields that are cached. Spec: rssl.md §4.1.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let ids = self.layout.ids();
        let start = out.len();
        // Every field is copied as a whole place, so the last one needs some bytes of room behind it.
        out.resize(start + HEAD + ids.len() * (2 + PLACE + 3) + self.rooms(), 0);
        let to = out.get_mut(start..).unwrap_or_default();
        let mut at = self.emit_head(&mut Writer::new(to)).unwrap_or(0);
        let (places, _) = self.block.as_chunks::<PLACE>();
        for (id, place) in ids.iter().zip(places) {
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

    /// Writes what is before the fields; how many bytes that is.
    fn emit_head(&self, w: &mut Writer<'_>) -> rssl::Result<usize> {
        match self.info {
            Some(info) => FieldListWriter::with_info(w, info)?.finish()?,
            None => FieldListWriter::new(w)?.finish()?,
        }
        // At most 65,535: every id but 0.
        w.set_u16(w.len() - 2, self.layout.ids().len() as u16)?;
        Ok(w.len())
    }

    /// Memory of this list in bytes, without its shared layout.
    pub(super) fn bytes(&self) -> usize {
        self.block.capacity()
    }
}

/// The bits of the first byte that a plain value has, if the field comes from a set whose REAL has its length in the
/// others. Spec: rssl.md §3.1.
#[inline]
fn hint_bits(field: &Field<'_>) -> Option<u8> {
    matches!(field.set_type, DataType::REAL_4RB | DataType::REAL_8RB).then_some(0x3f)
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

/// Whether a value has the byte that begins commands of edits.
#[inline]
fn has_escape(step: Step, value: &[u8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    if step.len != 0 {
        return value.contains(&ESCAPE);
    }
    // A byte of `other` is zero where the place has an escape; the usual test for a zero byte in a word.
    let other = step.value ^ (EACH * ESCAPE as u64);
    other.wrapping_sub(EACH) & !other & (EACH << 7) != 0
}

/// Capacity of a new room for a value of this length: with its two bytes of header a multiple of eight.
fn room_for(len: usize) -> usize {
    ((len + 2).next_multiple_of(8) - 2).min(usize::from(u16::MAX))
}
