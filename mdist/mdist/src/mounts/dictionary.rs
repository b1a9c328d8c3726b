//! Requests of consumers for dictionaries.

use rssl::rwf::{Request, RequestFlags, code};

use super::mount::{Role, Stream};
use super::slots::Ticket;
use super::states::closed_suspect;
use super::worker::Worker;

impl Worker {
    /// Handles a request for a dictionary on a new stream.
    pub(super) fn dictionary_request(&mut self, id: Ticket, request: &Request<'_>) {
        let ticket = self.add_stream(Stream::own(id, request, Role::Dictionary));
        if let Some(ticket) = ticket {
            self.dictionary_refresh(ticket, request);
        }
    }

    /// Handles a further request on a dictionary's stream.
    pub(super) fn dictionary_reissue(&mut self, ticket: Ticket, request: &Request<'_>) {
        if let Some(stream) = self.streams.get_mut(ticket) {
            stream.flags = request.flags;
        }
        if !request.flags.contains(RequestFlags::NO_REFRESH) {
            self.dictionary_refresh(ticket, request);
        }
    }

    fn dictionary_refresh(&mut self, ticket: Ticket, request: &Request<'_>) {
        let dictionaries = self.dictionaries.clone();
        let name = request.key.name.unwrap_or_default();
        let Some(messages) = dictionaries.answer(request) else {
            let text = format!("there is no dictionary {}", String::from_utf8_lossy(name));
            return self.refuse_stream(ticket, closed_suspect(code::NOT_FOUND, text.as_bytes()));
        };
        let Some(stream) = self.streams.get(ticket) else { return };
        let (mount, streaming) = (stream.mount, stream.streaming());
        for message in messages {
            self.send(mount, &message);
        }
        if !streaming {
            self.end_stream(ticket);
        }
    }
}
