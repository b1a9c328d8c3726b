//! Requests of consumers for dictionaries, and notices of dictionaries that have been replaced.

use std::sync::Arc;

use rssl::rwf::{Request, RequestFlags, State, code};

use super::mount::{Role, Stream};
use super::slots::Ticket;
use super::worker::Worker;
use crate::dictionaries::Dictionaries;

/// The dictionaries that the server gives out.
pub(super) struct GivenOut {
    pub(super) dictionaries: Arc<Dictionaries>,
    /// The replacements of which the streams were notified.
    reported: u64,
}

impl GivenOut {
    pub(super) fn new(dictionaries: Arc<Dictionaries>) -> Self {
        Self { reported: dictionaries.revision(), dictionaries }
    }
}

impl Worker {
    /// Handles a request for a dictionary on a new stream.
    pub(super) fn dictionary_request(&mut self, id: Ticket, request: &Request<'_>) {
        let Some(given) = self.given_out.dictionaries.current(request.key.name.unwrap_or_default()) else {
            let text = unknown(request);
            let state = State::closed(code::NOT_FOUND, text.as_bytes());
            return self.status(id, request.domain, request.stream, false, state);
        };
        let ticket = self.add_stream(Stream::own(id, request, Role::Dictionary(given)));
        if let Some(ticket) = ticket {
            self.dictionary_refresh(ticket, request);
        }
    }

    /// Handles a further request on a dictionary's stream.
    pub(super) fn dictionary_reissue(&mut self, ticket: Ticket, request: &Request<'_>) {
        let Some(stream) = self.streams.get_mut(ticket) else { return };
        stream.flags = request.flags;
        if request.flags.contains(RequestFlags::NO_REFRESH) {
            return;
        }
        let Some(given) = self.given_out.dictionaries.current(request.key.name.unwrap_or_default()) else {
            let text = unknown(request);
            return self.refuse_stream(ticket, State::closed(code::NOT_FOUND, text.as_bytes()));
        };
        stream.role = Role::Dictionary(given);
        self.dictionary_refresh(ticket, request);
    }

    fn dictionary_refresh(&mut self, ticket: Ticket, request: &Request<'_>) {
        let Some(messages) = self.given_out.dictionaries.answer(request) else { return };
        let Some(stream) = self.streams.get(ticket) else { return };
        let (mount, streaming) = (stream.mount, stream.streaming());
        for message in messages {
            self.send(mount, &message);
        }
        if !streaming {
            self.end_stream(ticket);
        }
    }

    /// Notifies the open streams of dictionaries that have been replaced since the last call.
    pub(super) fn report_dictionaries(&mut self) {
        let revision = self.given_out.dictionaries.revision();
        if std::mem::replace(&mut self.given_out.reported, revision) == revision {
            return;
        }
        let is_open = |(ticket, stream): (Ticket, &Stream)| match stream.role {
            Role::Dictionary(given) => Some((ticket, stream.mount, stream.id, given)),
            Role::Login | Role::Directory { .. } | Role::Item => None,
        };
        let open: Vec<_> = self.streams.iter().filter_map(is_open).collect();
        for (ticket, mount, id, mut given) in open {
            let Some(notice) = self.given_out.dictionaries.notice(id, &mut given) else { continue };
            if let Some(stream) = self.streams.get_mut(ticket) {
                stream.role = Role::Dictionary(given);
            }
            self.send(mount, &notice);
        }
    }
}

fn unknown(request: &Request<'_>) -> String {
    let name = request.key.name.unwrap_or_default();
    format!("there is no dictionary {}", String::from_utf8_lossy(name))
}
