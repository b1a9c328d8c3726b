//! Model sides: they apply the batch as mounts do, and keep what each consumer's stream shows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rssl::rwf::{DataState, Message, RefreshFlags, StreamState};

use super::super::*;
use super::models::{Fields, decode};

/// One stream as its consumer sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) name: String,
    pub(super) item: Option<ItemId>,
    pub(super) snapshot: bool,
    pub(super) live: bool,
    pub(super) over: bool,
    pub(super) fields: Fields,
    pub(super) images: u32,
    pub(super) updates: u32,
    pub(super) statuses: u32,
    pub(super) state: Option<(StreamState, DataState)>,
    pub(super) code: u8,
    pub(super) notices: Vec<(StreamState, DataState, u8)>,
    pub(super) refused: Option<(StreamState, u8)>,
    pub(super) replies: Vec<Vec<u8>>,
}

/// A side: applies the batch as mounts do.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) id: SideId,
    pub(super) views: BTreeMap<Token, View>,
    pub(super) holds: HashMap<ItemId, u32>,
    pub(super) by_item: HashMap<ItemId, Vec<Token>>,
    pub(super) directory: Option<Arc<Directory>>,
    pub(super) directories: usize,
}

impl Side {
    /// Applies a message to a view.
    fn show(view: &mut View, message: &Message<'_>) {
        match message {
            Message::Refresh(r) => {
                if r.flags.contains(RefreshFlags::CLEAR_CACHE) {
                    view.fields.clear();
                }
                view.fields.extend(decode(r.payload));
                view.state = Some((r.state.stream, r.state.data));
                view.code = r.state.code;
                view.images += u32::from(r.flags.contains(RefreshFlags::COMPLETE));
            }
            Message::Update(u) => {
                view.fields.extend(decode(u.payload));
                view.updates += 1;
            }
            Message::Status(s) => {
                view.statuses += 1;
                if let Some(state) = s.state {
                    view.state = Some((state.stream, state.data));
                    view.code = state.code;
                }
            }
            other => view.replies.push(other.to_vec().unwrap()),
        }
    }

    pub(super) fn apply(&mut self, batch: &Batch) -> Vec<HubRequest> {
        let mut asks = Vec::new();
        let me = self.id;
        for entry in batch.entries.iter().filter(|e| e.is_for(me)) {
            let bytes = batch.message(entry);
            let message =
                (!bytes.is_empty()).then(|| Message::decode(bytes).expect("the hub writes good messages"));
            if let Some(message) = &message
                && entry.kind != Kind::Refused
                && !matches!(message, Message::Ack(_))
            {
                assert_eq!(message.head().stream, entry.item.stream());
            }
            match entry.kind {
                Kind::Opened => {
                    *self.holds.entry(entry.item).or_default() += 1;
                    if let Some(view) = self.views.get_mut(&entry.token) {
                        view.item = Some(entry.item);
                        self.by_item.entry(entry.item).or_default().push(entry.token);
                    }
                    asks.extend(self.let_go(entry.item));
                }
                Kind::Image => {
                    let Some(view) = self.views.get_mut(&entry.token).filter(|v| !v.over) else { continue };
                    let Some(Message::Refresh(r)) = &message else { panic!("an image is a refresh") };
                    assert!(r.flags.contains(RefreshFlags::SOLICITED));
                    view.live = true;
                    Self::show(view, message.as_ref().unwrap());
                    if view.snapshot && r.flags.contains(RefreshFlags::COMPLETE) {
                        assert_eq!(r.state.stream, StreamState::NonStreaming);
                        view.over = true;
                    }
                }
                Kind::Notice => {
                    let Some(view) = self.views.get_mut(&entry.token).filter(|v| !v.over) else { continue };
                    let Some(Message::Status(s)) = &message else { panic!("a notice is a status") };
                    let state = s.state.expect("with a state");
                    view.notices.push((state.stream, state.data, state.code));
                }
                Kind::Message | Kind::Covered => {
                    for token in self.by_item.get(&entry.item).into_iter().flatten() {
                        if let Some(view) = self.views.get_mut(token).filter(|v| v.live) {
                            Self::show(view, message.as_ref().unwrap());
                        }
                    }
                }
                Kind::Announced | Kind::AnnouncementEnd => {}
                Kind::Gone => {
                    for token in self.by_item.remove(&entry.item).into_iter().flatten() {
                        if let Some(view) = self.views.get_mut(&token) {
                            view.over = true;
                            view.live = false;
                            view.item = None;
                        }
                    }
                    asks.extend(self.let_go(entry.item));
                }
                Kind::Services => {
                    self.directory = batch.directory(entry).cloned();
                    self.directories += 1;
                }
                Kind::Reply => {
                    if let Some(view) = self.views.get_mut(&entry.token) {
                        Self::show(view, message.as_ref().unwrap());
                    }
                }
                Kind::Refused => {
                    let Some(Message::Status(s)) = &message else { panic!("a refusal is a status") };
                    let state = s.state.expect("with a state");
                    if let Some(view) = self.views.get_mut(&entry.token) {
                        view.refused = Some((state.stream, state.code));
                        view.over = true;
                    }
                }
            }
        }
        asks
    }

    /// Gives back the holds of an item that has no view any more.
    pub(super) fn let_go(&mut self, item: ItemId) -> Option<HubRequest> {
        if self.by_item.get(&item).is_some_and(|t| !t.is_empty()) {
            return None;
        }
        let holds = self.holds.remove(&item)?;
        Some(HubRequest::Close { side: self.id, item, holds })
    }
}
