//! One item: what its messages say about it, and its image.

use super::node::{Context, Node, Sets, check};
use super::{Cache, Error, Limits, Result};
use rssl::rwf::{
    Class, DataState, DataType, Key, Message, OwnedState, Qos, Refresh, RefreshFlags, Status, StatusFlags,
    StreamState, Update, UpdateFlags,
};
use rssl::wire::Writer;

/// The last values of one item. Empty until its first refresh. What an update needs of it is one line of the
/// processor's cache, and what that points to.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub struct Record {
    pub(super) body: Node,
    /// What seldom changes.
    pub(super) about: Option<Box<About>>,
    seq: u32,
    /// `seq` is one.
    numbered: bool,
    pub(super) complete: bool,
}

/// What a refresh says beside its payload.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// Bytes and entries of an image of several entries that came since they were measured.
    taken: usize,
    counted: usize,
    pub(super) state: OwnedState,
    pub(super) group: Box<[u8]>,
    pub(super) perm: Option<Box<[u8]>>,
    pub(super) qos: Option<Qos>,
    /// Content of the key as it came.
    pub(super) key: Option<Box<[u8]>>,
    pub(super) ext: Option<Box<[u8]>>,
}

impl Record {
    /// Whether the whole image is there: all parts of a refresh came, and it may be given out.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Sequence number of the last message that had one.
    #[must_use]
    pub fn seq(&self) -> Option<u32> {
        self.numbered.then_some(self.seq)
    }

    fn set_seq(&mut self, seq: Option<u32>) {
        if let Some(seq) = seq {
            (self.seq, self.numbered) = (seq, true);
        }
    }

    /// Reads one byte, so that the processor fetches the record meanwhile; then [`Record::touch_values`] does not wait.
    #[inline]
    #[must_use]
    pub fn touch(&self) -> usize {
        usize::from(self.complete)
    }

    /// Reads what an update will most likely change, so that the processor fetches it meanwhile.
    #[inline]
    #[must_use]
    pub fn touch_values(&self) -> usize {
        match &self.body {
            Node::Fields(fields) => fields.touch(),
            _ => 0,
        }
    }

    /// State of the item; `None` before the first refresh.
    #[must_use]
    pub fn state(&self) -> Option<&OwnedState> {
        self.about.as_deref().map(|a| &a.state)
    }

    /// Says what the state of the item is now: stale, or good again. The image stays.
    pub fn set_state(&mut self, state: OwnedState) {
        self.about.get_or_insert_default().state = state;
    }

    /// The item group; empty if there is none.
    #[must_use]
    pub fn group(&self) -> &[u8] {
        self.about.as_deref().map_or(&[], |a| &a.group)
    }

    /// Puts the item into another group (a group status said so).
    pub fn set_group(&mut self, group: &[u8]) {
        self.about.get_or_insert_default().group = group.into();
    }

    /// Permission data of the item.
    #[must_use]
    pub fn perm(&self) -> Option<&[u8]> {
        self.about.as_deref().and_then(|a| a.perm.as_deref())
    }

    /// Quality of service that the source gives.
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

    /// Forgets everything: the next refresh starts from nothing.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Memory of this record in bytes, without what it shares with others; nested tables are estimated.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.body.bytes()
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

impl Cache {
    /// Applies any message of an item: refreshes, updates and statuses; others change nothing.
    ///
    /// # Errors
    /// See [`super::Error`].
    #[inline]
    pub fn message(&mut self, record: &mut Record, message: &[u8]) -> Result<()> {
        // The header of nearly all updates: nine bytes, no flags. Spec: rssl.md §2.4.
        if let &[0, 9, class, _, _, _, _, _, 0, container, _kind, ref payload @ ..] = message
            && class == Class::Update as u8
            && let Some(container) = DataType::from_container_byte(container)
        {
            return self.payload(record, container, payload);
        }
        self.any_message(record, message)
    }

    fn any_message(&mut self, record: &mut Record, message: &[u8]) -> Result<()> {
        match Message::decode(message)? {
            Message::Refresh(refresh) => self.refresh(record, &refresh),
            Message::Update(update) => self.update(record, &update),
            Message::Status(status) => self.status(record, &status),
            _ => Ok(()),
        }
    }

    /// Applies a refresh or a part of one. With CLEAR_CACHE what was there is forgotten, so the first part of several
    /// begins a new image; it is complete with the part that says so. DO_NOT_CACHE leaves a record without an image.
    ///
    /// # Errors
    /// See [`super::Error`].
    pub fn refresh(&mut self, record: &mut Record, refresh: &Refresh<'_>) -> Result<()> {
        if refresh.flags.contains(RefreshFlags::DO_NOT_CACHE) {
            record.empty();
        } else if refresh.flags.contains(RefreshFlags::CLEAR_CACHE) || !record.body.takes(refresh.container) {
            let mut new = Record::default();
            self.payload(&mut new, refresh.container, refresh.payload)?;
            record.body = new.body;
            let (taken, counted) = new.about.as_deref().map_or((0, 0), |a| (a.taken, a.counted));
            let about = record.about.get_or_insert_default();
            (about.taken, about.counted) = (taken, counted);
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

    /// Applies an update. One with DO_NOT_CACHE changes nothing.
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
            record.empty();
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

    /// Applies a bare payload as an update does: the content of a post.
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
        // One field list applies as a whole or not at all, and counts its own bytes.
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
        record.make_room(payload.len(), entries, limits)?;
        let applied = record.body.apply(container, payload, &Sets::default(), &mut cx);
        if applied.is_err() {
            // Only a value that outgrew what the wire can carry, deep inside: half of the payload is applied.
            record.empty();
        }
        applied
    }
}

impl Record {
    /// Forgets the image, and nothing else.
    fn empty(&mut self) {
        self.body = Node::Nothing;
        self.complete = false;
        if let Some(about) = self.about.as_deref_mut() {
            (about.taken, about.counted) = (0, 0);
        }
    }

    /// Counts what is to come against the limits. What came is an upper bound of what is kept, so what is kept is
    /// measured only when the bound is reached.
    fn make_room(&mut self, bytes: usize, entries: usize, limits: Limits) -> Result<()> {
        let about = self.about.get_or_insert_default();
        if about.taken + bytes > limits.bytes || about.counted + entries > limits.entries {
            about.taken = self.body.bytes();
            about.counted = self.body.entries();
        }
        if about.taken + bytes > limits.bytes {
            return Err(Error::Limit { what: "bytes", limit: limits.bytes });
        }
        if about.counted + entries > limits.entries {
            return Err(Error::Limit { what: "entries", limit: limits.entries });
        }
        about.taken += bytes;
        about.counted += entries;
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
