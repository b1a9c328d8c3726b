//! Posts and generic messages towards sources, and their answers back to who sent them.
//!
//! Two clients may use one post id: upstream every post that wants an acknowledgement has an id of the hub's own.

use std::collections::{HashMap, VecDeque};

use rssl::rwf::{
    self, Ack, Class, DataType, Domain, Generic, Key, Message, Post, PostFlags, Refresh, RefreshFlags, State,
    Update, nak,
};
use rssl::wire::to_vec;

use super::batch::{Batch, Kind};
use super::encode;
use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::request::{ItemSpec, Target};
use super::state::Hub;
use super::upstream_messages::UpstreamError;

/// The stream of every login, which posts take that are not on an item's stream. Spec: rssl.md §6.1.
pub const LOGIN_STREAM: i32 = 1;

/// Why a post was refused: a code of [`nak`], and words.
type Nak = (u8, &'static str);

/// Most posts that wait for an acknowledgement; stock consumers have at most as many each.
const MAX_PENDING: usize = 100_000;

/// One post (all its parts) that wants acknowledgements.
#[derive(Clone, Copy, Debug)]
struct Pending {
    side: SideId,
    token: Token,
    item: ItemId,
    up: UpstreamId,
    domain: Domain,
    /// The poster's own id.
    theirs: u32,
    /// Parts that are not acknowledged.
    wanted: u32,
    /// The last part was sent.
    complete: bool,
}

/// What waits for acknowledgements.
#[derive(Debug, Default)]
pub(super) struct Posts {
    pending: HashMap<u32, Pending>,
    /// Posts whose last part is still to come: who and their id, to the hub's.
    parted: HashMap<(SideId, Token, u32), u32>,
    deadlines: VecDeque<(Now, u32)>,
    last: u32,
}

impl Posts {
    pub(super) fn deadline(&self) -> Option<Now> {
        self.deadlines.front().map(|d| d.0)
    }

    fn remove(&mut self, id: u32) -> Option<Pending> {
        let gone = self.pending.remove(&id)?;
        self.parted.remove(&(gone.side, gone.token, gone.theirs));
        Some(gone)
    }

    /// Notes one part of a post; gives the id that it has upstream. `None`: too many wait.
    fn note(&mut self, deadline: Now, post: Pending) -> Option<u32> {
        let who = (post.side, post.token, post.theirs);
        if let Some(id) = self.parted.get(&who).copied()
            && let Some(has) = self.pending.get_mut(&id)
        {
            has.wanted += 1;
            if post.complete {
                has.complete = true;
                self.parted.remove(&who);
            }
            return Some(id);
        }
        if self.pending.len() >= MAX_PENDING {
            return None;
        }
        let mut id = self.last.wrapping_add(1);
        while id == 0 || self.pending.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        self.last = id;
        if !post.complete {
            self.parted.insert(who, id);
        }
        self.pending.insert(id, post);
        self.deadlines.push_back((deadline, id));
        Some(id)
    }
}

impl Hub {
    /// A post or generic message of a client.
    pub(super) fn upward(
        &mut self,
        now: Now,
        side: SideId,
        token: Token,
        to: Target,
        message: &[u8],
        out: &mut Batch,
    ) {
        // Whoever handed it in has decoded it; what does not decode is not worth an answer.
        match rwf::peek(message).map(|h| h.class) {
            Ok(Class::Post) => {
                if let Ok(post) = Post::decode(message) {
                    self.post(now, side, token, to, &post, out);
                }
            }
            Ok(Class::Generic) => {
                if let Ok(generic) = Generic::decode(message) {
                    self.generic_up(side, token, to, &generic);
                }
            }
            _ => {}
        }
    }

    fn generic_up(&mut self, side: SideId, token: Token, to: Target, generic: &Generic<'_>) {
        let Target::Item(id) = to else { return };
        let Ok(route) = self.route(to) else { return };
        let generic = Generic { stream: route.stream, key: route.key(generic.key), ..generic.clone() };
        let Ok(message) = to_vec(|w| generic.encode(w)) else { return };
        if let Some(item) = self.items.get_mut(id) {
            item.asker = Some((side, token));
        }
        self.outgoing.push_back((route.up, message));
    }

    fn post(&mut self, now: Now, side: SideId, token: Token, to: Target, post: &Post<'_>, out: &mut Batch) {
        let item = match to {
            Target::Item(id) => id,
            Target::Service(_) => ItemId::NONE,
        };
        if !self.options.posts_to_publishers && self.is_of_publishers(to) {
            return self.contribute(side, token, to, post, out);
        }
        let wants = post.flags.contains(PostFlags::ACK);
        let pending = |up: UpstreamId, theirs: u32| Pending {
            side,
            token,
            item,
            up,
            domain: post.domain,
            theirs,
            wanted: 1,
            complete: post.part.is_none() || post.flags.contains(PostFlags::COMPLETE),
        };
        let failed = match self.route(to) {
            Err(failed) => Some(failed),
            Ok(route) => {
                let mut post_id = post.post_id;
                let mut full = None;
                if let (true, Some(theirs)) = (wants, post_id) {
                    post_id = self.posts.note(now + self.options.post_timeout, pending(route.up, theirs));
                    if post_id.is_none() {
                        full = Some((nak::NO_RESOURCES, "Too many posts wait for an acknowledgement"));
                    }
                }
                if full.is_none() {
                    let named = self.items.get(item).filter(|_| route.stream == LOGIN_STREAM);
                    let key = match named.map(|i| i.spec.key(route.theirs)) {
                        // A post for a publisher's item leaves that item's stream, so it must say which item it is.
                        Some(key) => Some(key),
                        None => route.key(post.key),
                    };
                    let post = Post { stream: route.stream, post_id, key, ..post.clone() };
                    match to_vec(|w| post.encode(w)) {
                        Ok(message) => self.outgoing.push_back((route.up, message)),
                        Err(_) => full = Some((nak::INVALID_CONTENT, "The post has no encoding")),
                    }
                }
                full
            }
        };
        if let (Some((code, text)), true, Some(theirs)) = (failed, wants, post.post_id) {
            let answer = pending(UpstreamId(0), theirs);
            self.refuse_post(&answer, code, text, post.seq, out);
        }
    }

    /// Where a message for an item or a service goes.
    fn route(&self, to: Target) -> Result<Route, Nak> {
        let (service, link) = match to {
            Target::Service(id) => (id, None),
            Target::Item(id) => match self.items.get(id) {
                Some(item) => (item.spec.service, Some(item.link)),
                None => return Err((nak::NOT_OPEN, "The item is not open")),
            },
        };
        let unknown = (nak::SOURCE_UNKNOWN, "No such service");
        let down = (nak::SOURCE_DOWN, "Nobody offers the service at present");
        let service =
            self.services.index(service).and_then(|at| self.services.list.get(at)).ok_or(unknown)?;
        match link {
            Some(None) => Err(down),
            Some(Some(link)) => {
                let offer = service.offers.iter().find(|o| o.up == link.up).ok_or(down)?;
                let stream = if link.stream < 0 { LOGIN_STREAM } else { link.stream };
                Ok(Route { up: link.up, stream, theirs: offer.listed.id })
            }
            None => {
                let up = service.offers.iter().filter(|o| o.is_up());
                let offer = up.min_by_key(|o| (Some(o.up) != service.active, o.up)).ok_or(down)?;
                Ok(Route { up: offer.up, stream: LOGIN_STREAM, theirs: offer.listed.id })
            }
        }
    }

    /// Whether what is posted there is for the cache: nobody but publishers offers the service.
    fn is_of_publishers(&self, to: Target) -> bool {
        let service = match to {
            Target::Service(id) => Some(id),
            Target::Item(id) => self.items.get(id).map(|i| i.spec.service),
        };
        let at = service.and_then(|id| self.services.index(id));
        at.and_then(|at| self.services.list.get(at)).is_some_and(super::services::Service::is_published)
    }

    /// A post for an item of a publisher: this hub is the source that its consumers know. Spec: rssl.md §6.1
    fn contribute(&mut self, side: SideId, token: Token, to: Target, post: &Post<'_>, out: &mut Batch) {
        let id = match to {
            Target::Item(id) => Some(id),
            Target::Service(service) => post.key.and_then(|key| {
                let spec = ItemSpec::new(service, post.domain, &key, None, false).ok()?;
                self.items.find(&spec)
            }),
        };
        let unknown = (nak::SYMBOL_UNKNOWN, "Nobody has published the item");
        let result = match id.filter(|id| self.items.get(*id).is_some_and(|i| i.published)) {
            Some(id) => self.apply_post(id, post, out),
            None => Err(unknown),
        };
        let (true, Some(theirs)) = (post.flags.contains(PostFlags::ACK), post.post_id) else { return };
        let item = match to {
            Target::Item(id) => id,
            Target::Service(_) => ItemId::NONE,
        };
        let answer = Pending {
            side,
            token,
            item,
            up: UpstreamId(0),
            domain: post.domain,
            theirs,
            wanted: 1,
            complete: true,
        };
        self.answer_post(&answer, result.err(), post.seq, out);
    }

    /// What a post carries becomes the item's, and goes to all its streams with the word who posted it.
    fn apply_post(&mut self, id: ItemId, post: &Post<'_>, out: &mut Batch) -> Result<(), Nak> {
        let invalid = (nak::INVALID_CONTENT, "What the post carries is not understood");
        let carried = match post.container {
            DataType::MSG => Message::decode(post.payload).map_err(|_| invalid)?,
            container => Message::Update(Update {
                container,
                payload: post.payload,
                seq: post.seq,
                ..Update::default()
            }),
        };
        let item = self.items.get(id).ok_or((nak::NOT_OPEN, "The item is not open"))?;
        if !item.link.is_some_and(|l| l.live) {
            return Err((nak::SOURCE_DOWN, "The item's publisher is not there"));
        }
        let (domain, stream) = (item.spec.domain, id.stream());
        let post_user = Some(post.post_user);
        let spec = item.spec.clone();
        let message = match carried {
            Message::Update(update) => {
                to_vec(|w| Update { domain, stream, key: None, post_user, ..update.clone() }.encode(w))
            }
            Message::Refresh(refresh) if refresh.flags.contains(RefreshFlags::COMPLETE) => {
                let refresh = Refresh {
                    domain,
                    stream,
                    flags: refresh.flags.without(RefreshFlags::SOLICITED),
                    state: State::OK,
                    group: &item.group,
                    key: Some(spec.key(spec.service)),
                    part: None,
                    post_user,
                    ..refresh
                };
                to_vec(|w| refresh.encode(w))
            }
            Message::Refresh(_) => {
                return Err((nak::INVALID_CONTENT, "An image that is posted must be in one part"));
            }
            _ => return Err((nak::DENIED_BY_SOURCE, "Only images and updates can be posted here")),
        };
        let message = message.map_err(|_| invalid)?;
        let unfit = (nak::INVALID_CONTENT, "What the post carries does not fit to the item");
        if let Some(record) = self.records.get_mut(id) {
            self.cache.message(record, &message).map_err(|_| unfit)?;
        }
        if self.items.get(id).is_some_and(|i| !i.holders.is_empty()) {
            out.push(Kind::Message, SideId::ALL, id, 0, &message);
        }
        Ok(())
    }

    fn refuse_post(&mut self, post: &Pending, code: u8, text: &str, seq: Option<u32>, out: &mut Batch) {
        self.answer_post(post, Some((code, text)), seq, out);
    }

    fn answer_post(&mut self, post: &Pending, failed: Option<(u8, &str)>, seq: Option<u32>, out: &mut Batch) {
        let ack = Ack {
            domain: post.domain,
            stream: 1,
            ack_id: post.theirs,
            nak: failed.map(|(code, _)| code),
            text: failed.map(|(_, text)| text.as_bytes()),
            seq,
            ..Ack::default()
        };
        if let Ok(bytes) = encode::write(&mut self.scratch, 256, |w| ack.encode(w)) {
            out.push(Kind::Reply, post.side, post.item, post.token, bytes);
        }
    }

    /// An acknowledgement from upstream.
    pub(super) fn ack(
        &mut self,
        up: UpstreamId,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        let ack = Ack::decode(message)?;
        let Some(post) = self.posts.pending.get_mut(&ack.ack_id).filter(|p| p.up == up) else {
            self.stats.late += 1;
            return Ok(());
        };
        post.wanted = post.wanted.saturating_sub(1);
        let post = *post;
        if post.wanted == 0 && post.complete {
            self.posts.remove(ack.ack_id);
        }
        let service = self.items.get(post.item).map(|i| i.spec.service);
        let key = ack.key.map(|k| {
            let at = k.service.and_then(|theirs| self.services.offered(up, theirs));
            let ours = at.and_then(|at| self.services.list.get(at)).map(|s| s.id).or(service);
            Key { service: ours, ..k }
        });
        let ack = Ack { ack_id: post.theirs, key, ..ack };
        let bytes = encode::write(&mut self.scratch, message.len() + 8, |w| ack.encode(w))?;
        out.push(Kind::Reply, post.side, post.item, post.token, bytes);
        Ok(())
    }

    /// Posts that wait for an acknowledgement of a lost upstream.
    pub(super) fn posts_lost(&mut self, up: UpstreamId, out: &mut Batch) {
        let mut lost: Vec<u32> =
            self.posts.pending.iter().filter(|(_, p)| p.up == up).map(|(id, _)| *id).collect();
        lost.sort_unstable();
        for id in lost {
            if let Some(post) = self.posts.remove(id) {
                self.refuse_post(
                    &post,
                    nak::SOURCE_DOWN,
                    "The source was lost before it answered",
                    None,
                    out,
                );
            }
        }
    }

    /// Posts whose acknowledgement does not come.
    pub(super) fn posts_overdue(&mut self, now: Now, out: &mut Batch) {
        while let Some(&(end, id)) = self.posts.deadlines.front() {
            if end > now {
                break;
            }
            self.posts.deadlines.pop_front();
            if let Some(post) = self.posts.remove(id) {
                self.refuse_post(&post, nak::NO_RESPONSE, "The source did not answer in time", None, out);
            }
        }
    }
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
struct Route {
    up: UpstreamId,
    stream: i32,
    /// The upstream's id of the service.
    theirs: u16,
}

impl Route {
    fn key<'a>(&self, key: Option<Key<'a>>) -> Option<Key<'a>> {
        key.map(|k| Key { service: k.service.map(|_| self.theirs), ..k })
    }
}
