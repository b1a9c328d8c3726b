//! One consumer's connection: login, directory, item requests, and the counting of what comes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use rssl::rdm::{directory, login};
use rssl::rwf::{
    Ack, Class, DataState, Domain, Generic, Key, Message, Refresh, Request, RequestFlags, State, Status,
    StreamState, Update, peek,
};
use rssl::transport::{Channel, ClientOptions, InputBuffer, Pulled, Tick};
use rssl::wire::to_vec;

use super::streams::{FIRST_ITEM, Phase, Streams};
use super::{Counts, Shared};

const LOGIN: i32 = 1;
const DIRECTORY: i32 = 2;
const FIELDS: i32 = 3;
const ENUMS: i32 = 4;
/// Info, state and groups: what the vendor's performance consumer asks for.
const FILTER: u32 = 7;

/// What a mount waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Connection,
    Login,
    Service,
    Dictionary,
    Items,
}

pub(super) struct Mount {
    channel: Channel,
    input: InputBuffer,
    scratch: Vec<u8>,
    pub(super) desk: Desk,
}

/// All of a mount but its connection.
pub(super) struct Desk {
    shared: Arc<Shared>,
    stage: Stage,
    service: Option<u16>,
    dictionaries: u8,
    pub(super) streams: Streams,
    pub(super) counts: Counts,
    /// (what, sent, received) since they were last taken.
    pub(super) stamps: Vec<(Stamp, Duration, Duration)>,
}

/// What carried a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    Update,
    Post,
    Generic,
}

impl Mount {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Self {
        let streams = Streams::new(&shared, number);
        let desk = Desk {
            stage: Stage::Connection,
            service: None,
            dictionaries: 0,
            streams,
            counts: Counts::default(),
            stamps: Vec::new(),
            shared,
        };
        Self {
            channel: Channel::client(desk.client()),
            input: InputBuffer::default(),
            scratch: Vec::new(),
            desk,
        }
    }

    /// Begins anew on another connection: nothing is open.
    pub(super) fn restart(&mut self, out: &mut Vec<u8>) {
        self.channel = Channel::client(self.desk.client());
        self.input.clear();
        self.desk.stage = Stage::Connection;
        self.desk.service = None;
        self.desk.dictionaries = 0;
        self.desk.streams.reset();
        self.channel.take_output(out);
    }

    /// Handles received bytes, which begin with those of [`Self::unread`].
    ///
    /// # Errors
    /// Why the connection is over.
    pub(super) fn input(&mut self, now: Duration, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let Self { channel, input, scratch, desk } = self;
        channel.received(now);
        input.receive_joined(bytes, |received| {
            loop {
                match received.pull(channel)? {
                    Pulled::Message(message) => {
                        if desk.update(message) {
                            continue;
                        }
                        scratch.clear();
                        scratch.extend_from_slice(message);
                        desk.message(scratch, &mut |reply: &[u8]| Ok(channel.write(reply, out)?))?;
                    }
                    Pulled::NeedMore => return Ok(()),
                    Pulled::Ping => {}
                    Pulled::Handshake => channel.take_output(out),
                    Pulled::Opened(_) => {
                        channel.take_output(out);
                        let request = desk.login()?;
                        channel.write(&request, out)?;
                    }
                    Pulled::Refused { text } => bail!("refused: {text}"),
                }
            }
        })
    }

    /// The front of an incomplete frame: the bytes to put before the next ones that are read.
    pub(super) fn unread(&self) -> &[u8] {
        self.input.unread()
    }

    /// Pings.
    ///
    /// # Errors
    /// The peer was silent for too long.
    pub(super) fn tick(&mut self, now: Duration, out: &mut Vec<u8>) -> Result<()> {
        match self.channel.tick(now) {
            Tick::None => {}
            Tick::SendPing => {
                self.channel.ping(out);
                self.channel.sent(now);
            }
            Tick::PeerSilent => bail!("the server was silent for its ping timeout"),
        }
        Ok(())
    }

    pub(super) fn sent(&mut self, now: Duration) {
        self.channel.sent(now);
    }

    /// Asks for at most `count` items more; returns how many.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn request(&mut self, count: u64, out: &mut Vec<u8>) -> Result<u64> {
        let Some(service) = self.desk.service.filter(|_| self.desk.stage == Stage::Items) else {
            return Ok(0);
        };
        let mut asked = 0;
        while asked < count {
            let Some((stream, item)) = self.desk.streams.next_unasked(&self.desk.shared.items) else { break };
            let mut flags = RequestFlags::NONE;
            if !(item.snapshot || self.desk.shared.snapshot) {
                flags.insert(RequestFlags::STREAMING);
            }
            if item.generic {
                flags.insert(RequestFlags::PRIVATE);
            }
            let key = Key { service: Some(service), name: Some(item.name.as_bytes()), ..Key::default() };
            let request = Request { domain: item.domain, stream, flags, key, ..Request::default() };
            self.channel.write(&to_vec(|w| request.encode(w))?, out)?;
            asked += 1;
        }
        self.desk.counts.requests += asked;
        Ok(asked)
    }

    /// Whether it has items that were not asked for yet and may be asked for now.
    pub(super) fn wants_items(&self) -> bool {
        self.desk.stage == Stage::Items && self.desk.service.is_some() && self.desk.streams.has_unasked()
    }

    /// Sends `count` contributions, or generic messages, the first with a stamp if one is given.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn send(
        &mut self,
        kind: super::Sent,
        count: u64,
        stamp: Option<Duration>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        for number in 0..count {
            let stamp = stamp.filter(|_| number == 0);
            let Some(message) = self.desk.streams.outgoing(&self.desk.shared, kind, stamp) else {
                return Ok(());
            };
            self.channel.write(&message, out)?;
            match kind {
                super::Sent::Post => self.desk.counts.posts += 1,
                super::Sent::Generic => self.desk.counts.generics_sent += 1,
            }
        }
        Ok(())
    }
}

impl Desk {
    fn client(&self) -> ClientOptions {
        ClientOptions { host: self.shared.host.clone(), ip: "127.0.0.1".into(), ..ClientOptions::default() }
    }

    fn login(&mut self) -> Result<Vec<u8>> {
        self.stage = Stage::Login;
        let request = login::Request {
            user: self.shared.user.as_bytes(),
            attributes: login::Attributes {
                application_id: Some(b"256"),
                application_name: Some(b"rmdstestclient"),
                position: Some(b"127.0.0.1/net"),
                single_open: true,
                allow_suspect: true,
                ..login::Attributes::default()
            },
            ..login::Request::default()
        };
        Ok(to_vec(|w| request.encode(LOGIN, w))?)
    }

    /// The way of almost every message: an update without optional parts. `false`: it is something else.
    #[inline]
    fn update(&mut self, message: &[u8]) -> bool {
        let &[_, _, class, _, a, b, c, d, flags, _, _, ..] = message else { return false };
        if class != Class::Update as u8 || flags != 0 {
            return false;
        }
        let stream = i32::from_be_bytes([a, b, c, d]);
        if stream < FIRST_ITEM {
            return false;
        }
        self.counts.updates += 1;
        if !self.streams.update(&self.shared, stream, message, &mut self.counts) {
            return true;
        }
        if message.len() != self.shared.plain_len
            && let Some(sent) = self.shared.stamp_of(message)
        {
            self.counts.stamps += 1;
            // Not when the whole read began: this is one of the last of many messages, perhaps.
            self.stamps.push((Stamp::Update, sent, mdist::net::now()));
        }
        true
    }

    fn message(&mut self, message: &[u8], reply: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let head = peek(message)?;
        match (head.class, head.stream) {
            (Class::Refresh, LOGIN) => self.logged_in(&Refresh::decode(message)?.state, reply),
            (Class::Status, LOGIN) => match Status::decode(message)?.state {
                Some(state) => self.logged_in(&state, reply),
                None => Ok(()),
            },
            (Class::Refresh | Class::Update, DIRECTORY) => {
                let message = Message::decode(message)?;
                self.directory(message.payload(), reply)
            }
            (Class::Refresh, FIELDS | ENUMS) => {
                let refresh = Refresh::decode(message)?;
                self.counts.dictionary_bytes += refresh.payload.len() as u64;
                if refresh.flags.contains(rssl::rwf::RefreshFlags::COMPLETE) {
                    self.dictionaries += 1;
                    if self.dictionaries == 2 && self.stage == Stage::Dictionary {
                        self.stage = Stage::Items;
                    }
                }
                Ok(())
            }
            (Class::Status, FIELDS | ENUMS) => bail!("the server refused a dictionary"),
            (Class::Refresh, stream) => {
                let refresh = Refresh::decode(message)?;
                self.counts.refreshes += 1;
                self.streams.refresh(&self.shared, stream, &refresh, &mut self.counts)
            }
            (Class::Status, stream) => {
                let status = Status::decode(message)?;
                self.counts.statuses += 1;
                if let Some(state) = &status.state {
                    self.streams.state(&self.shared, stream, state, &mut self.counts);
                }
                Ok(())
            }
            (Class::Update, stream) => self.rich_update(stream, message),
            (Class::Ack, _) => {
                let ack = Ack::decode(message)?;
                if ack.nak.is_some() {
                    self.counts.naks += 1
                } else {
                    self.counts.acks += 1
                }
                Ok(())
            }
            (Class::Generic, _) => {
                let generic = Generic::decode(message)?;
                if !head.domain.is_administrative() {
                    self.counts.generics += 1;
                    if let Some(sent) = self.shared.stamp_in(generic.payload, crate::message_set::TIM_TRK_3) {
                        self.stamps.push((Stamp::Generic, sent, mdist::net::now()));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An update with optional parts: a contribution that comes back, or one with its key.
    fn rich_update(&mut self, stream: i32, message: &[u8]) -> Result<()> {
        let update = Update::decode(message)?;
        if update.post_user == Some(self.shared.post_user) {
            self.counts.posts_back += 1;
            if let Some(sent) = self.shared.stamp_in(update.payload, crate::message_set::TIM_TRK_2) {
                self.stamps.push((Stamp::Post, sent, mdist::net::now()));
            }
            return Ok(());
        }
        self.counts.updates += 1;
        if update.post_user.is_some() {
            return Ok(());
        }
        self.streams.rich_update(&self.shared, stream, &update, &mut self.counts)?;
        if let Some(sent) = self.shared.stamp_in(update.payload, crate::message_set::TIM_TRK_1) {
            self.counts.stamps += 1;
            self.stamps.push((Stamp::Update, sent, mdist::net::now()));
        }
        Ok(())
    }

    fn logged_in(&mut self, state: &State<'_>, reply: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if state.is_final() {
            bail!("the login was refused: {} (code {})", String::from_utf8_lossy(state.text), state.code);
        }
        if state.data != DataState::Ok || self.stage != Stage::Login {
            return Ok(());
        }
        self.stage = Stage::Service;
        self.counts.logins += 1;
        let request = Request {
            domain: Domain::DIRECTORY,
            stream: DIRECTORY,
            flags: RequestFlags::STREAMING,
            key: Key { filter: Some(FILTER), ..Key::default() },
            ..Request::default()
        };
        reply(&to_vec(|w| request.encode(w))?)
    }

    /// Looks for the service; it may come later, and it may have come up.
    fn directory(&mut self, payload: &[u8], reply: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for (action, service) in directory::decode(payload)? {
            let named = service.info.as_ref().is_some_and(|info| info.name == self.shared.service);
            if !named && self.service != Some(service.id) {
                continue;
            }
            let gone = action == directory::Action::Delete;
            let up = service.state.as_ref().is_none_or(|state| state.up && state.accepting);
            if gone || !up {
                self.counts.service_downs += 1;
                self.service = if gone { None } else { Some(service.id) };
                continue;
            }
            self.service = Some(service.id);
            if self.stage != Stage::Service {
                continue;
            }
            if !self.shared.download {
                self.stage = Stage::Items;
                continue;
            }
            self.stage = Stage::Dictionary;
            for (stream, name) in [(FIELDS, "RWFFld"), (ENUMS, "RWFEnum")] {
                let key = Key {
                    service: self.service,
                    name: Some(name.as_bytes()),
                    filter: Some(7),
                    ..Key::default()
                };
                let request = Request { domain: Domain::DICTIONARY, stream, key, ..Request::default() };
                reply(&to_vec(|w| request.encode(w))?)?;
            }
        }
        Ok(())
    }
}

impl Phase {
    /// Where a state leaves a stream.
    pub(super) fn after(state: &State<'_>, snapshot: bool) -> Self {
        match (state.stream, state.data) {
            (StreamState::ClosedRecover, _) => Self::Again,
            (StreamState::Closed | StreamState::Redirected, _) => Self::Closed,
            (StreamState::NonStreaming, DataState::Ok) if snapshot => Self::Done,
            (_, DataState::Suspect) => Self::Suspect,
            _ => Self::Open,
        }
    }
}
