//! The record of one item: its image, and the other content of its messages.

use super::node::{Context, Node, Sets, check};
use super::{Cache, Error, Limits, Result};
use rssl::rwf::{
    Class, DataState, DataType, Key, Message, OwnedState, Qos, Refresh, RefreshFlags, Status, StatusFlags,
    StreamState, Update, UpdateFlags,
};
use rssl::wire::Writer;

/// The last values of one item. Empty until its first refresh. It fits one cache line, so that an update touches this
/// line and what it points to.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub struct Record {
    pub(super) body: Node,
    /// The parts that seldom change.
    pub(super) about: Option<Box<About>>,
    seq: u32,
    /// Whether `seq` is valid.
    numbered: bool,
    pub(super) complete: bool,
}

/// The content of a refresh without its payload.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// Upper bound of the image's bytes: measured, plus those received since.
    bytes_bound: usize,
    /// Upper bound of the image's entries: measured, plus those received since.
    entries_bound: usize,
    /// Bytes of the values when they were last measured; not of a field list, whose bytes are known.
    measured: usize,
    /// Estimate of the bytes that were added since.
    added: usize,
    pub(super) state: OwnedState,
    pub(super) group: Box<[u8]>,
    pub(super) perm: Option<Box<[u8]>>,
    pub(super) qos: Option<Qos>,
    /// The encoded key as received.
    pub(super) key: Option<Box<[u8]>>,
    pub(super) ext: Option<Box<[u8]>>,
}

/// Estimate of the memory that an entry of a table takes besides the bytes of its value.
const ENTRY: usize = 128;
/// Estimated bytes that may be added before the values are measured, in addition to half of their last measure.
const UNMEASURED: usize = 4096;

impl Record {
    /// Whether the image is complete: all parts of a refresh came.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The sequence number of the last message that had one.
    #[must_use]
    pub fn seq(&self) -> Option<u32> {
        self.numbered.then_some(self.seq)
    }

    fn set_seq(&mut self, seq: Option<u32>) {
        if let Some(seq) = seq {
            (self.seq, self.numbered) = (seq, true);
        }
    }

    /// Prefetches the record, by a read of one byte; then [`Record::touch_values`] does not wait.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> usize {
        usize::from(self.complete)
    }

    /// Prefetches the values that an update will most likely change.
    #[inline]
    #[must_use]
    pub fn touch_values(&self) -> usize {
        match &self.body {
            Node::Fields(fields) => fields.touch(),
            _ => 0,
        }
    }

    /// The state of the item; `None` before the first refresh.
    #[must_use]
    pub fn state(&self) -> Option<&OwnedState> {
        self.about.as_deref().map(|a| &a.state)
    }

    /// Sets the state of the item: stale, or good again. The image stays.
    pub fn set_state(&mut self, state: OwnedState) {
        self.about.get_or_insert_default().state = state;
    }

    /// The item group; empty if there is none.
    #[must_use]
    pub fn group(&self) -> &[u8] {
        self.about.as_deref().map_or(&[], |a| &a.group)
    }

    /// Moves the item to another group, after a group status.
    pub fn set_group(&mut self, group: &[u8]) {
        self.about.get_or_insert_default().group = group.into();
    }

    /// The permission data of the item.
    #[must_use]
    pub fn perm(&self) -> Option<&[u8]> {
        self.about.as_deref().and_then(|a| a.perm.as_deref())
    }

    /// The quality of service of the source.
    #[must_use]
    pub fn qos(&self) -> Option<Qos> {
        self.about.as_deref().and_then(|a| a.qos)
    }

    /// The key of the last refresh that had one, as the source wrote it.
    #[must_use]
    pub fn key(&self) -> Option<Key<'_>> {
        self.about.as_deref().and_then(|a| a.key.as_deref()).and_then(|k| Key::decode(k).ok())
    }

    /// The container type of the image.
    #[must_use]
    pub fn container(&self) -> DataType {
        self.body.container()
    }

    /// Clears the record: the next refresh starts from nothing.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Memory of this record in bytes, without shared layouts; nested tables are estimated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.bytes() + self.other_bytes()
    }

    /// As [`Record::bytes`], without a walk through the entries of tables, whose bytes are estimated between two
    /// measurements.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.value_bytes() + self.other_bytes()
    }

    /// The part of [`Record::footprint`] that an update without permission data can change.
    #[inline]
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        match &self.body {
            Node::Fields(fields) => fields.bytes(),
            Node::Nothing => 0,
            Node::Whole(_, value) => value.len(),
            _ => self.about.as_deref().map_or(0, |about| about.measured + about.added),
        }
    }

    fn other_bytes(&self) -> usize {
        size_of::<Self>()
            + self.about.as_deref().map_or(0, |a| {
                let len = |b: &Option<Box<[u8]>>| b.as_deref().map_or(0, <[u8]>::len);
                size_of::<About>()
                    + a.state.text.len()
                    + a.group.len()
                    + len(&a.perm)
                    + len(&a.key)
                    + len(&a.ext)
            })
    }
}

/// The container and payload of a plain update: nine bytes of header, no flags. Nearly all updates are of this form.
/// Spec: rssl.md §2.4.
#[inline]
fn plain_update(message: &[u8]) -> Option<(DataType, &[u8])> {
    match message {
        &[0, 9, class, _, _, _, _, _, 0, container, _kind, ref payload @ ..]
            if class == Class::Update as u8 =>
        {
            Some((DataType::from_container_byte(container)?, payload))
        }
        _ => None,
    }
}

/// Whether a message can change no more than the [`Record::value_bytes`] of a record with an image.
#[inline]
#[must_use]
pub fn is_plain_update(message: &[u8]) -> bool {
    plain_update(message).is_some()
}

impl Cache {
    /// Applies a message of an item: a refresh, update or status. Other messages have no effect.
    ///
    /// # Errors
    /// See [`super::Error`].
    #[inline]
    pub fn message(&mut self, record: &mut Record, message: &[u8]) -> Result<()> {
        match plain_update(message) {
            Some((container, payload)) => self.payload(record, container, payload),
            None => self.any_message(record, message),
        }
    }

    fn any_message(&mut self, record: &mut Record, message: &[u8]) -> Result<()> {
        match Message::decode(message)? {
            Message::Refresh(refresh) => self.refresh(record, &refresh),
            Message::Update(update) => self.update(record, &update),
            Message::Status(status) => self.status(record, &status),
            _ => Ok(()),
        }
    }

    /// Applies a refresh or a part of one. CLEAR_CACHE, on the first of several parts, begins a new image; COMPLETE
    /// ends it. DO_NOT_CACHE leaves the record without an image.
    ///
    /// # Errors
    /// See [`super::Error`].
    pub fn refresh(&mut self, record: &mut Record, refresh: &Refresh<'_>) -> Result<()> {
        if refresh.flags.contains(RefreshFlags::DO_NOT_CACHE) {
            record.drop_image();
        } else if refresh.flags.contains(RefreshFlags::CLEAR_CACHE) || !record.body.takes(refresh.container) {
            let mut new = Record::default();
            self.payload(&mut new, refresh.container, refresh.payload)?;
            record.body = new.body;
            let new = new.about.unwrap_or_default();
            let about = record.about.get_or_insert_default();
            (about.bytes_bound, about.entries_bound) = (new.bytes_bound, new.entries_bound);
            (about.measured, about.added) = (new.measured, new.added);
            record.complete = refresh.flags.contains(RefreshFlags::COMPLETE);
        } else {
            self.payload(record, refresh.container, refresh.payload)?;
            record.complete |= refresh.flags.contains(RefreshFlags::COMPLETE);
        }
        record.set_seq(refresh.seq);
        let about = record.about.get_or_insert_default();
        about.state = refresh.state.to_owned();
        replace(&mut about.group, refresh.group);
        if let Some(perm) = refresh.perm {
            about.perm = Some(perm.into());
        }
        about.qos = refresh.qos.or(about.qos);
        if let Some(key) = &refresh.key {
            about.key = Some(encoded(key)?);
        }
        if let Some(ext) = refresh.ext {
            about.ext = Some(ext.into());
        }
        Ok(())
    }

    /// Applies an update. One with DO_NOT_CACHE has no effect.
    ///
    /// # Errors
    /// See [`super::Error`].
    #[inline]
    pub fn update(&mut self, record: &mut Record, update: &Update<'_>) -> Result<()> {
        if update.flags.contains(UpdateFlags::DO_NOT_CACHE) {
            return Ok(());
        }
        self.payload(record, update.container, update.payload)?;
        record.set_seq(update.seq);
        if let Some(perm) = update.perm {
            record.about.get_or_insert_default().perm = Some(perm.into());
        }
        Ok(())
    }

    /// Applies a status: state, group and permission data; CLEAR_CACHE empties the image.
    ///
    /// # Errors
    /// See [`super::Error`]: a status may carry a payload.
    pub fn status(&mut self, record: &mut Record, status: &Status<'_>) -> Result<()> {
        if status.flags.contains(StatusFlags::CLEAR_CACHE) {
            record.drop_image();
        }
        if status.container != DataType::NO_DATA {
            self.payload(record, status.container, status.payload)?;
        }
        let about = record.about.get_or_insert_default();
        if let Some(state) = &status.state {
            let unchanged = about.state.data;
            about.state = state.to_owned();
            if state.data == DataState::NoChange {
                about.state.data = unchanged;
            }
            if state.stream == StreamState::Unspecified {
                about.state.stream = StreamState::Open;
            }
        }
        if let Some(group) = status.group {
            replace(&mut about.group, group);
        }
        if let Some(perm) = status.perm {
            about.perm = Some(perm.into());
        }
        Ok(())
    }

    /// Applies a payload without a message, such as the content of a post, as an update does.
    ///
    /// # Errors
    /// See [`super::Error`].
    #[inline]
    pub fn payload(&mut self, record: &mut Record, container: DataType, payload: &[u8]) -> Result<()> {
        let mut cx = Context {
            layouts: &mut self.layouts,
            types: &self.types,
            scratch: &mut self.scratch,
            bytes: self.limits.bytes,
        };
        // A field list is applied whole or not at all, and checks its own size.
        if container == DataType::FIELD_LIST {
            match &mut record.body {
                Node::Fields(fields) => return fields.apply(payload, None, &mut cx),
                Node::Nothing => {
                    record.body = Node::from(container, payload, &Sets::default(), &mut cx)?;
                    return Ok(());
                }
                _ => {}
            }
        }
        if !record.body.takes(container) {
            return Err(Error::Container { have: record.body.container(), got: container });
        }
        let entries = check(container, payload, &Sets::default(), cx.types, 0)?;
        let limits = self.limits;
        record.reserve(payload.len(), entries, limits)?;
        let applied = record.body.apply(container, payload, &Sets::default(), &mut cx);
        match applied {
            Ok(()) => record.measure_if_grown(),
            // A nested value outgrew what the wire can carry: half of the payload is applied.
            Err(_) => record.drop_image(),
        }
        applied
    }
}

impl Record {
    /// Drops the image and keeps the rest.
    fn drop_image(&mut self) {
        self.body = Node::Nothing;
        self.complete = false;
        if let Some(about) = self.about.as_deref_mut() {
            (about.bytes_bound, about.entries_bound) = (0, 0);
            (about.measured, about.added) = (0, 0);
        }
    }

    /// Measures the values if much was added since the last time. The cost for each added byte does not depend on the
    /// size of the record.
    fn measure_if_grown(&mut self) {
        if let Some(about) = self.about.as_deref_mut()
            && about.added > about.measured / 2 + UNMEASURED
        {
            (about.measured, about.added) = (self.body.bytes(), 0);
        }
    }

    /// Checks the limits for a payload that is to be applied. The sum of all payloads is an upper bound of the image,
    /// so the image is measured only when the bound reaches a limit.
    fn reserve(&mut self, bytes: usize, entries: usize, limits: Limits) -> Result<()> {
        let about = self.about.get_or_insert_default();
        if about.bytes_bound + bytes > limits.bytes || about.entries_bound + entries > limits.entries {
            about.bytes_bound = self.body.bytes();
            about.entries_bound = self.body.entries();
        }
        if about.bytes_bound + bytes > limits.bytes {
            return Err(Error::Limit { what: "bytes", limit: limits.bytes });
        }
        if about.entries_bound + entries > limits.entries {
            return Err(Error::Limit { what: "entries", limit: limits.entries });
        }
        about.bytes_bound += bytes;
        about.entries_bound += entries;
        about.added += bytes + entries * ENTRY;
        Ok(())
    }
}

fn encoded(key: &Key<'_>) -> rssl::Result<Box<[u8]>> {
    let mut bytes = vec![0; key.encoded_len()];
    key.encode(&mut Writer::new(&mut bytes))?;
    Ok(bytes.into())
}

fn replace(bytes: &mut Box<[u8]>, by: &[u8]) {
    if **bytes != *by {
        *bytes = by.into();
    }
}
