//! The state of one session: its requests, its open items and its schedule.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::items::Items;
use super::stamps::StampSchedule;
use super::{Counts, Shared};
use crate::pace::{Burst, Pace};

/// The side that opened the connection, which decides whether items are requested or published unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The peer connected and requests items.
    Interactive,
    /// This program connected to a distributor and publishes its items without requests.
    Publisher,
}

/// A session without its channel.
pub(super) struct SessionState {
    pub(super) shared: Arc<Shared>,
    pub(super) role: Role,
    pub(super) items: Items,
    /// Images to send, in the order of the requests.
    pub(super) pending_images: VecDeque<PendingImage>,
    /// Places in the item list that are not published yet.
    pub(super) to_publish: std::ops::Range<usize>,
    /// Whether the login is accepted.
    pub(super) ready: bool,
    pub(super) pace: Option<Pace>,
    pub(super) stamps: StampSchedule,
    /// Rest of a burst for which the output had no space.
    pub(super) left: Option<Burst>,
    pub(super) counts: Counts,
    /// The peer's stream on the directory.
    pub(super) directory: Option<i32>,
    /// Number of changes of the service that the peer knows.
    pub(super) announced: usize,
    /// Encoded images by message set and number of updates, where they are the same for all items.
    pub(super) images: HashMap<(u8, u32), Arc<[u8]>>,
    /// Reason to end the session.
    pub(super) end: Option<String>,
}

/// A requested image that is not sent yet.
pub(super) struct PendingImage {
    pub(super) stream: i32,
    pub(super) service: Option<u16>,
    pub(super) name: Box<[u8]>,
    pub(super) set: u8,
    pub(super) streaming: bool,
    pub(super) private: bool,
}

impl SessionState {
    pub(super) fn new(shared: Arc<Shared>, role: Role) -> Self {
        let to_publish = 0..if role == Role::Publisher { shared.options.items.len() } else { 0 };
        Self {
            role,
            items: Items::default(),
            pending_images: VecDeque::new(),
            to_publish,
            ready: false,
            pace: None,
            stamps: StampSchedule::new(1, 0, 1),
            left: None,
            counts: Counts::default(),
            directory: None,
            announced: 0,
            images: HashMap::new(),
            end: None,
            shared,
        }
    }
}
