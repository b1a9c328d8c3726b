//! Posts and generic messages of consumers: to the source or into the cache, and the answers back.

use rssl::rwf::{
    self, Ack, Class, DataType, Generic, Key, Message, Post, PostFlags, Refresh, RefreshFlags, State, Update,
    nak,
};

use super::batch::{Batch, Kind};
use super::encode::{self, with_service};
use super::error::UpstreamError;
use super::ids::{ItemId, Now, SideId, Token, UpstreamId};
use super::item::Item;
use super::pending_posts::PendingPost;
use super::request::{ItemSpec, Target};
use super::state::{Hub, PORTION, Posts};

/// Stream of the login, which also carries posts off an item's stream. Spec: rssl.md §6.1.
pub const LOGIN_STREAM: i32 = 1;

/// Reason why a post was refused: a code of [`nak`] and a text.
type Refusal = (u8, &'static str);

const POSTS_ARE_REFUSED: Refusal =
    (nak::ACCESS_DENIED, "Posts for items of publishers are refused (src-dist.posts of the distributor)");

impl Hub {
    /// Handles a post or generic message of a consumer.
    pub(super) fn send_upstream(
        &mut self,
        now: Now,
        side: SideId,
        token: Token,
        to: Target,
        message: &[u8],
        out: &mut Batch,
    ) {
        // The side has decoded the message. One that cannot be decoded here is dropped.
        match rwf::peek(message).map(|h| h.class) {
            Ok(Class::Post) => {
                if let Ok(post) = Post::decode(message) {
                    self.post(now, side, token, to, &post, out);
                }
            }
            Ok(Class::Generic) => {
                if let Ok(generic) = Generic::decode(message) {
                    self.send_generic(side, token, to, &generic);
                }
            }
            _ => {}
        }
    }

    /// Sends a generic message on the item's stream.
    fn send_generic(&mut self, side: SideId, token: Token, to: Target, generic: &Generic<'_>) {
        let Target::Item(id) = to else { return };
        let Ok(route) = self.route(to) else { return };
        let generic = Generic { stream: route.stream, key: route.key(generic.key), ..generic.clone() };
        let Ok(message) = generic.to_vec() else { return };
        if let Some(item) = self.items.get_mut(id) {
            item.generic_sender = Some((side, token));
        }
        self.outgoing.push_back((route.up, message));
    }

    /// Sends a post to its source, or applies it to the cache.
    fn post(&mut self, now: Now, side: SideId, token: Token, to: Target, post: &Post<'_>, out: &mut Batch) {
        let refused = if self.options.posts == Posts::Refuse && self.is_published_only(to) {
            Err(POSTS_ARE_REFUSED)
        } else if self.options.posts == Posts::Cache && self.is_published_only(to) {
            self.contribute(to, post, out)
        } else {
            match self.forward_post(now, side, token, to, post) {
                // The acknowledgement comes from the source.
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            }
        };
        if let (true, Some(poster_id)) = (post.flags.contains(PostFlags::ACK), post.post_id) {
            let pending = pending_post(side, token, to, UpstreamId(0), post, poster_id);
            self.answer_post(&pending, refused.err(), post.seq, out);
        }
    }

    /// Sends a post upstream, with an id of the hub if it requests an acknowledgement.
    fn forward_post(
        &mut self,
        now: Now,
        side: SideId,
        token: Token,
        to: Target,
        post: &Post<'_>,
    ) -> Result<(), Refusal> {
        let route = self.route(to)?;
        let mut post_id = post.post_id;
        if let (true, Some(poster_id)) = (post.flags.contains(PostFlags::ACK), post_id) {
            let pending = pending_post(side, token, to, route.up, post, poster_id);
            let id = self.posts.add_part(now + self.options.post_timeout, pending);
            let full = (nak::NO_RESOURCES, "Too many posts wait for an acknowledgement");
            post_id = Some(id.ok_or(full)?);
        }
        let named = self.items.get(item_of(to)).filter(|_| route.stream == LOGIN_STREAM);
        let key = match named.map(|i| i.spec.key(route.service_id)) {
            // A post for a publisher's item goes on the login stream instead of the item's, so it must name the item.
            Some(key) => Some(key),
            None => route.key(post.key),
        };
        let post = Post { stream: route.stream, post_id, key, ..post.clone() };
        let message = post.to_vec().map_err(|_| (nak::INVALID_CONTENT, "The post has no encoding"))?;
        self.outgoing.push_back((route.up, message));
        Ok(())
    }

    /// The destination of a message for an item or a service.
    fn route(&self, to: Target) -> Result<Route, Refusal> {
        let (service, link) = match to {
            Target::Service(id) => (id, None),
            Target::Item(id) => match self.items.get(id) {
                Some(item) => (item.spec.service, Some(item.link)),
                None => return Err((nak::NOT_OPEN, "The item is not open")),
            },
        };
        let unknown = (nak::SOURCE_UNKNOWN, "No such service");
        let down = (nak::SOURCE_DOWN, "No source offers the service at present");
        let service =
            self.services.index(service).and_then(|at| self.services.list.get(at)).ok_or(unknown)?;
        match link {
            Some(None) => Err(down),
            Some(Some(link)) => {
                let offer = service.offers.iter().find(|o| o.up == link.up).ok_or(down)?;
                let stream = if link.stream < 0 { LOGIN_STREAM } else { link.stream };
                Ok(Route { up: link.up, stream, service_id: offer.listed.id })
            }
            None => {
                let up = service.offers.iter().filter(|o| o.is_up());
                let offer = up.min_by_key(|o| (Some(o.up) != service.active, o.up)).ok_or(down)?;
                Ok(Route { up: offer.up, stream: LOGIN_STREAM, service_id: offer.listed.id })
            }
        }
    }

    /// Whether only publishers offer the service: posts to it are for the cache.
    fn is_published_only(&self, to: Target) -> bool {
        let service = match to {
            Target::Service(id) => Some(id),
            Target::Item(id) => self.items.get(id).map(|i| i.spec.service),
        };
        let at = service.and_then(|id| self.services.index(id));
        at.and_then(|at| self.services.list.get(at)).is_some_and(super::services::Service::is_published)
    }

    /// Applies a post to an item of a publisher. For the consumers, this hub is the source of the item. Spec:
    /// rssl.md §6.1
    fn contribute(&mut self, to: Target, post: &Post<'_>, out: &mut Batch) -> Result<(), Refusal> {
        let id = match to {
            Target::Item(id) => Some(id),
            Target::Service(service) => post.key.and_then(|key| {
                let spec = ItemSpec::new(service, post.domain, &key, None, false).ok()?;
                self.items.find(&spec)
            }),
        };
        let is_published = |id: &ItemId| self.items.get(*id).is_some_and(|i| i.publication.is_published());
        let id = id.filter(is_published).ok_or((nak::SYMBOL_UNKNOWN, "The item is not published"))?;
        self.apply_post(id, post, out)
    }

    /// Applies the content of a post to the cached item, and passes it to all its streams with the poster's identity.
    fn apply_post(&mut self, id: ItemId, post: &Post<'_>, out: &mut Batch) -> Result<(), Refusal> {
        let item = self.items.get(id).ok_or((nak::NOT_OPEN, "The item is not open"))?;
        let message = posted_message(id, item, post)?;
        let unfit = (nak::INVALID_CONTENT, "The content of the post does not fit the item");
        self.values.message(id, &message).map_err(|_| unfit)?;
        if self.items.get(id).is_some_and(|i| !i.holders.is_empty()) {
            out.push(Kind::Message, SideId::ALL, id, 0, &message);
        }
        Ok(())
    }

    /// Acknowledges a post to its poster, or refuses it.
    fn answer_post(
        &mut self,
        post: &PendingPost,
        refusal: Option<Refusal>,
        seq: Option<u32>,
        out: &mut Batch,
    ) {
        let ack = Ack {
            domain: post.domain,
            stream: LOGIN_STREAM,
            ack_id: post.poster_id,
            nak: refusal.map(|(code, _)| code),
            text: refusal.map(|(_, text)| text.as_bytes()),
            seq,
            ..Ack::default()
        };
        if let Ok(bytes) = encode::write(&mut self.scratch, 256, |w| ack.encode(w)) {
            out.push(Kind::Reply, post.side, post.item, post.token, bytes);
        }
    }

    /// Passes an acknowledgement from upstream to the poster.
    pub(super) fn ack(
        &mut self,
        up: UpstreamId,
        message: &[u8],
        out: &mut Batch,
    ) -> Result<(), UpstreamError> {
        let ack = Ack::decode(message)?;
        let Some(post) = self.posts.acknowledge(up, ack.ack_id) else {
            self.stats.late += 1;
            return Ok(());
        };
        let service = self.items.get(post.item).map(|i| i.spec.service);
        let key = ack.key.map(|k| {
            let at = k.service.and_then(|id| self.services.offered(up, id));
            let named = at.and_then(|at| self.services.list.get(at)).map(|s| s.id).or(service);
            Key { service: named, ..k }
        });
        let ack = Ack { ack_id: post.poster_id, key, ..ack };
        let bytes = encode::write(&mut self.scratch, message.len() + 8, |w| ack.encode(w))?;
        out.push(Kind::Reply, post.side, post.item, post.token, bytes);
        Ok(())
    }

    /// Refuses the posts that wait for an acknowledgement of a lost upstream.
    pub(super) fn refuse_posts_of(&mut self, up: UpstreamId, out: &mut Batch) {
        let lost = (nak::SOURCE_DOWN, "The source was lost before it answered");
        for post in self.posts.take_of(up) {
            self.answer_post(&post, Some(lost), None, out);
        }
    }

    /// Refuses the posts whose acknowledgement did not come in time.
    pub(super) fn refuse_overdue_posts(&mut self, now: Now, out: &mut Batch) {
        let overdue = (nak::NO_RESPONSE, "The source did not answer in time");
        for _ in 0..PORTION {
            let Some(post) = self.posts.take_overdue(now) else { break };
            self.answer_post(&post, Some(overdue), None, out);
        }
    }
}

/// The destination of a message.
#[derive(Clone, Copy, Debug)]
struct Route {
    up: UpstreamId,
    stream: i32,
    /// The upstream's id of the service.
    service_id: u16,
}

impl Route {
    /// The key with the upstream's id of the service, if it has one.
    fn key<'a>(&self, key: Option<Key<'a>>) -> Option<Key<'a>> {
        key.map(|k| with_service(k, self.service_id))
    }
}

/// The item on whose stream a message goes; `ItemId::NONE` off an item's stream.
fn item_of(to: Target) -> ItemId {
    match to {
        Target::Item(id) => id,
        Target::Service(_) => ItemId::NONE,
    }
}

fn pending_post(
    side: SideId,
    token: Token,
    to: Target,
    up: UpstreamId,
    post: &Post<'_>,
    poster_id: u32,
) -> PendingPost {
    PendingPost {
        side,
        token,
        item: item_of(to),
        up,
        domain: post.domain,
        poster_id,
        unacknowledged: 1,
        complete: post.part.is_none() || post.flags.contains(PostFlags::COMPLETE),
    }
}

/// The message that a post carries, as one of the item's own: a bare container counts as an update.
fn posted_message(id: ItemId, item: &Item, post: &Post<'_>) -> Result<Vec<u8>, Refusal> {
    let invalid = (nak::INVALID_CONTENT, "The content of the post cannot be decoded");
    let carried = match post.container {
        DataType::MSG => Message::decode(post.payload).map_err(|_| invalid)?,
        container => {
            Message::Update(Update { container, payload: post.payload, seq: post.seq, ..Update::default() })
        }
    };
    if !item.phase.is_live() {
        return Err((nak::SOURCE_DOWN, "The item's publisher is not there"));
    }
    let (domain, stream) = (item.spec.domain, id.stream());
    let post_user = Some(post.post_user);
    let message = match carried {
        Message::Update(update) => Update { domain, stream, key: None, post_user, ..update.clone() }.to_vec(),
        Message::Refresh(refresh) if refresh.flags.contains(RefreshFlags::COMPLETE) => {
            let refresh = Refresh {
                domain,
                stream,
                flags: refresh.flags.without(RefreshFlags::SOLICITED),
                state: State::OK,
                group: &item.group,
                key: Some(item.spec.key(item.spec.service)),
                part: None,
                post_user,
                ..refresh
            };
            refresh.to_vec()
        }
        Message::Refresh(_) => return Err((nak::INVALID_CONTENT, "A posted image must have one part")),
        _ => return Err((nak::DENIED_BY_SOURCE, "Only images and updates can be posted here")),
    };
    message.map_err(|_| invalid)
}
