//! The source directory for consumers: their streams with filters, and changes of the services.

use rssl::rdm::directory::{self, Action, Load, Service, filter};
use rssl::rwf::{
    DataState, DataType, Domain, Key, Qos, Refresh, RefreshFlags, Request, RequestFlags, State, StreamState,
    Update, UpdateFlags,
};
use rssl::wire::to_vec;

use super::mount::{Role, Stream};
use super::slots::Ticket;
use super::worker::Worker;
use crate::hub::{Announcement, NoSuchQos, choose_qos};

/// The filter of a request without one. Spec: rssl.md §5.2
const EVERYTHING: u32 = filter::ALL | filter::DATA;

/// The services of the hub, as shown to consumers.
#[derive(Debug, Default)]
pub(super) struct Services {
    pub(super) list: Vec<Service>,
}

impl Services {
    pub(super) fn find(&self, id: u16) -> Option<Known<'_>> {
        self.list.iter().find(|service| service.id == id).map(Known)
    }
}

/// A service in the directory.
#[derive(Clone, Copy)]
pub(super) struct Known<'a>(&'a Service);

impl<'a> Known<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.0.info.as_ref().map_or("", |info| &info.name)
    }

    pub(super) fn carries(&self, domain: Domain) -> bool {
        self.0.info.as_ref().is_some_and(|info| info.capabilities.contains(&domain.0))
    }

    /// Whether the service is not known to be up.
    pub(super) fn is_down(&self) -> bool {
        self.0.state.as_ref().is_none_or(|state| !state.up)
    }

    /// See [`choose_qos`].
    pub(super) fn choose(&self, best: Option<Qos>, worst: Option<Qos>) -> Result<Option<Qos>, NoSuchQos> {
        choose_qos(self.0, best, worst)
    }
}

/// A change of one service.
struct Change {
    action: Action,
    /// The service with only its changed parts.
    service: Service,
    /// Filter bits of the parts in `service`.
    parts: u32,
}

impl Worker {
    /// Handles a request for the directory on a new stream.
    pub(super) fn directory_request(&mut self, id: Ticket, request: &Request<'_>) {
        let ticket = self.add_stream(Stream::own(id, request, role(request)));
        if let Some(ticket) = ticket {
            self.directory_refresh(ticket);
        }
    }

    /// Handles a further request on a directory's stream: another filter, or the directory again.
    pub(super) fn directory_reissue(&mut self, ticket: Ticket, request: &Request<'_>) {
        let Some(stream) = self.streams.get_mut(ticket) else { return };
        stream.role = role(request);
        stream.flags = request.flags;
        if !request.flags.contains(RequestFlags::NO_REFRESH) {
            self.directory_refresh(ticket);
        }
    }

    fn directory_refresh(&mut self, ticket: Ticket) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Role::Directory { filter, service } = stream.role else { return };
        let streaming = stream.streaming();
        let shown: Vec<(Action, Service)> = self
            .services
            .list
            .iter()
            .filter(|one| service.is_none_or(|id| id == one.id))
            .map(|one| (Action::Add, one.clone()))
            .collect();
        let refresh = Refresh {
            domain: Domain::DIRECTORY,
            stream: stream.id,
            flags: RefreshFlags::REPLY,
            container: DataType::MAP,
            state: State::new(
                if streaming { StreamState::Open } else { StreamState::NonStreaming },
                DataState::Ok,
                0,
                b"",
            ),
            group: &[0, 0],
            key: Some(Key { filter: Some(filter), service, ..Key::default() }),
            ..Refresh::default()
        };
        let mount = stream.mount;
        let encoded = to_vec(|w| {
            refresh.encode_header(w)?;
            directory::encode(w, filter, &shown)
        });
        if let Ok(message) = encoded {
            self.send(mount, &message);
        }
        if !streaming {
            self.end_stream(ticket);
        }
    }

    /// Takes the hub's new services; each directory stream gets the changes that its filter selects.
    pub(super) fn services_changed(&mut self, services: &[Service]) {
        let new: Vec<Service> = services.iter().map(|service| self.shown(service)).collect();
        let changes = changes(&self.services.list, &new);
        self.services.list = new;
        let announced = self.announcements.take_waiting();
        if changes.is_empty() && announced.is_empty() {
            return;
        }
        let all: Vec<Ticket> = self.mounts.iter().flat_map(|(_, mount)| mount.directories.clone()).collect();
        for ticket in all {
            self.directory_update(ticket, &changes, &announced);
        }
    }

    fn directory_update(&mut self, ticket: Ticket, changes: &[Change], announced: &[Announcement]) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Role::Directory { filter, service } = stream.role else { return };
        let mut selected: Vec<(Action, Service)> = changes
            .iter()
            .filter(|change| service.is_none_or(|id| id == change.service.id))
            .filter(|change| change.action != Action::Update || change.parts & filter != 0)
            .map(|change| (change.action, change.service.clone()))
            .collect();
        let covers = self.add_announcements(stream.mount, filter, service, announced, &mut selected);
        let Some(stream) = self.streams.get(ticket).filter(|_| !selected.is_empty()) else { return };
        let update = Update {
            domain: Domain::DIRECTORY,
            stream: stream.id,
            flags: UpdateFlags::DO_NOT_CONFLATE,
            container: DataType::MAP,
            ..Update::default()
        };
        let mount = stream.mount;
        let encoded = to_vec(|w| {
            update.encode_header(w)?;
            directory::encode(w, filter, &selected)
        });
        if let Ok(message) = encoded {
            self.send(mount, &message);
            self.announcements.sent(mount, covers);
        }
    }

    /// A service of the hub as this server shows it: with its own limits, and the dictionaries that it provides.
    fn shown(&self, service: &Service) -> Service {
        let mut shown = service.clone();
        if let Some(info) = &mut shown.info {
            info.dictionaries_provided = info
                .dictionaries_used
                .iter()
                .filter(|name| self.given_out.dictionaries.has(name))
                .cloned()
                .collect();
            // Stock consumers request a dictionary only of a service that lists the domain.
            let dictionary = Domain::DICTIONARY.0;
            if !info.dictionaries_provided.is_empty() && !info.capabilities.contains(&dictionary) {
                info.capabilities.push(dictionary);
            }
        }
        shown.load = Some(Load {
            open_limit: Some(u64::from(self.config.open_limit)),
            open_window: Some(u64::from(self.config.open_window)),
            load_factor: service.load.as_ref().and_then(|load| load.load_factor),
        });
        shown
    }
}

fn role(request: &Request<'_>) -> Role {
    Role::Directory { filter: request.key.filter.unwrap_or(EVERYTHING), service: request.key.service }
}

fn changes(old: &[Service], new: &[Service]) -> Vec<Change> {
    let mut changes = Vec::new();
    for gone in old.iter().filter(|one| !new.iter().any(|other| other.id == one.id)) {
        let service = Service { id: gone.id, ..Service::default() };
        changes.push(Change { action: Action::Delete, service, parts: EVERYTHING });
    }
    for service in new {
        let Some(before) = old.iter().find(|other| other.id == service.id) else {
            changes.push(Change { action: Action::Add, service: service.clone(), parts: EVERYTHING });
            continue;
        };
        let mut part = Service { id: service.id, ..Service::default() };
        let mut parts = 0;
        if before.info != service.info {
            part.info.clone_from(&service.info);
            parts |= filter::INFO;
        }
        if before.state != service.state {
            part.state.clone_from(&service.state);
            parts |= filter::STATE;
        }
        if before.groups != service.groups {
            part.groups.clone_from(&service.groups);
            parts |= filter::GROUP;
        }
        if before.load != service.load {
            part.load.clone_from(&service.load);
            parts |= filter::LOAD;
        }
        if before.links != service.links {
            part.links.clone_from(&service.links);
            parts |= filter::LINK;
        }
        if parts != 0 {
            changes.push(Change { action: Action::Update, service: part, parts });
        }
    }
    changes
}
