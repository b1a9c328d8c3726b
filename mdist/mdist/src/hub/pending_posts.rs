//! Posts that wait for an acknowledgement.
//!
//! Two consumers may use the same post id. So each post that requests an acknowledgement gets an id of the hub
//! upstream.

use std::collections::{HashMap, VecDeque};

use rssl::rwf::Domain;

use super::ids::{ItemId, Now, SideId, Token, UpstreamId};

/// Maximum number of posts that wait for an acknowledgement; stock consumers have at most as many each.
const MAX_PENDING: usize = 100_000;

/// One post (all its parts) that requests acknowledgements.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingPost {
    pub(super) side: SideId,
    pub(super) token: Token,
    pub(super) item: ItemId,
    pub(super) up: UpstreamId,
    pub(super) domain: Domain,
    /// The poster's id of the post.
    pub(super) poster_id: u32,
    /// Number of parts that are not acknowledged.
    pub(super) unacknowledged: u32,
    /// Whether the last part was sent.
    pub(super) complete: bool,
}

/// The posts that wait for acknowledgements.
#[derive(Debug, Default)]
pub(super) struct PendingPosts {
    /// By the hub's id of the post.
    posts: HashMap<u32, PendingPost>,
    /// Posts whose last part has not come: poster and its id, to the hub's id.
    incomplete: HashMap<(SideId, Token, u32), u32>,
    deadlines: VecDeque<(Now, u32)>,
    last_id: u32,
}

impl PendingPosts {
    /// Time at which the next post is overdue.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.deadlines.front().map(|d| d.0)
    }

    /// Adds one part of a post; returns the post's id upstream. `None`: [`MAX_PENDING`] posts wait already.
    pub(super) fn add_part(&mut self, deadline: Now, part: PendingPost) -> Option<u32> {
        let poster = (part.side, part.token, part.poster_id);
        if let Some(id) = self.incomplete.get(&poster).copied()
            && let Some(post) = self.posts.get_mut(&id)
        {
            post.unacknowledged += 1;
            if part.complete {
                post.complete = true;
                self.incomplete.remove(&poster);
            }
            return Some(id);
        }
        if self.posts.len() >= MAX_PENDING {
            return None;
        }
        let mut id = self.last_id.wrapping_add(1);
        while id == 0 || self.posts.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        self.last_id = id;
        if !part.complete {
            self.incomplete.insert(poster, id);
        }
        self.posts.insert(id, part);
        self.deadlines.push_back((deadline, id));
        Some(id)
    }

    /// Acknowledges one part of the post with this id at the upstream; returns the post, if it waits there.
    pub(super) fn acknowledge(&mut self, up: UpstreamId, id: u32) -> Option<PendingPost> {
        let post = self.posts.get_mut(&id).filter(|p| p.up == up)?;
        post.unacknowledged = post.unacknowledged.saturating_sub(1);
        let post = *post;
        if post.unacknowledged == 0 && post.complete {
            self.remove(id);
        }
        Some(post)
    }

    /// Takes the posts that wait for an acknowledgement of this upstream, in order of their ids.
    pub(super) fn take_of(&mut self, up: UpstreamId) -> Vec<PendingPost> {
        let mut ids: Vec<u32> = self.posts.iter().filter(|(_, p)| p.up == up).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Takes the next post whose deadline has passed.
    pub(super) fn take_overdue(&mut self, now: Now) -> Option<PendingPost> {
        while let Some(&(end, id)) = self.deadlines.front() {
            if end > now {
                break;
            }
            self.deadlines.pop_front();
            if let Some(post) = self.remove(id) {
                return Some(post);
            }
        }
        None
    }

    fn remove(&mut self, id: u32) -> Option<PendingPost> {
        let post = self.posts.remove(&id)?;
        self.incomplete.remove(&(post.side, post.token, post.poster_id));
        Some(post)
    }
}
