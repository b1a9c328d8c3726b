//! One session after the other with the server: logs in, chooses the service, requests the items and prints them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use mdist::dictionaries::Half;
use mdist::net::{Now, now};
use mdist::upstream::{Consumer, Event, Login, Session as _};
use rssl::dictionary::Dictionary;

use rssl::rdm::directory::{Action, Service};
use rssl::rwf::{DataState, Key, OwnedState, Printed, Request, RequestFlags, State, Status, StreamState};
use rssl::transport::ClientOptions;

use super::Cli;
use super::catalogue::{Catalogue, Choice};
use super::fields::{self, Texts};
use super::report::{self, Message};

/// Pause before the next connection.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Time after which the user is told why nothing is shown yet.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for input, after which timers run.
const TICK: Duration = Duration::from_millis(200);
/// Stream of the first item: those below belong to the session.
const FIRST: i32 = 16;

/// One item.
#[derive(Debug, Default)]
struct Item {
    texts: Texts,
    /// Whether its stream has ended for good, or its snapshot has come.
    done: bool,
    /// Whether its stream ended without an image that may be shown.
    failed: bool,
    /// When it is to be requested again.
    reopen: Option<Now>,
    /// Its item group; `None` before its first image.
    group: Option<Vec<u8>>,
}

/// What a session has received.
enum Received {
    /// A message of an item.
    Message(Vec<u8>),
    /// A state, or another group, for all items of a service or of a group.
    Announced { service: u16, group: Option<Vec<u8>>, merged_to: Option<Vec<u8>>, state: Option<OwnedState> },
}

/// What a change of the directory announces for many items.
fn announced(changes: &[(Action, Service)]) -> impl Iterator<Item = Received> + '_ {
    changes.iter().flat_map(|(_, service)| {
        let state = service.state.as_ref().and_then(|state| state.status.clone());
        let of_service = state.map(|state| Received::Announced {
            service: service.id,
            group: None,
            merged_to: None,
            state: Some(state),
        });
        let of_groups = service.groups.iter().map(|change| Received::Announced {
            service: service.id,
            group: Some(change.group.clone()),
            merged_to: change.merged_to.clone(),
            state: change.status.clone(),
        });
        of_service.into_iter().chain(of_groups)
    })
}

/// The items and what was received so far.
pub(super) struct Viewer<'a> {
    cli: &'a Cli,
    dictionary: Dictionary,
    catalogue: Catalogue,
    items: Vec<Item>,
    /// Id and name of the service, once items are requested.
    service: Option<(u16, String)>,
    /// Images and updates so far.
    shown: u64,
    /// The reason to wait that the user was told last.
    told: String,
    /// Since when it waits for a service.
    waits_since: Option<Now>,
    /// Whether a session was open before.
    was_open: bool,
}

impl<'a> Viewer<'a> {
    pub(super) fn new(cli: &'a Cli) -> Self {
        Self {
            cli,
            dictionary: Dictionary::small(),
            catalogue: Catalogue::default(),
            items: cli.items.iter().map(|_| Item::default()).collect(),
            service: None,
            shown: 0,
            told: String::new(),
            waits_since: None,
            was_open: false,
        }
    }

    /// Whether another session may help after this error.
    pub(super) fn may_reconnect(&self, why: &anyhow::Error) -> bool {
        let is_lost = why.downcast_ref::<std::io::Error>().is_some() || why.downcast_ref::<Lost>().is_some();
        self.was_open && !self.cli.snapshot && !self.cli.services && is_lost
    }

    /// Serves one session, until everything that the user wants was shown.
    pub(super) fn watch(&mut self, to: SocketAddr) -> Result<()> {
        let connected = TcpStream::connect_timeout(&to, CONNECT_LIMIT);
        let mut socket = match connected {
            Ok(socket) => socket,
            Err(why) if self.was_open => return Err(why.into()),
            Err(why) => bail!("cannot connect: {why} (does a server run there? try p2ps --demo)"),
        };
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TICK))?;
        let mut session = Consumer::new(transport(), self.login(), now());
        (self.service, self.catalogue) = (None, Catalogue::default());
        let mut buffer = vec![0; 64 * 1024];
        loop {
            socket.write_all(session.output())?;
            session.output().clear();
            session.written(now());
            if self.is_done()? {
                return Ok(());
            }
            let count = match socket.read(&mut buffer) {
                Ok(0) => bail!(Lost(session.ended("closed by the server").to_string())),
                Ok(count) => count,
                Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Err(why.into()),
            };
            self.input(&mut session, buffer.get(..count).unwrap_or_default())?;
            self.request_due(&mut session)?;
            session.tick(now()).map_err(|why| Lost(why.to_string()))?;
        }
    }

    fn login(&self) -> Login {
        let user =
            self.cli.user.clone().or_else(|| std::env::var("USER").ok().filter(|name| !name.is_empty()));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Login {
            user: user.unwrap_or_else(|| "rmdsview".into()),
            application_id: "256".into(),
            application: "rmdsview".into(),
            position: format!("127.0.0.1/{host}"),
        }
    }

    /// Whether everything was shown that the user wants.
    fn is_done(&self) -> Result<bool> {
        if self.cli.services {
            return Ok(self.catalogue.all().is_some());
        }
        if self.cli.count.is_some_and(|count| self.shown >= count) {
            return Ok(true);
        }
        if !self.items.iter().all(|item| item.done) {
            return Ok(false);
        }
        let failed = self.items.iter().zip(&self.cli.items).filter(|(item, _)| item.failed);
        let failed: Vec<_> = failed.map(|(_, name)| name.as_str()).collect();
        ensure!(failed.is_empty(), "the server has closed {}", failed.join(", "));
        Ok(true)
    }

    /// Handles received bytes, and requests the items once their service is known.
    fn input(&mut self, session: &mut Consumer, bytes: &[u8]) -> Result<()> {
        let mut all: Vec<Received> = Vec::new();
        let catalogue = &mut self.catalogue;
        let taken = session.input(bytes, now(), |event| {
            match event {
                Event::Up => {}
                Event::Services { changes, replaces } => {
                    catalogue.apply(&changes, replaces);
                    all.extend(announced(&changes));
                }
                Event::Message(message) => all.push(Received::Message(message.to_vec())),
            }
            Ok(())
        });
        for (changes, replaces) in session.release_directories(now()) {
            self.catalogue.apply(&changes, replaces);
        }
        self.learn(session);
        self.was_open |= session.is_open();
        for received in &all {
            if self.cli.count.is_none_or(|count| self.shown < count) {
                match received {
                    Received::Message(message) => self.message(message)?,
                    Received::Announced { service, group, merged_to, state } => {
                        self.announced(*service, group.as_deref(), merged_to.as_deref(), state.as_ref())?
                    }
                }
            }
        }
        taken.map_err(|why| Lost(why.to_string()))?;
        if self.cli.services && session.is_open() {
            return report::services(&self.catalogue, self.cli.json);
        }
        if session.is_open() && self.service.is_none() {
            self.request(session)?;
        }
        Ok(())
    }

    /// Takes the dictionaries that have arrived.
    fn learn(&mut self, session: &mut Consumer) {
        let (received, failures) = session.take_dictionaries();
        for half in received {
            match half {
                Half::Fields(fields) => self.dictionary.fields = fields,
                Half::Enums(enums) => self.dictionary.enums = enums,
            }
        }
        for why in failures {
            eprintln!("rmdsview: no dictionary {why}; fields may show as numbers and bytes");
        }
    }

    /// Requests the items, if their service is known.
    fn request(&mut self, session: &mut Consumer) -> Result<()> {
        let (id, name) = match self.catalogue.choose(self.cli.service.as_deref()) {
            Choice::Service(id, name) => (id, name),
            Choice::Unknown(why) => bail!(why),
            Choice::Wait(why) => {
                let since = *self.waits_since.get_or_insert_with(now);
                if self.told != why && now().saturating_sub(since) >= PATIENCE {
                    eprintln!("rmdsview: {}: {why}; waiting", self.cli.server);
                    self.told = why;
                }
                return Ok(());
            }
        };
        for item in self.items.iter_mut().filter(|item| !item.done) {
            item.reopen = Some(Now::ZERO);
        }
        self.service = Some((id, name));
        self.request_due(session)
    }

    /// Requests the items that are due.
    fn request_due(&mut self, session: &mut Consumer) -> Result<()> {
        let Some((service, _)) = &self.service else { return Ok(()) };
        let flags = if self.cli.snapshot { RequestFlags::NONE } else { RequestFlags::STREAMING };
        for ((stream, name), item) in (FIRST..).zip(&self.cli.items).zip(&mut self.items) {
            if item.reopen.take_if(|due| *due <= now()).is_none() {
                continue;
            }
            session.send(
                &Request::new(
                    self.cli.domain,
                    stream,
                    flags,
                    Key { name_type: Some(1), ..Key::item(*service, name.as_bytes()) },
                )
                .to_vec()?,
            )?;
        }
        Ok(())
    }

    /// Prints a state that the directory announces for the items of a service or group, as a status of each.
    fn announced(
        &mut self,
        service: u16,
        group: Option<&[u8]>,
        merged_to: Option<&[u8]>,
        state: Option<&OwnedState>,
    ) -> Result<()> {
        if self.service.as_ref().is_none_or(|known| known.0 != service) {
            return Ok(());
        }
        for (stream, place) in (FIRST..).zip(0..self.items.len()) {
            let Some(item) = self.items.get_mut(place) else { return Ok(()) };
            let concerned = item.group.as_deref().is_some_and(|own| group.is_none_or(|group| group == own));
            if !concerned || item.done || item.reopen.is_some() {
                continue;
            }
            item.group = merged_to.map(<[u8]>::to_vec).or_else(|| item.group.take());
            if let Some(state) = state {
                self.message(&Status::new(self.cli.domain, stream, state.borrow()).to_vec()?)?;
            }
        }
        Ok(())
    }

    /// Prints a message of an item.
    fn message(&mut self, bytes: &[u8]) -> Result<()> {
        use rssl::rwf::Message as Rwf;
        let message = Rwf::decode(bytes)?;
        let Ok(place) = usize::try_from(message.head().stream - FIRST) else { return Ok(()) };
        let (Some(item), Some(name)) = (self.items.get_mut(place), self.cli.items.get(place)) else {
            return Ok(());
        };
        let group = match &message {
            Rwf::Refresh(refresh) => Some(refresh.group),
            Rwf::Status(status) => status.group,
            _ => None,
        };
        item.group = group.map(<[u8]>::to_vec).or_else(|| item.group.take());
        let (kind, state) = match &message {
            Rwf::Refresh(refresh) => ("image", Some(refresh.state)),
            Rwf::Update(_) => ("update", None),
            Rwf::Status(status) => ("status", status.state),
            _ => return Ok(()),
        };
        if let Rwf::Refresh(refresh) = &message
            && refresh.part.unwrap_or(0) == 0
        {
            item.texts.clear();
        }
        let has_payload = !message.payload().is_empty();
        let (fields, other) = if kind == "status" || !has_payload {
            (Vec::new(), None)
        } else if fields::is_field_list(message.container()) {
            let all = fields::decode(message.payload(), &self.dictionary, &mut item.texts)?;
            (all.into_iter().filter(|field| fields::is_wanted(field, &self.cli.fields)).collect(), None)
        } else {
            (Vec::new(), Some(Printed::new(bytes, &self.dictionary).to_string()))
        };
        let complete = !matches!(&message, Rwf::Refresh(refresh)
            if !refresh.flags.contains(rssl::rwf::RefreshFlags::COMPLETE));
        if let Some(state) = &state {
            apply_state(item, state, kind == "image" && complete, self.cli.snapshot);
        }
        if kind != "status" {
            self.shown += 1;
        }
        // An update of other fields than those that the user wants is not shown.
        if kind == "update" && fields.is_empty() && other.is_none() && !self.cli.fields.is_empty() {
            self.shown -= 1;
            return Ok(());
        }
        let service = self.service.as_ref().map_or("", |service| service.1.as_str());
        report::print(&Message { item: name, service, kind, state, fields, other }, self.cli.json)
    }
}

/// Applies the state of an image (`image`: a complete one) or of a status to its item.
fn apply_state(item: &mut Item, state: &State<'_>, image: bool, snapshot: bool) {
    match state.stream {
        StreamState::ClosedRecover if !snapshot => item.reopen = Some(now() + RECONNECT_PAUSE),
        StreamState::Closed | StreamState::ClosedRecover | StreamState::Redirected => {
            (item.done, item.failed) = (true, true);
        }
        _ => {}
    }
    let is_last = state.stream == StreamState::NonStreaming && state.data != DataState::Suspect;
    if image && (is_last || snapshot) {
        item.done = true;
    }
}

fn transport() -> ClientOptions {
    let component = format!("mdist rmdsview {}", env!("CARGO_PKG_VERSION"));
    ClientOptions { component, ..ClientOptions::default() }
}

/// The session was lost.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Lost(String);
