//! Dictionaries for clients, cut into parts once. Spec: rssl.md §5.3

use rssl::dictionary::{Dictionary, ENUM_DICTIONARY, FIELD_DICTIONARY};
use rssl::rwf::{
    DataState, DataType, Domain, Key, Refresh, RefreshFlags, Request, RequestFlags, State, StreamState, code,
};
use rssl::wire::to_vec;

use super::fanout::closed;
use super::mount::{Role, Stream};
use super::slots::Ticket;
use super::worker::Worker;

/// The verbosities that differ: info, minimal, normal, verbose.
const VERBOSITIES: [u32; 4] = [0, 3, 7, 15];

#[derive(Debug)]
struct Named {
    name: &'static str,
    /// Payloads of the refreshes, for each of [`VERBOSITIES`].
    parts: Vec<Vec<Vec<u8>>>,
}

/// The dictionaries that a server gives out, as they go over the wire.
#[derive(Debug, Default)]
pub struct Dictionaries {
    list: Vec<Named>,
}

impl Dictionaries {
    /// Cuts a dictionary into parts of at most `part` bytes.
    ///
    /// # Errors
    /// A name or text in it that is too long for the wire.
    pub fn of(dictionary: &Dictionary, part: usize) -> rssl::Result<Self> {
        let cut = |name, parts: &dyn Fn(u32) -> rssl::Result<Vec<Vec<u8>>>| {
            Ok(Named { name, parts: VERBOSITIES.map(parts).into_iter().collect::<rssl::Result<_>>()? })
        };
        Ok(Self {
            list: vec![
                cut(FIELD_DICTIONARY, &|verbosity| dictionary.fields.parts(verbosity, part))?,
                cut(ENUM_DICTIONARY, &|verbosity| dictionary.enums.parts(verbosity, part))?,
            ],
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|named| named.name == name)
    }

    fn find(&self, name: &[u8], verbosity: u32) -> Option<&[Vec<u8>]> {
        let named = self.list.iter().find(|named| named.name.as_bytes() == name)?;
        let at = VERBOSITIES.iter().rposition(|known| verbosity >= *known)?;
        named.parts.get(at).map(Vec::as_slice)
    }

    /// The refreshes that answer a request, on its stream. `None`: there is no such dictionary.
    #[must_use]
    pub fn answer(&self, request: &Request<'_>) -> Option<Vec<Vec<u8>>> {
        let parts = self.find(request.key.name.unwrap_or_default(), request.key.filter.unwrap_or(7))?;
        let streaming = request.flags.contains(RequestFlags::STREAMING);
        let stream = if streaming { StreamState::Open } else { StreamState::NonStreaming };
        let message = |(part, number): (&Vec<u8>, u16)| {
            let mut flags = RefreshFlags::SOLICITED;
            if number == 0 {
                flags.insert(RefreshFlags::CLEAR_CACHE);
            }
            if usize::from(number) + 1 == parts.len() {
                flags.insert(RefreshFlags::COMPLETE);
            }
            let refresh = Refresh {
                domain: Domain::DICTIONARY,
                stream: request.stream,
                flags,
                container: DataType::SERIES,
                state: State::new(stream, DataState::Ok, code::NONE, b""),
                group: &[0, 0],
                key: Some(Key { name_type: None, attrib: None, identifier: None, ..request.key }),
                part: (parts.len() > 1).then_some(number),
                payload: part,
                ..Refresh::default()
            };
            to_vec(|w| refresh.encode(w)).ok()
        };
        // A key that came over the wire goes over it again.
        parts.iter().zip(0_u16..).map(message).collect()
    }
}

impl Worker {
    /// A request for a dictionary on a new stream.
    pub(super) fn dictionary_request(&mut self, id: Ticket, request: &Request<'_>) {
        let ticket = self.add(Stream::own(id, request, Role::Dictionary));
        if let Some(ticket) = ticket {
            self.dictionary_refresh(ticket, request);
        }
    }

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
            return self.refuse(ticket, closed(code::NOT_FOUND, text.as_bytes()));
        };
        let Some(stream) = self.streams.get(ticket) else { return };
        let (mount, streaming) = (stream.mount, stream.streaming());
        for message in messages {
            self.send(mount, &message);
        }
        if !streaming {
            self.end(ticket);
        }
    }
}
