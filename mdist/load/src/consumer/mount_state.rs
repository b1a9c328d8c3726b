//! The state of one consumer: login, directory, dictionaries, and the counting of messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use rssl::rdm::{directory, login};
use rssl::rwf::{
    Ack, Class, DataState, Domain, Generic, Key, Message, Refresh, Request, RequestFlags, State, Status,
    Update, peek,
};
use rssl::transport::ClientOptions;
use rssl::wire::to_vec;

use super::streams::{FIRST_ITEM, Streams};
use super::{Counts, Shared};

const LOGIN: i32 = 1;
const DIRECTORY: i32 = 2;
const FIELDS: i32 = 3;
const ENUMS: i32 = 4;
/// Info, state and groups: the filter of the vendor's performance consumer.
const FILTER: u32 = 7;

/// Stages of a mount from connecting to requesting items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Connection,
    Login,
    Service,
    Dictionary,
    Items,
}

/// A mount without its connection.
pub(super) struct MountState {
    pub(super) shared: Arc<Shared>,
    pub(super) stage: Stage,
    /// Id of the service, while it is up.
    pub(super) service: Option<u16>,
    /// Names of the services in the directory, by id; `None` before the directory.
    services: Option<BTreeMap<u16, String>>,
    /// Dictionaries received.
    dictionaries: u8,
    pub(super) streams: Streams,
    pub(super) counts: Counts,
    /// Stamps since they were last taken: carrier, time sent, time received.
    pub(super) stamps: Vec<(Stamp, Duration, Duration)>,
}

/// The kind of message that carried a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    Update,
    Post,
    Generic,
}

impl MountState {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Self {
        Self {
            stage: Stage::Connection,
            service: None,
            services: None,
            dictionaries: 0,
            streams: Streams::new(&shared, number),
            counts: Counts::default(),
            stamps: Vec::new(),
            shared,
        }
    }

    /// Resets the state for a new connection, on which nothing is open.
    pub(super) fn reset(&mut self) {
        self.stage = Stage::Connection;
        self.service = None;
        self.services = None;
        self.dictionaries = 0;
        self.streams.reset();
    }

    /// Options of the mount's connections.
    pub(super) fn client_options(&self) -> ClientOptions {
        ClientOptions { host: self.shared.host.clone(), ip: "127.0.0.1".into(), ..ClientOptions::default() }
    }

    /// The login request; its answer is awaited from here on.
    pub(super) fn login(&mut self) -> Result<Vec<u8>> {
        self.stage = Stage::Login;
        let request = login::Request {
            user: self.shared.options.user.as_bytes(),
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

    /// Handles an update without optional parts, which almost every message is; false for any other message.
    #[inline]
    pub(super) fn update(&mut self, message: &[u8]) -> bool {
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
            // Read the clock again: after the read, many messages may have been handled before this one.
            self.stamps.push((Stamp::Update, sent, mdist::net::now()));
        }
        true
    }

    /// Handles any message; `reply` sends the answers.
    pub(super) fn message(
        &mut self,
        message: &[u8],
        reply: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
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
                if let Some(group) = status.group {
                    self.streams.set_group(stream, group);
                }
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

    /// Handles an update with optional parts: a post that comes back, or an update with its key.
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

    /// The services of the server, if it has told them and the wanted one is not among them.
    pub(super) fn services_instead(&self) -> Option<Vec<String>> {
        let services = self.services.as_ref().filter(|_| self.service.is_none())?;
        Some(services.values().cloned().collect())
    }

    /// Applies to the items what the directory announces for many of them.
    fn announced(&mut self, service: &directory::Service) {
        let Self { streams, shared, counts, .. } = self;
        if let Some(status) = service.state.as_ref().and_then(|state| state.status.as_ref()) {
            streams.announced(shared, None, None, Some(&status.borrow()), counts);
        }
        for group in &service.groups {
            let status = group.status.as_ref().map(|status| status.borrow());
            streams.announced(
                shared,
                Some(&group.group),
                group.merged_to.as_deref(),
                status.as_ref(),
                counts,
            );
        }
    }

    /// Handles a directory message: the service may appear, change or go at any time.
    fn directory(&mut self, payload: &[u8], reply: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.services.get_or_insert_default();
        for (action, service) in directory::decode(payload)? {
            let services = self.services.get_or_insert_default();
            match &service.info {
                _ if action == directory::Action::Delete => drop(services.remove(&service.id)),
                Some(info) => drop(services.insert(service.id, info.name.clone())),
                None => {}
            }
            let named = service.info.as_ref().is_some_and(|info| info.name == self.shared.options.service);
            if !named && self.service != Some(service.id) {
                continue;
            }
            self.announced(&service);
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
            if !self.shared.options.download {
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
