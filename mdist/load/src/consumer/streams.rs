//! The item streams of one mount: a dense table by stream id.

use std::time::Duration;

use anyhow::Result;
use rssl::rwf::{
    DataState, DataType, FieldList, Generic, GenericFlags, Map, Post, PostFlags, Refresh, RefreshFlags,
    State, StreamState, Update,
};
use rssl::wire::to_vec;

use super::{Counts, OutgoingKind, Shared};
use crate::items::Item;
use crate::message_set::{Image, MessageSet, TIM_TRK_2, TIM_TRK_3};
use crate::values::SEQUENCE_BASE;

/// Stream id of the first item; the others follow.
pub(super) const FIRST_ITEM: i32 = 5;

/// State of an item stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    NotRequested,
    Requested,
    Open,
    Suspect,
    /// The snapshot was delivered.
    Delivered,
    /// To be requested again.
    ToReopen,
    Closed,
}

impl Phase {
    /// The phase of a stream after it got `state`.
    fn after(state: &State<'_>, snapshot: bool) -> Self {
        match (state.stream, state.data) {
            (StreamState::ClosedRecover, _) => Self::ToReopen,
            (StreamState::Closed | StreamState::Redirected, _) => Self::Closed,
            (StreamState::NonStreaming, DataState::Ok) if snapshot => Self::Delivered,
            (_, DataState::Suspect) => Self::Suspect,
            _ => Self::Open,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Count of updates in the last update or image, as on the wire.
    sequence: u32,
    phase: Phase,
    /// Whether an image was received.
    has_image: bool,
    /// Hash of its item group.
    group: u32,
}

pub(super) struct Streams {
    all: Vec<Stream>,
    /// Place in the item list of each stream.
    items: Vec<u32>,
    /// The first stream that was never requested.
    next: usize,
    /// Streams to request again.
    to_reopen: Vec<u32>,
    loaded: u64,
    /// Image of each stream, if they are to be compared.
    images: Vec<Image>,
    outgoing: [Outgoing; 2],
}

/// The streams that posts, or generic messages, are sent on in turn.
#[derive(Default)]
struct Outgoing {
    streams: Vec<i32>,
    next: usize,
    count: u32,
}

impl Streams {
    pub(super) fn new(shared: &Shared, number: usize) -> Self {
        let items: Vec<u32> = shared.options.shares.of(number).map(|place| place as u32).collect();
        let of = |wanted: fn(&Item) -> bool| Outgoing {
            streams: (FIRST_ITEM..)
                .zip(&items)
                .filter(|(_, place)| shared.options.items.get(**place as usize).is_some_and(wanted))
                .map(|(stream, _)| stream)
                .collect(),
            ..Outgoing::default()
        };
        let outgoing = [of(|item| item.post), of(|item| item.generic)];
        let images = if shared.options.compare { vec![Image::default(); items.len()] } else { Vec::new() };
        Self {
            all: vec![Stream::default(); items.len()],
            items,
            next: 0,
            to_reopen: Vec::new(),
            loaded: 0,
            images,
            outgoing,
        }
    }

    /// Closes all streams.
    pub(super) fn reset(&mut self) {
        self.all.fill(Stream::default());
        self.images.fill(Image::default());
        self.to_reopen.clear();
        (self.next, self.loaded) = (0, 0);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Streams that have an image and are not suspect.
    pub(super) fn loaded(&self) -> u64 {
        self.loaded
    }

    pub(super) fn has_more_to_request(&self) -> bool {
        self.next < self.all.len() || !self.to_reopen.is_empty()
    }

    /// The next item to request, and its stream id.
    pub(super) fn next_to_request<'i>(&mut self, items: &'i [Item]) -> Option<(i32, &'i Item)> {
        let place = match self.to_reopen.pop() {
            Some(place) => place as usize,
            None if self.next < self.all.len() => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.all.get_mut(place)?.phase = Phase::Requested;
        let item = items.get(*self.items.get(place)? as usize)?;
        Some((FIRST_ITEM + i32::try_from(place).ok()?, item))
    }

    fn place(stream: i32) -> usize {
        usize::try_from(stream - FIRST_ITEM).unwrap_or(usize::MAX)
    }

    /// Counts an update; false if its stream is unknown.
    #[inline]
    pub(super) fn update(
        &mut self,
        shared: &Shared,
        stream: i32,
        message: &[u8],
        counts: &mut Counts,
    ) -> bool {
        let Some(entry) = self.all.get_mut((stream - FIRST_ITEM) as usize) else {
            counts.unknown += 1;
            return false;
        };
        if !entry.has_image {
            counts.early += 1;
        }
        if shared.options.check
            && let Some(sequence) = shared.sequence_of(message)
        {
            entry.check(sequence, counts);
        }
        if shared.options.decode {
            counts.fields += shared.decode(message);
        }
        if shared.options.compare
            && let Ok(update) = Update::decode(message)
        {
            self.apply(stream, update.container, update.payload, counts);
        }
        true
    }

    /// Counts an update with optional parts.
    pub(super) fn rich_update(
        &mut self,
        shared: &Shared,
        stream: i32,
        update: &Update<'_>,
        counts: &mut Counts,
    ) -> Result<()> {
        let Some(entry) = self.all.get_mut(Self::place(stream)) else {
            counts.unknown += 1;
            return Ok(());
        };
        if shared.options.check
            && let Some(sequence) = last_count(shared, update.container, update.payload)?
        {
            entry.check(sequence, counts);
        }
        if shared.options.compare {
            self.apply(stream, update.container, update.payload, counts);
        }
        Ok(())
    }

    /// Counts a refresh and takes its image.
    pub(super) fn refresh(
        &mut self,
        shared: &Shared,
        stream: i32,
        refresh: &Refresh<'_>,
        counts: &mut Counts,
    ) -> Result<()> {
        let place = Self::place(stream);
        let Some(entry) = self.all.get_mut(place) else {
            counts.unknown += 1;
            return Ok(());
        };
        entry.has_image = true;
        entry.group = group_hash(refresh.group);
        if shared.options.check
            && let Some(sequence) = last_count(shared, refresh.container, refresh.payload)?
        {
            entry.sequence = sequence;
        }
        if shared.options.compare && refresh.container != DataType::NO_DATA {
            if refresh.flags.contains(RefreshFlags::CLEAR_CACHE)
                && let Some(image) = self.images.get_mut(place)
            {
                *image = Image::default();
            }
            self.apply(stream, refresh.container, refresh.payload, counts);
        }
        if refresh.flags.contains(RefreshFlags::COMPLETE) || refresh.state.is_final() {
            self.state(shared, stream, &refresh.state, counts);
        }
        Ok(())
    }

    /// Moves a stream to another item group.
    pub(super) fn set_group(&mut self, stream: i32, group: &[u8]) {
        if let Some(entry) = self.all.get_mut(Self::place(stream)) {
            entry.group = group_hash(group);
        }
    }

    /// Applies what the directory announces for all items, or for those of a group: a state, or another group.
    pub(super) fn announced(
        &mut self,
        shared: &Shared,
        group: Option<&[u8]>,
        merged_to: Option<&[u8]>,
        state: Option<&State<'_>>,
        counts: &mut Counts,
    ) {
        let group = group.map(group_hash);
        for (place, stream) in (0..self.all.len()).zip(FIRST_ITEM..) {
            let Some(entry) = self.all.get_mut(place) else { return };
            let is_open = matches!(entry.phase, Phase::Requested | Phase::Open | Phase::Suspect);
            if !is_open || !entry.has_image || group.is_some_and(|group| group != entry.group) {
                continue;
            }
            entry.group = merged_to.map_or(entry.group, group_hash);
            if let Some(state) = state {
                self.state(shared, stream, state, counts);
            }
        }
    }

    /// Applies the state of a refresh or a status.
    pub(super) fn state(&mut self, shared: &Shared, stream: i32, state: &State<'_>, counts: &mut Counts) {
        let place = Self::place(stream);
        let Some(entry) = self.all.get_mut(place) else { return };
        let loaded = |phase| matches!(phase, Phase::Open | Phase::Delivered);
        let before = entry.phase;
        let mut after = Phase::after(state, shared.options.snapshot);
        if after == Phase::Open && !entry.has_image {
            // Without an image the item does not count as loaded.
            after = before;
        }
        if after == Phase::Suspect && loaded(before) {
            counts.suspect += 1;
        }
        match after {
            Phase::Closed if before != Phase::Closed => counts.closed += 1,
            Phase::ToReopen if before != Phase::ToReopen => {
                counts.closed_recover += 1;
                self.to_reopen.push(place as u32);
            }
            _ => {}
        }
        entry.phase = after;
        match (loaded(before), loaded(after)) {
            (false, true) => self.loaded += 1,
            (true, false) => self.loaded -= 1,
            _ => {}
        }
    }

    fn apply(&mut self, stream: i32, container: DataType, payload: &[u8], counts: &mut Counts) {
        let Some(image) = self.images.get_mut(Self::place(stream)) else { return };
        if image.apply_payload(container, payload).is_err() {
            counts.undecodable += 1;
        }
    }

    /// Place in the item list, whether it is loaded, and image of each stream.
    pub(super) fn images(&self) -> impl Iterator<Item = (usize, bool, &Image)> {
        let loaded = self.all.iter().map(|entry| matches!(entry.phase, Phase::Open | Phase::Delivered));
        self.items
            .iter()
            .zip(loaded)
            .zip(&self.images)
            .map(|((&item, loaded), image)| (item as usize, loaded, image))
    }

    /// The next post or generic message.
    pub(super) fn outgoing(
        &mut self,
        shared: &Shared,
        kind: OutgoingKind,
        stamp: Option<Duration>,
    ) -> Option<Vec<u8>> {
        let turn = self.outgoing.get_mut(kind as usize)?;
        let count = turn.streams.len();
        for _ in 0..count {
            let stream = *turn.streams.get(turn.next % count)?;
            turn.next = (turn.next + 1) % count;
            let place = Self::place(stream);
            if self.all.get(place).is_none_or(|entry| entry.phase != Phase::Open) {
                continue;
            }
            turn.count = turn.count.wrapping_add(1);
            let item = shared.options.items.get(*self.items.get(place)? as usize)?;
            let set = shared.options.sets.iter().find(|set| set.domain == item.domain)?;
            return message(shared, set, kind, stream, turn.count, stamp);
        }
        None
    }
}

impl Stream {
    /// Checks that `sequence` is one more than the last.
    #[inline]
    fn check(&mut self, sequence: u32, counts: &mut Counts) {
        let ahead = sequence.wrapping_sub(self.sequence);
        if ahead != 1 {
            self.gap(ahead, counts);
        }
        self.sequence = sequence;
    }

    #[cold]
    fn gap(&self, ahead: u32, counts: &mut Counts) {
        if ahead == 0 || ahead > u32::MAX / 2 {
            counts.backwards += 1;
        } else if self.has_image {
            counts.gaps += 1;
            counts.lost += u64::from(ahead - 1);
        }
    }
}

/// A hash of an item group, to be kept for a million streams (FNV-1a).
fn group_hash(group: &[u8]) -> u32 {
    group.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The greatest count of updates in a payload, as on the wire.
pub(super) fn last_count(shared: &Shared, container: DataType, payload: &[u8]) -> Result<Option<u32>> {
    let Some(field) = shared.sequence_field else { return Ok(None) };
    let of = |list: &[u8]| -> Result<Option<u32>> {
        for entry in FieldList::decode(list, None)?.entries() {
            let entry = entry?;
            if entry.id == field {
                let value = entry.data.try_into().ok().map(u32::from_be_bytes);
                return Ok(value.filter(|value| *value >= SEQUENCE_BASE));
            }
        }
        Ok(None)
    };
    match container {
        DataType::FIELD_LIST => of(payload),
        DataType::MAP => {
            let mut last = None;
            for entry in Map::decode(payload)?.entries() {
                let entry = entry?;
                if !entry.data.is_empty() {
                    last = last.max(of(entry.data)?);
                }
            }
            Ok(last)
        }
        _ => Ok(None),
    }
}

fn message(
    shared: &Shared,
    set: &MessageSet,
    kind: OutgoingKind,
    stream: i32,
    count: u32,
    stamp: Option<Duration>,
) -> Option<Vec<u8>> {
    let (bodies, field) = match kind {
        OutgoingKind::Post => (&set.posts, TIM_TRK_2),
        OutgoingKind::Generic => (&set.generics, TIM_TRK_3),
    };
    let mut body = bodies.get(count as usize % bodies.len().max(1))?.clone();
    if let Some(stamp) = stamp {
        body = body.stamped(field, shared.stamp(stamp));
    }
    let (container, payload) = (body.container(), body.encode().ok()?);
    to_vec(|w| match kind {
        OutgoingKind::Post => {
            let update =
                Update { domain: set.domain, stream, container, payload: &payload, ..Update::default() };
            let inner = to_vec(|w| update.encode(w))?;
            let post = Post {
                domain: set.domain,
                stream,
                flags: PostFlags::COMPLETE.with(PostFlags::ACK),
                container: DataType::MSG,
                post_user: shared.post_user,
                post_id: Some(count),
                seq: Some(count),
                payload: &inner,
                ..Post::default()
            };
            post.encode(w)
        }
        OutgoingKind::Generic => {
            let generic = Generic {
                domain: set.domain,
                stream,
                flags: GenericFlags::COMPLETE,
                container,
                payload: &payload,
                ..Generic::default()
            };
            generic.encode(w)
        }
    })
    .ok()
}
