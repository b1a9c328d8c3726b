//! Requests for items: new ones, reissues, batches.

use std::hash::{DefaultHasher, Hash, Hasher};

use rssl::rdm::items;
use rssl::rwf::{DataType, Domain, Key, Request, RequestFlags, State, StreamState, code, name_type};
use rssl::wire::to_vec;

use super::fanout::closed;
use super::mount::{Extra, Role, Stream, Wanted};
use super::reason::Reason;
use super::slots::Ticket;
use super::view::View;
use super::worker::Worker;
use crate::hub::ItemSpec;

impl Worker {
    /// A request of any domain.
    pub(super) fn request(&mut self, id: Ticket, request: &Request<'_>) -> Result<(), Reason> {
        if request.stream == 0 {
            return Err(Reason::Protocol("request on stream 0, which no stream may have".into()));
        }
        if request.domain == Domain::LOGIN {
            return self.login_request(id, request);
        }
        if !self.logged_in(id) {
            let state = closed(code::USAGE_ERROR, b"log in before requesting anything else");
            self.status(id, request.domain, request.stream, false, state);
            return Ok(());
        }
        if let Some(ticket) = self.find(id, request.stream) {
            self.reissue(ticket, request);
            return Ok(());
        }
        if request.stream < 0 {
            let state = closed(code::USAGE_ERROR, b"streams of consumers have positive ids");
            self.status(id, request.domain, request.stream, false, state);
            return Ok(());
        }
        let open = self.mounts.get(id).map_or(0, |mount| mount.ids.len());
        if open >= self.config.open_limit as usize {
            let text = format!("{open} streams are open, the most that this server allows a connection");
            let state =
                State { stream: StreamState::ClosedRecover, ..closed(code::TOO_MANY_ITEMS, text.as_bytes()) };
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

    /// A request for one item on a new stream; the stream, unless it was refused.
    pub(super) fn item_request(&mut self, id: Ticket, request: &Request<'_>) -> Option<Ticket> {
        let private = request.flags.contains(RequestFlags::PRIVATE);
        let refuse = |worker: &mut Self, state: State<'_>| {
            // What the server itself wanted to open, the client has not heard of.
            if request.stream > 0 {
                worker.status(id, request.domain, request.stream, private, state);
            }
            None
        };
        if request.flags.contains(RequestFlags::NO_REFRESH) {
            return refuse(
                self,
                closed(code::USAGE_ERROR, b"no refresh wanted on a stream that is not open"),
            );
        }
        let key = &request.key;
        if key.name.is_none_or(<[u8]>::is_empty) && key.identifier.is_none() && key.attrib.is_none() {
            return refuse(self, closed(code::USAGE_ERROR, b"the key names no item"));
        }
        let Some(service_id) = key.service else {
            return refuse(
                self,
                closed(code::USAGE_ERROR, b"the key has no service id; take it from the directory"),
            );
        };
        let Some(service) = self.services.find(service_id) else {
            let text = format!("no service has the id {service_id}; see the directory");
            let state =
                State { stream: StreamState::ClosedRecover, ..closed(code::SOURCE_UNKNOWN, text.as_bytes()) };
            return refuse(self, state);
        };
        let name = service.name().to_owned();
        if !service.carries(request.domain) {
            let text = format!("service {name} does not carry {}", request.domain);
            return refuse(self, closed(code::USAGE_ERROR, text.as_bytes()));
        }
        let Ok(qos) = service.choose(request.qos, request.worst_qos) else {
            let text = format!("service {name} has no such quality of service");
            return refuse(self, closed(code::USAGE_ERROR, text.as_bytes()));
        };
        // Who recovers items itself is told to come back; for others the server waits. Spec: rssl.md §6.3
        let single_open = self.mounts.get(id)?.wants().single_open;
        if service.is_down() && !single_open {
            let text = format!("service {name} is down");
            let state = State { stream: StreamState::ClosedRecover, ..closed(code::NONE, text.as_bytes()) };
            return refuse(self, state);
        }
        let user = self.mounts.get(id)?.login.as_ref()?.user.clone();
        if let Err(denial) =
            self.permissions.item(&user, &name, request.domain.0, key.name.unwrap_or_default())
        {
            let stream = if denial.retry { StreamState::ClosedRecover } else { StreamState::Closed };
            return refuse(self, State { stream, ..closed(denial.code, denial.text.as_bytes()) });
        }
        let Ok(spec) = ItemSpec::new(service_id, request.domain, key, qos, private) else {
            return refuse(self, closed(code::USAGE_ERROR, b"the key is too long"));
        };
        let extra = match extra(request, None) {
            Ok(extra) => extra,
            Err(state) => return refuse(self, state),
        };
        let ticket = self.add(Stream {
            mount: id,
            id: request.stream,
            domain: request.domain.0,
            service: service_id,
            role: Role::Item,
            flags: effective(request.flags),
            item: None,
            waiting: true,
            counted: false,
            at_hub: false,
            asked: request.stream > 0,
            identity: identity(request),
            extra,
        })?;
        self.want(ticket, Wanted::Open(spec));
        Some(ticket)
    }

    /// A request on a stream that is open: other priority, view, pause, or another image.
    fn reissue(&mut self, ticket: Ticket, request: &Request<'_>) {
        let Some(stream) = self.streams.get(ticket) else { return };
        if stream.domain != request.domain.0 {
            let text = format!("this stream is open for {}", Domain(stream.domain));
            return self.refuse(ticket, closed(code::USAGE_ERROR, text.as_bytes()));
        }
        match stream.role {
            Role::Directory { .. } => return self.directory_reissue(ticket, request),
            Role::Dictionary => return self.dictionary_reissue(ticket, request),
            Role::Login => return,
            Role::Item => {}
        }
        if stream.identity != identity(request) {
            let text = b"this stream is open for another item";
            return self.refuse(ticket, closed(code::USAGE_ERROR, text));
        }
        let previous = stream.extra.as_ref().and_then(|extra| extra.view.clone());
        let extra = match extra(request, previous) {
            Ok(extra) => extra,
            Err(state) => return self.refuse(ticket, state),
        };
        let no_refresh = request.flags.contains(RequestFlags::NO_REFRESH);
        let Some(stream) = self.streams.get_mut(ticket) else { return };
        let was_paused = stream.flags.contains(RequestFlags::PAUSE);
        stream.flags = effective(request.flags);
        stream.extra = extra;
        let paused = stream.flags.contains(RequestFlags::PAUSE);
        // What was not sent while paused has to come as an image; a pause itself needs none.
        let resumed = was_paused && !paused;
        let pauses = paused && !was_paused;
        let image = resumed || !(no_refresh || pauses);
        if resumed {
            stream.waiting = true;
        }
        if image && let Some(item) = stream.item {
            stream.asked = true;
            self.want(ticket, Wanted::Image(item));
        }
        self.set_flags(ticket);
    }

    /// Pauses or resumes every item of a mount.
    pub(super) fn pause_all(&mut self, id: Ticket, paused: bool) {
        for ticket in self.streams_of(id, |role| *role == Role::Item) {
            if let Some(stream) = self.streams.get_mut(ticket)
                && !paused
                && !stream.flags.contains(RequestFlags::PAUSE)
                && let Some(item) = stream.item
                && !stream.waiting
            {
                stream.waiting = true;
                stream.asked = true;
                self.want(ticket, Wanted::Image(item));
            }
            self.set_flags(ticket);
        }
    }

    /// Many items, or many streams, in one request. Spec: rssl.md §6
    fn batch_request(&mut self, id: Ticket, request: &Request<'_>) {
        let mut one = request.clone();
        one.flags.remove(RequestFlags::BATCH);
        if !request.flags.contains(RequestFlags::VIEW) {
            (one.container, one.payload) = (DataType::NO_DATA, &[]);
        }
        if let Ok(Some(ids)) = items::stream_ids(request.payload) {
            for &stream in &ids {
                if let Some(ticket) = self.find(id, stream)
                    && self.streams.get(ticket).is_some_and(|stream| stream.role == Role::Item)
                {
                    self.reissue_as_before(ticket, &one);
                }
            }
            let text = format!("{} streams reissued", ids.len());
            return self.batch_done(id, request, &text);
        }
        let names = match items::batch_names(request.payload) {
            Ok(names) if !names.is_empty() => names,
            Ok(_) => {
                let state = closed(code::USAGE_ERROR, b"the batch lists no items");
                return self.status(id, request.domain, request.stream, false, state);
            }
            Err(error) => {
                let text = format!("the batch cannot be read: {error}");
                return self.status(
                    id,
                    request.domain,
                    request.stream,
                    false,
                    closed(code::USAGE_ERROR, text.as_bytes()),
                );
            }
        };
        let text = format!("{} items processed", names.len());
        self.batch_done(id, request, &text);
        let mut stream = request.stream;
        for name in names {
            stream = match stream.checked_add(1) {
                Some(next) => next,
                None => return,
            };
            one.stream = stream;
            one.key.name = Some(name);
            // Sees to ids in use and to the limit of open streams, as for any request. No error: the id is positive.
            if self.request(id, &one).is_err() {
                return;
            }
        }
    }

    fn batch_done(&mut self, id: Ticket, request: &Request<'_>, text: &str) {
        let state = State::new(StreamState::Closed, rssl::rwf::DataState::Ok, code::NONE, text.as_bytes());
        self.status(id, request.domain, request.stream, false, state);
    }

    /// A reissue by stream id alone: whatever the item is.
    fn reissue_as_before(&mut self, ticket: Ticket, request: &Request<'_>) {
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

/// A pause without streaming means nothing.
fn effective(flags: RequestFlags) -> RequestFlags {
    if flags.contains(RequestFlags::STREAMING) { flags } else { flags.without(RequestFlags::PAUSE) }
}

/// The same for requests that mean the same item. Spec: rssl.md §2.9
fn identity(request: &Request<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let name_type = request.key.name_type.filter(|kind| *kind != name_type::RIC);
    Key { name_type, ..request.key }.hash(&mut hasher);
    request.flags.contains(RequestFlags::PRIVATE).hash(&mut hasher);
    hasher.finish()
}

/// View, key for updates and symbol-list wishes of a request.
fn extra(request: &Request<'_>, previous: Option<View>) -> Result<Option<Box<Extra>>, State<'static>> {
    let mut extra = Extra::default();
    if request.flags.contains(RequestFlags::VIEW) {
        extra.view = if request.container == DataType::NO_DATA {
            previous
        } else {
            Some(View::decode(request.payload).map_err(|code| closed(code, b"the view cannot be used"))?)
        };
    }
    if request.flags.contains(RequestFlags::KEY_IN_UPDATES) {
        extra.key = to_vec(|w| request.key.encode(w)).ok().map(Into::into);
    }
    if request.domain == Domain::SYMBOL_LIST && request.container == DataType::ELEMENT_LIST {
        extra.data_streams = items::SymbolListBehaviors::decode(request.payload)
            .ok()
            .and_then(|behaviors| behaviors.data_streams());
    }
    let any = extra.view.is_some() || extra.key.is_some() || extra.data_streams.is_some();
    Ok(any.then(|| Box::new(extra)))
}
