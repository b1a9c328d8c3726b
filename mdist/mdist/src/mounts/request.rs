//! Requests of consumers for items: new ones, reissues, batches.

use std::hash::{DefaultHasher, Hash, Hasher};

use rssl::rdm::items;
use rssl::rwf::{
    DataType, Domain, Key, OwnedState, Request, RequestFlags, State, StreamState, code, name_type,
};
use rssl::wire::to_vec;

use super::mount::{Extra, Role, Stream, Wanted};
use super::reason::Reason;
use super::slots::Ticket;
use super::tasks::Task;
use super::view::View;
use super::worker::Worker;
use crate::hub::ItemSpec;

/// Items that are about the server itself, in servers of the vendor: never requested from upstreams. Spec: rssl.md §6.2
const SERVER_LISTS: [&[u8]; 2] = [b"_ADS_CACHE_LIST", b"_SERVER_LIST"];

impl Worker {
    /// Handles a request of any domain; the error is the reason to disconnect the mount.
    pub(super) fn request(&mut self, id: Ticket, request: &Request<'_>) -> Result<(), Reason> {
        if request.stream == 0 {
            return Err(Reason::Protocol("request on stream 0, which no stream may have".into()));
        }
        if request.domain == Domain::LOGIN {
            return self.login_request(id, request);
        }
        if !self.logged_in(id) {
            let state = State::closed(code::USAGE_ERROR, b"log in before requesting anything else");
            self.status(id, request.domain, request.stream, false, state);
            return Ok(());
        }
        if let Some(ticket) = self.find_stream(id, request.stream) {
            self.reissue(ticket, request);
            return Ok(());
        }
        if request.stream < 0 {
            let state = State::closed(code::USAGE_ERROR, b"streams of consumers have positive ids");
            self.status(id, request.domain, request.stream, false, state);
            return Ok(());
        }
        let open = self.mounts.get(id).map_or(0, |mount| mount.ids.len());
        if open >= self.config.open_limit as usize {
            let text = format!("{open} streams are open, the most that this server allows a connection");
            let state = State::closed_recover(code::TOO_MANY_ITEMS, text.as_bytes());
            self.status(id, request.domain, request.stream, false, state);
            return Ok(());
        }
        match request.domain {
            Domain::DIRECTORY => self.directory_request(id, request),
            Domain::DICTIONARY => self.dictionary_request(id, request),
            _ if request.flags.contains(RequestFlags::BATCH) => self.batch_request(id, request),
            _ => {
                self.item_request(id, request);
            }
        }
        Ok(())
    }

    /// Handles a request for one item on a new stream; returns the stream, unless it was refused.
    pub(super) fn item_request(&mut self, id: Ticket, request: &Request<'_>) -> Option<Ticket> {
        let private = request.flags.contains(RequestFlags::PRIVATE);
        let checked = self.check_item_request(id, request).and_then(|spec| {
            let extra = extra(request, None)?;
            let key_bytes = spec.key.len();
            self.take_bytes(id, key_bytes + extra.as_ref().map_or(0, |extra| extra.bytes()))?;
            Ok((spec, extra, key_bytes))
        });
        let (spec, extra, key_bytes) = match checked {
            Ok(checked) => checked,
            Err(state) => {
                // The consumer does not know of streams that the server wanted to open.
                if request.stream > 0 {
                    self.status(id, request.domain, request.stream, private, state.borrow());
                }
                return None;
            }
        };
        let ticket = self.add_stream(Stream {
            mount: id,
            id: request.stream,
            domain: request.domain.0,
            service: spec.service,
            role: Role::Item,
            flags: effective(request.flags),
            item: None,
            waiting: true,
            refreshed: 0,
            counted: false,
            requested: false,
            solicited: request.stream > 0,
            identity: identity(request),
            extra,
            key_bytes,
        })?;
        self.queue_request(ticket, Wanted::Open(spec));
        Some(ticket)
    }

    /// Checks a request for an item against key, service and permissions; returns the item's spec.
    fn check_item_request(&mut self, id: Ticket, request: &Request<'_>) -> Result<ItemSpec, OwnedState> {
        let unusable = |text: &str| Err(State::closed(code::USAGE_ERROR, text.as_bytes()).to_owned());
        if request.flags.contains(RequestFlags::NO_REFRESH) {
            return unusable("no refresh wanted on a stream that is not open");
        }
        let key = &request.key;
        if key.name.is_none_or(<[u8]>::is_empty) && key.identifier.is_none() && key.attrib.is_none() {
            return unusable("the key names no item");
        }
        let Some(service_id) = key.service else {
            return unusable("the key has no service id; take it from the directory");
        };
        let Some(service) = self.services.find(service_id) else {
            let text = format!("no service has the id {service_id}; see the directory");
            return Err(State::closed_recover(code::SOURCE_UNKNOWN, text.as_bytes()).to_owned());
        };
        let item_name = key.name.unwrap_or_default();
        if SERVER_LISTS.contains(&item_name) {
            let text = "this server has no lists of its own items and servers";
            return Err(State::closed(code::NOT_FOUND, text.as_bytes()).to_owned());
        }
        let name = service.name().to_owned();
        if !service.carries(request.domain) {
            return unusable(&format!("service {name} does not carry {}", request.domain));
        }
        let Ok(qos) = service.choose(request.qos, request.worst_qos) else {
            return unusable(&format!("service {name} has no such quality of service"));
        };
        let mount = self.mounts.get(id);
        // For consumers with single open the server waits until the service is up; others have to retry. Spec: rssl.md
        // §6.3
        if service.is_down() && !mount.map(|mount| mount.recovery()).unwrap_or_default().single_open {
            let text = format!("service {name} is down");
            return Err(State::closed_recover(code::NONE, text.as_bytes()).to_owned());
        }
        let user = mount.and_then(|mount| mount.login.as_ref()).map(|login| login.user.clone());
        let user = user.unwrap_or_default();
        if let Err(denial) = self.permissions.item(&user, &name, request.domain.0, item_name) {
            return Err(denial.state().to_owned());
        }
        let private = request.flags.contains(RequestFlags::PRIVATE);
        ItemSpec::new(service_id, request.domain, key, qos, private)
            .or_else(|_| unusable("the key is too long"))
    }

    /// Handles a request on an open stream: another priority or view, pause, or a further image.
    fn reissue(&mut self, ticket: Ticket, request: &Request<'_>) {
        let Some(stream) = self.streams.get(ticket) else { return };
        if stream.domain != request.domain.0 {
            let text = format!("this stream is open for {}", Domain(stream.domain));
            return self.refuse_stream(ticket, State::closed(code::USAGE_ERROR, text.as_bytes()));
        }
        match stream.role {
            Role::Directory { .. } => return self.directory_reissue(ticket, request),
            Role::Dictionary(_) => return self.dictionary_reissue(ticket, request),
            Role::Login => return,
            Role::Item => {}
        }
        if stream.identity != identity(request) {
            let text = b"this stream is open for another item";
            return self.refuse_stream(ticket, State::closed(code::USAGE_ERROR, text));
        }
        let (mount, before) = (stream.mount, stream.extra.as_ref().map_or(0, |extra| extra.bytes()));
        let checked = extra(request, stream.extra.as_deref()).and_then(|extra| {
            self.take_bytes(mount, extra.as_ref().map_or(0, |extra| extra.bytes()))?;
            Ok(extra)
        });
        let extra = match checked {
            Ok(extra) => extra,
            Err(state) => return self.refuse_stream(ticket, state.borrow()),
        };
        self.give_back_bytes(mount, before);
        let no_refresh = request.flags.contains(RequestFlags::NO_REFRESH);
        let Some(stream) = self.streams.get_mut(ticket) else { return };
        let was_paused = stream.flags.contains(RequestFlags::PAUSE);
        stream.flags = effective(request.flags);
        stream.extra = extra;
        let paused = stream.flags.contains(RequestFlags::PAUSE);
        // After a pause an image replaces the updates that were not sent; a pause itself needs none.
        let resumed = was_paused && !paused;
        let pauses = paused && !was_paused;
        let image = resumed || !(no_refresh || pauses);
        if resumed {
            stream.waiting = true;
        }
        if image && let Some(item) = stream.item {
            stream.solicited = true;
            self.queue_request(ticket, Wanted::Image(item));
        }
        self.set_flags(ticket);
    }

    /// Pauses or resumes every item of a mount.
    pub(super) fn pause_all(&mut self, id: Ticket, paused: bool) {
        let streams = self.streams_of(id, |role| *role == Role::Item).into_iter();
        self.begin(id, Task::Pause { streams, paused });
    }

    /// Pauses or resumes an item with all others of its mount.
    pub(super) fn pause_one(&mut self, ticket: Ticket, paused: bool) {
        if let Some(stream) = self.streams.get_mut(ticket)
            && !paused
            && !stream.flags.contains(RequestFlags::PAUSE)
            && let Some(item) = stream.item
            && !stream.waiting
        {
            stream.waiting = true;
            stream.solicited = true;
            self.queue_request(ticket, Wanted::Image(item));
        }
        self.set_flags(ticket);
    }

    /// Handles a batch: a request for many items, or a reissue of many streams. Spec: rssl.md §6
    fn batch_request(&mut self, id: Ticket, request: &Request<'_>) {
        let usage = |text: &str| State::closed(code::USAGE_ERROR, text.as_bytes()).to_owned();
        let refusal = match (items::stream_ids(request.payload), items::batch_names(request.payload)) {
            (Ok(Some(ids)), _) => Ok(format!("{} streams reissued", ids.len())),
            (_, Ok(names)) if !names.is_empty() => Ok(format!("{} items processed", names.len())),
            (_, Ok(_)) => Err(usage("the batch lists no items")),
            (_, Err(error)) => Err(usage(&format!("the batch cannot be read: {error}"))),
        };
        match refusal {
            Ok(text) => self.batch_done(id, request, &text),
            Err(state) => return self.status(id, request.domain, request.stream, false, state.borrow()),
        }
        // The request was decoded, so it has an encoding.
        if let Ok(message) = request.to_vec() {
            self.begin(id, Task::Batch { message, done: 0 });
        }
    }

    /// Closes the stream of a batch.
    fn batch_done(&mut self, id: Ticket, request: &Request<'_>, text: &str) {
        let state = State::new(StreamState::Closed, rssl::rwf::DataState::Ok, code::NONE, text.as_bytes());
        self.status(id, request.domain, request.stream, false, state);
    }

    /// Reissues a stream by its id alone, whatever its item.
    pub(super) fn reissue_as_before(&mut self, ticket: Ticket, request: &Request<'_>) {
        if let Some(stream) = self.streams.get_mut(ticket)
            && stream.domain == request.domain.0
        {
            stream.identity = identity(request);
            self.reissue(ticket, request);
        }
    }

    pub(super) fn service_is_down(&self, stream: &Stream) -> bool {
        self.services.find(stream.service).is_none_or(|service| service.is_down())
    }
}

/// The flags of a request that take effect: a pause needs streaming.
fn effective(flags: RequestFlags) -> RequestFlags {
    if flags.contains(RequestFlags::STREAMING) { flags } else { flags.without(RequestFlags::PAUSE) }
}

/// A hash that is equal for requests of the same item. Spec: rssl.md §2.9
fn identity(request: &Request<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let name_type = request.key.name_type.filter(|kind| *kind != name_type::RIC);
    Key { name_type, ..request.key }.hash(&mut hasher);
    request.flags.contains(RequestFlags::PRIVATE).hash(&mut hasher);
    hasher.finish()
}

/// The view, the key for updates and the symbol-list behaviour of a request.
///
/// # Errors
/// The view cannot be used: the state to refuse the request with.
fn extra(request: &Request<'_>, previous: Option<&Extra>) -> Result<Option<Box<Extra>>, OwnedState> {
    let mut extra = Extra::default();
    if request.flags.contains(RequestFlags::VIEW) {
        extra.view = if request.container == DataType::NO_DATA {
            extra.view_bytes = previous.map_or(0, |previous| previous.view_bytes);
            previous.and_then(|previous| previous.view.clone())
        } else {
            extra.view_bytes = request.payload.len();
            Some(
                View::decode(request.payload)
                    .map_err(|code| State::closed(code, b"the view cannot be used").to_owned())?,
            )
        };
    }
    if request.flags.contains(RequestFlags::KEY_IN_UPDATES) {
        extra.key = to_vec(|w| request.key.encode(w)).ok().map(Into::into);
    }
    if request.domain == Domain::SYMBOL_LIST && request.container == DataType::ELEMENT_LIST {
        extra.opens_listed = items::SymbolListBehaviors::decode(request.payload)
            .ok()
            .and_then(|behaviors| behaviors.data_streams());
    }
    let any = extra.view.is_some() || extra.key.is_some() || extra.opens_listed.is_some();
    Ok(any.then(|| Box::new(extra)))
}
