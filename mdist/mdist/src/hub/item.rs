//! The table of items.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rssl::rwf::{OwnedState, State};

use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::request::ItemSpec;

/// Where an item is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// The place is free.
    Free,
    /// Open at the hub, with or without a stream upstream.
    Open,
    /// Ended; the place is kept until every side has let go of it.
    Over,
}

/// The queue of its service that an item stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    None,
    /// Requests of clients.
    Fresh,
    /// Requests of the hub itself: paced.
    Recover,
}

/// The item's stream upstream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) up: UpstreamId,
    pub(super) stream: i32,
    /// A refresh has come on it: updates count.
    pub(super) live: bool,
    /// A request whose image is not complete.
    pub(super) asked: Option<Asked>,
}

/// A request whose image is not complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Tells an old deadline from that of a later request.
    pub(super) number: u32,
    /// When it was sent, or when the last part came.
    pub(super) at: Now,
    /// It counts in the window of recovery.
    pub(super) paced: bool,
}

/// Somebody who waits for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) side: SideId,
    pub(super) token: Token,
    pub(super) snapshot: bool,
}

/// One item.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) spec: Arc<ItemSpec>,
    pub(super) life: Life,
    /// How often the place was used: tells an old queue entry from a new one.
    pub(super) age: u32,
    /// Opened for snapshots only.
    pub(super) snapshot: bool,
    /// A publisher opened it: it stays without holders.
    pub(super) published: bool,
    /// Somebody wants it and no publisher has published it yet; so nobody has an image of it.
    pub(super) awaited: bool,
    pub(super) link: Option<Link>,
    pub(super) queue: Queue,
    /// Failed requests in a row.
    pub(super) tries: u8,
    /// The next refresh goes to all, as a new start.
    pub(super) recovering: bool,
    /// Between the first part of a refresh and its last.
    pub(super) partial: bool,
    /// The refresh under way goes to all.
    pub(super) to_all: bool,
    /// A complete image has come.
    pub(super) imaged: bool,
    /// The last known state, as upstream said it or as the loss of the upstream made it.
    pub(super) state: OwnedState,
    pub(super) group: Box<[u8]>,
    pub(super) holders: Vec<(SideId, u32)>,
    pub(super) waiting: Vec<Waiter>,
    /// Who gets the refresh under way.
    pub(super) receiving: Vec<Waiter>,
    /// When the hold ends.
    pub(super) closing: Option<Now>,
    /// Payload or source forbids a cache.
    pub(super) uncacheable: bool,
    /// Who sent a generic message last.
    pub(super) asker: Option<(SideId, Token)>,
}

impl Item {
    fn new(spec: Arc<ItemSpec>, age: u32, snapshot: bool) -> Self {
        Self {
            spec,
            life: Life::Open,
            age,
            snapshot,
            published: false,
            awaited: false,
            link: None,
            queue: Queue::None,
            tries: 0,
            recovering: false,
            partial: false,
            to_all: false,
            imaged: false,
            state: OwnedState::default(),
            group: Box::default(),
            holders: Vec::new(),
            waiting: Vec::new(),
            receiving: Vec::new(),
            closing: None,
            uncacheable: false,
            asker: None,
        }
    }

    /// Nobody wants it.
    pub(super) fn is_unwanted(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty() && self.receiving.is_empty() && !self.published
    }

    /// Takes over a state; a part that says nothing leaves what was.
    pub(super) fn set_state(&mut self, state: &State<'_>) {
        use rssl::rwf::{DataState, StreamState};
        if state.stream != StreamState::Unspecified {
            self.state.stream = state.stream;
        }
        if state.data != DataState::NoChange {
            self.state.data = state.data;
        }
        self.state.code = state.code;
        if self.state.text != state.text {
            self.state.text = state.text.to_vec();
        }
    }

    /// One more hold of a side.
    pub(super) fn hold(&mut self, side: SideId) {
        match self.holders.iter_mut().find(|(s, _)| *s == side) {
            Some((_, holds)) => *holds = holds.saturating_add(1),
            None => self.holders.push((side, 1)),
        }
    }

    /// Takes back holds of a side; with its last one it waits for nothing any more.
    pub(super) fn release(&mut self, side: SideId, holds: u32) {
        let Some(at) = self.holders.iter().position(|(s, _)| *s == side) else { return };
        if let Some((_, has)) = self.holders.get_mut(at) {
            *has = has.saturating_sub(holds);
            if *has == 0 {
                self.holders.swap_remove(at);
                self.waiting.retain(|w| w.side != side || w.snapshot);
                self.receiving.retain(|w| w.side != side || w.snapshot);
            }
        }
    }
}

/// All items of a hub.
#[derive(Debug, Default)]
pub(super) struct Items {
    list: Vec<Item>,
    free: VecDeque<u32>,
    streams: HashMap<Arc<ItemSpec>, ItemId>,
    snapshots: HashMap<Arc<ItemSpec>, ItemId>,
}

impl Items {
    /// Places in use.
    pub(super) fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    pub(super) fn get(&self, id: ItemId) -> Option<&Item> {
        self.list.get(id.index()).filter(|i| i.life != Life::Free)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ItemId) -> Option<&mut Item> {
        self.list.get_mut(id.index()).filter(|i| i.life != Life::Free)
    }

    /// The item if its place was not used anew since it had this age.
    pub(super) fn aged(&mut self, id: ItemId, age: u32) -> Option<&mut Item> {
        self.get_mut(id).filter(|i| i.age == age && i.life == Life::Open)
    }

    /// The open item that is shared under this spec.
    pub(super) fn find(&self, spec: &ItemSpec) -> Option<ItemId> {
        self.streams.get(spec).copied()
    }

    /// The snapshot under way that can be shared under this spec.
    pub(super) fn find_snapshot(&self, spec: &ItemSpec) -> Option<ItemId> {
        self.snapshots.get(spec).copied()
    }

    /// A new item; private ones are found by nobody.
    pub(super) fn add(&mut self, spec: ItemSpec, snapshot: bool) -> ItemId {
        let spec = Arc::new(spec);
        // The caller keeps the number of items below its limit, which fits u32.
        let id = ItemId(self.free.pop_front().unwrap_or(self.list.len() as u32));
        if !spec.private {
            let map = if snapshot { &mut self.snapshots } else { &mut self.streams };
            map.insert(Arc::clone(&spec), id);
        }
        match self.list.get_mut(id.index()) {
            Some(place) => *place = Item::new(spec, place.age.wrapping_add(1), snapshot),
            None => self.list.push(Item::new(spec, 0, snapshot)),
        }
        id
    }

    /// Nobody finds the item any more.
    pub(super) fn hide(&mut self, id: ItemId) {
        let Some(item) = self.list.get(id.index()) else { return };
        let map = if item.snapshot { &mut self.snapshots } else { &mut self.streams };
        if map.get(&item.spec) == Some(&id) {
            map.remove(&item.spec);
        }
    }

    /// Gives the place back.
    pub(super) fn free(&mut self, id: ItemId) {
        self.hide(id);
        let Some(item) = self.get_mut(id) else { return };
        item.life = Life::Free;
        item.holders = Vec::new();
        item.waiting = Vec::new();
        item.receiving = Vec::new();
        self.free.push_back(id.0);
    }

    /// Ids of the open items for which `f` holds.
    pub(super) fn which(&self, f: impl Fn(&Item) -> bool) -> Vec<ItemId> {
        let open = self.list.iter().enumerate().filter(|(_, i)| i.life == Life::Open && f(i));
        open.map(|(n, _)| ItemId(n as u32)).collect()
    }

    /// Ids of all places in use for which `f` holds, also of items that are over.
    pub(super) fn places(&self, f: impl Fn(&Item) -> bool) -> Vec<ItemId> {
        let used = self.list.iter().enumerate().filter(|(_, i)| i.life != Life::Free && f(i));
        used.map(|(n, _)| ItemId(n as u32)).collect()
    }
}
