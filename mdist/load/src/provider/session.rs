//! One connection of a publisher: bytes in, bytes out, in either role.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use rssl::rdm::{directory, login};
use rssl::rwf::{
    Ack, Class, DataState, DataType, Domain, Generic, Key, Message, Post, Qos, Refresh, RefreshFlags,
    Request, RequestFlags, State, Status, StatusFlags, StreamState, code, nak, peek,
};
use rssl::transport::{Channel, ClientOptions, InputBuffer, Pulled, Received, ServerOptions, Tick};
use rssl::wire::to_vec;

use super::items::{Items, OpenItem};
use super::{Counts, Shared};
use crate::pace::{Burst, Pace};
use crate::values;

/// Output beyond which nothing more is made until some of it is gone, bytes.
const FULL: usize = 256 * 1024;
/// Streams that a publisher opens by itself start here and go down.
const FIRST_PUBLISHED: i32 = -6;
/// Images that are the same for all items are kept, so many of them.
const KEPT_IMAGES: usize = 16;

/// Who dialled whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// They dialled us and ask for items.
    Interactive,
    /// We dialled a distributor and send what we have.
    Publisher,
}

pub(super) struct Session {
    channel: Channel,
    desk: Desk,
    scratch: Vec<u8>,
    input: InputBuffer,
}

/// All of a session but its channel.
struct Desk {
    shared: Arc<Shared>,
    role: Role,
    items: Items,
    /// Images that are owed, in the order of the requests; a window of them is open at a time.
    owed: VecDeque<Owed>,
    /// Items not yet published.
    to_publish: std::ops::Range<usize>,
    ready: bool,
    pace: Option<Pace>,
    stamps: Stamps,
    left: Option<Burst>,
    counts: Counts,
    images: HashMap<(u8, u32), Arc<[u8]>>,
    over: Option<String>,
}

/// An image that was asked for.
struct Owed {
    stream: i32,
    service: Option<u16>,
    name: Box<[u8]>,
    set: u8,
    streaming: bool,
    private: bool,
}

/// Which updates carry stamps: one at a random place of each stretch of updates.
struct Stamps {
    stretch: u64,
    /// Updates until the next stamp, and from there to the end of its stretch.
    until: u64,
    rest: u64,
    random: u64,
}

impl Stamps {
    fn new(rate: u64, stamps: u64, random: u64) -> Self {
        let stretch = rate.checked_div(stamps).map_or(u64::MAX, |stretch| stretch.max(1));
        let mut all = Self { stretch, until: 0, rest: 0, random: random | 1 };
        all.advance();
        all
    }

    fn advance(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let place = if self.stretch == u64::MAX { u64::MAX } else { self.random % self.stretch };
        self.until = self.rest.saturating_add(place);
        self.rest = self.stretch - if place == u64::MAX { self.stretch } else { place + 1 };
    }
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, role: Role) -> Self {
        let channel = match role {
            Role::Interactive => Channel::server(ServerOptions::default()),
            Role::Publisher => {
                Channel::client(ClientOptions { host: shared.host.clone(), ..ClientOptions::default() })
            }
        };
        let to_publish = 0..if role == Role::Publisher { shared.items.len() } else { 0 };
        let desk = Desk {
            role,
            items: Items::default(),
            owed: VecDeque::new(),
            to_publish,
            ready: false,
            pace: None,
            stamps: Stamps::new(1, 0, 1),
            left: None,
            counts: Counts::default(),
            images: HashMap::new(),
            over: None,
            shared,
        };
        Self { channel, desk, scratch: Vec::new(), input: InputBuffer::default() }
    }

    /// Bytes that the channel wants to send by itself, the handshake above all.
    pub(super) fn greet(&mut self, out: &mut Vec<u8>) {
        self.channel.take_output(out);
    }

    /// Takes what was received.
    ///
    /// # Errors
    /// The connection is over; why.
    pub(super) fn input(&mut self, now: Duration, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.channel.received(now);
        let mut input = std::mem::take(&mut self.input);
        let result = input.receive(bytes, |received| self.handle(now, received, out));
        self.input = input;
        result?;
        match self.desk.over.take() {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }

    /// Handles every whole message in `received`.
    fn handle(&mut self, now: Duration, received: &mut Received<'_>, out: &mut Vec<u8>) -> Result<()> {
        loop {
            match received.pull(&mut self.channel)? {
                Pulled::NeedMore => return Ok(()),
                Pulled::Opened(_) => {
                    self.channel.take_output(out);
                    if self.desk.role == Role::Publisher {
                        let request = self.desk.login_request()?;
                        self.channel.write(&request, out)?;
                    }
                }
                Pulled::Handshake => self.channel.take_output(out),
                Pulled::Ping => {}
                Pulled::Refused { text } => bail!("refused: {text}"),
                Pulled::Message(message) => {
                    self.scratch.clear();
                    self.scratch.extend_from_slice(message);
                    let (desk, channel) = (&mut self.desk, &mut self.channel);
                    desk.message(now, &self.scratch, &mut |reply: &[u8]| Ok(channel.write(reply, out)?))?;
                }
            }
        }
    }

    /// Sends what is due: images first, then updates. `true`: there is more to do as soon as the output is gone.
    ///
    /// # Errors
    /// The connection is over; why.
    pub(super) fn work(&mut self, now: Duration, out: &mut Vec<u8>) -> Result<bool> {
        match self.channel.tick(now) {
            Tick::None => {}
            Tick::SendPing => {
                self.channel.ping(out);
                self.channel.sent(now);
            }
            Tick::PeerSilent => bail!("the peer was silent for its ping timeout"),
        }
        let (desk, channel) = (&mut self.desk, &mut self.channel);
        desk.images(out, |message, out| Ok(channel.write(message, out)?))?;
        desk.updates(now, out, |message, out| Ok(channel.write(message, out)?))?;
        Ok(out.len() >= FULL)
    }

    /// Output was sent.
    pub(super) fn sent(&mut self, now: Duration) {
        self.channel.sent(now);
    }

    /// When there is something to do, if nothing arrives.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let tick = self.desk.pace.as_ref().filter(|_| self.desk.items.len() > 0).map(Pace::next);
        tick.into_iter().chain(self.channel.deadline()).min()
    }

    pub(super) fn counts(&self) -> Counts {
        let missed = self.desk.pace.as_ref().map_or(0, Pace::missed);
        Counts {
            missed: self.desk.counts.missed + missed,
            items: self.desk.items.len() as u64,
            ..self.desk.counts
        }
    }

    /// (name, updates so far) of each open item.
    pub(super) fn item_counts(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.desk.items.counts()
    }
}

impl Desk {
    fn login_request(&self) -> Result<Vec<u8>> {
        let request = login::Request {
            user: self.shared.user.as_bytes(),
            attributes: login::Attributes {
                application_name: Some(b"sink_driven_src"),
                role: 1,
                single_open: false,
                ..login::Attributes::default()
            },
            ..login::Request::default()
        };
        Ok(to_vec(|w| request.encode(1, w))?)
    }

    fn message(
        &mut self,
        now: Duration,
        message: &[u8],
        reply: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let head = peek(message)?;
        match (head.class, head.domain) {
            (Class::Request, Domain::LOGIN) => {
                let request = Request::decode(message)?;
                self.ready = true;
                self.counts.logins += 1;
                let asked = login::Request::decode(&request)?;
                let answer = login::Reply {
                    user: asked.user,
                    name_type: asked.name_type,
                    attributes: login::Attributes { single_open: false, ..asked.attributes },
                    support_post: true,
                    ..login::Reply::default()
                };
                reply(&to_vec(|w| answer.encode(request.stream, w))?)
            }
            (Class::Refresh, Domain::LOGIN) => {
                let refresh = Refresh::decode(message)?;
                if refresh.state.is_final() {
                    bail!("the login was refused: {}", String::from_utf8_lossy(refresh.state.text));
                }
                if !self.ready {
                    self.ready = true;
                    self.counts.logins += 1;
                    reply(&self.shared.directory(-1, directory::filter::ALL, None, false)?)?;
                }
                Ok(())
            }
            (Class::Status, Domain::LOGIN) => {
                let status = Status::decode(message)?;
                if let Some(state) = status.state.filter(State::is_final) {
                    bail!("the login was ended: {}", String::from_utf8_lossy(state.text));
                }
                Ok(())
            }
            (Class::Request, Domain::DIRECTORY) => {
                let request = Request::decode(message)?;
                let filter = request.key.filter.unwrap_or(directory::filter::ALL);
                reply(&self.shared.directory(request.stream, filter, request.key.service, true)?)
            }
            (Class::Request, Domain::DICTIONARY) => {
                for part in self.shared.dictionary(&Request::decode(message)?)? {
                    reply(&part)?;
                }
                Ok(())
            }
            (Class::Request, _) => self.request(now, &Request::decode(message)?, reply),
            (Class::Close, Domain::LOGIN) => {
                self.items.clear();
                self.owed.clear();
                self.over = Some("the peer logged out".into());
                Ok(())
            }
            (Class::Close, _) => {
                self.counts.closes += 1;
                self.items.remove(head.stream);
                self.owed.retain(|owed| owed.stream != head.stream);
                Ok(())
            }
            (Class::Post, _) => self.post(&Post::decode(message)?, reply),
            (Class::Generic, domain) if !domain.is_administrative() => {
                let generic = Generic::decode(message)?;
                self.counts.generics += 1;
                let echo = Generic { key: None, perm: None, ext: None, req_key: None, ..generic };
                reply(&to_vec(|w| echo.encode(w))?)
            }
            _ => Ok(()),
        }
    }

    fn request(
        &mut self,
        _now: Duration,
        request: &Request<'_>,
        reply: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.counts.requests += 1;
        let place = self.shared.sets.iter().position(|set| set.domain == request.domain);
        let refused = match (place, request.key.name) {
            _ if request.key.service.is_some_and(|service| service != self.shared.service_id) => {
                Some((code::SOURCE_UNKNOWN, "no such service here"))
            }
            _ if request.flags.contains(RequestFlags::BATCH) => {
                Some((code::NO_BATCH_VIEW_SUPPORT, "no batch requests here"))
            }
            (None, _) => Some((code::USAGE_ERROR, "no data of this domain here")),
            (_, None) => Some((code::USAGE_ERROR, "a request needs a name")),
            (_, Some(name)) if !self.shared.knows(name) => Some((code::NOT_FOUND, "no such item")),
            _ => None,
        };
        if let Some((why, text)) = refused {
            let status = Status {
                domain: request.domain,
                stream: request.stream,
                flags: if request.flags.contains(RequestFlags::PRIVATE) {
                    StatusFlags::PRIVATE
                } else {
                    StatusFlags::NONE
                },
                state: Some(State::new(StreamState::Closed, DataState::Suspect, why, text.as_bytes())),
                ..Status::default()
            };
            return reply(&to_vec(|w| status.encode(w))?);
        }
        if request.flags.contains(RequestFlags::NO_REFRESH) {
            return Ok(());
        }
        self.owed.push_back(Owed {
            stream: request.stream,
            service: request.key.service,
            name: request.key.name.unwrap_or_default().into(),
            set: place.unwrap_or(0) as u8,
            streaming: request.flags.contains(RequestFlags::STREAMING),
            private: request.flags.contains(RequestFlags::PRIVATE),
        });
        Ok(())
    }

    /// Acknowledges a contribution and gives it out again, as a distributor would.
    fn post(&mut self, post: &Post<'_>, reply: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.counts.posts += 1;
        let item = self.items.get(post.stream);
        if post.flags.contains(rssl::rwf::PostFlags::ACK) {
            let unknown = item.is_none() && post.domain != Domain::LOGIN;
            let ack = Ack {
                domain: post.domain,
                stream: post.stream,
                ack_id: post.post_id.unwrap_or(0),
                seq: post.seq,
                nak: unknown.then_some(nak::NOT_OPEN),
                ..Ack::default()
            };
            reply(&to_vec(|w| ack.encode(w))?)?;
        }
        let Some(set) = item.and_then(|item| self.shared.sets.get(usize::from(item.set))) else {
            return Ok(());
        };
        let (container, payload) = if post.container == DataType::MSG {
            let inner = Message::decode(post.payload)?;
            (inner.container(), inner.payload())
        } else {
            (post.container, post.payload)
        };
        match Items::posted(set, post.stream, post.post_user, container, payload) {
            Some(update) => reply(&update),
            None => Ok(()),
        }
    }

    /// Sends owed images while there is room.
    fn images(
        &mut self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        while out.len() < FULL {
            let Some(owed) = self.owed.pop_front().or_else(|| self.next_published()) else { return Ok(()) };
            let seed = values::seed(&owed.name);
            let n = self.items.get(owed.stream).map_or(0, |item| item.n);
            let Some(set) = self.shared.sets.get(usize::from(owed.set)) else { continue };
            let (domain, container) = (set.domain, set.refresh.container());
            let payload = self.image(owed.set, seed, n)?;
            let solicited = self.role == Role::Interactive;
            let mut flags = RefreshFlags::COMPLETE.with(RefreshFlags::CLEAR_CACHE);
            if solicited {
                flags.insert(RefreshFlags::SOLICITED);
            }
            if owed.private {
                flags.insert(RefreshFlags::PRIVATE);
            }
            let stream_state = if owed.streaming { StreamState::Open } else { StreamState::NonStreaming };
            let refresh = Refresh {
                domain,
                stream: owed.stream,
                flags,
                container,
                state: State::new(stream_state, DataState::Ok, code::NONE, b""),
                group: &[0, 0],
                qos: Some(Qos::REALTIME_TICK),
                key: Some(Key::item(owed.service.unwrap_or(self.shared.service_id), &owed.name)),
                payload: &payload,
                ..Refresh::default()
            };
            write(&to_vec(|w| refresh.encode(w))?, out)?;
            self.counts.refreshes += 1;
            if owed.streaming && self.items.get(owed.stream).is_none() {
                self.items.add(OpenItem { stream: owed.stream, seed, n, set: owed.set }, &owed.name);
            }
        }
        Ok(())
    }

    /// The next item that this publisher sends without being asked.
    fn next_published(&mut self) -> Option<Owed> {
        if self.role != Role::Publisher || !self.ready {
            return None;
        }
        let place = self.to_publish.next()?;
        let item = self.shared.items.get(place)?;
        Some(Owed {
            stream: FIRST_PUBLISHED - i32::try_from(place).ok()?,
            service: Some(self.shared.service_id),
            name: item.name.as_bytes().into(),
            set: self.shared.sets.iter().position(|set| set.domain == item.domain)? as u8,
            streaming: true,
            private: false,
        })
    }

    fn image(&mut self, set: u8, seed: u32, n: u32) -> Result<Arc<[u8]>> {
        let Some(messages) = self.shared.sets.get(usize::from(set)) else { bail!("no such message set") };
        if let Some(kept) = self.images.get(&(set, n)) {
            return Ok(kept.clone());
        }
        let payload: Arc<[u8]> = messages.image(seed, n).body().encode()?.into();
        if !messages.running {
            if self.images.len() >= KEPT_IMAGES {
                self.images.clear();
            }
            self.images.insert((set, n), payload.clone());
        }
        Ok(payload)
    }

    fn updates(
        &mut self,
        now: Duration,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let rate = self.shared.rate();
        if self.items.len() == 0 || !self.ready {
            return Ok(());
        }
        let pace = match &mut self.pace {
            Some(pace) if pace.rate() == rate => pace,
            _ => {
                if let Some(old) = self.pace.take() {
                    self.counts.missed += old.missed();
                }
                // The end is that of a round, so that all items have had as many and totals can be compared.
                let count = if rate == 0 { self.items.rest_of_round() } else { 0 };
                self.left = (count > 0).then_some(Burst { count, scheduled: now });
                self.stamps =
                    Stamps::new(rate, if rate == 0 { 0 } else { self.shared.stamps }, now.as_nanos() as u64);
                self.pace.insert(Pace::new(rate, self.shared.ticks, now))
            }
        };
        while out.len() < FULL {
            let Some(mut burst) = self.left.take().or_else(|| pace.due(now)) else { break };
            while burst.count > 0 && out.len() < FULL {
                let plain = burst.count.min(self.stamps.until);
                let done = self.items.updates(&self.shared.sets, plain, FULL, out);
                burst.count -= done;
                self.counts.updates += done;
                self.stamps.until = self.stamps.until.saturating_sub(done);
                if done < plain || burst.count == 0 {
                    continue;
                }
                self.stamps.advance();
                let at = if self.shared.stamp_when_sent { mdist::net::now() } else { burst.scheduled };
                if let Some(update) =
                    self.items.stamped_update(&self.shared.sets, at, self.shared.nanoseconds)
                {
                    write(&update, out)?;
                    self.counts.stamps += 1;
                }
                burst.count -= 1;
                self.counts.updates += 1;
            }
            if burst.count > 0 {
                self.left = Some(burst);
            }
        }
        Ok(())
    }
}
