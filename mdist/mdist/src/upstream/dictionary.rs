//! The download of the dictionaries that an upstream provides. Spec: rssl.md §5.3

use rssl::dictionary::{Enums, Fields, VERBOSITY_VERBOSE};
use rssl::rdm::directory::{Action, Service};
use rssl::rwf::{
    DataState, Domain, Key, Message, Refresh, RefreshFlags, Request, Series, State, StreamState,
};

use crate::dictionaries::{Half, Incoming};

/// Stream of the field dictionary; the next one is that of the enumerated types.
const FIRST_STREAM: i32 = 3;

/// One dictionary.
#[derive(Debug)]
struct Stream {
    /// The service of the request, by the upstream's id; `None`: it was not requested.
    requested: Option<u16>,
    /// It was requested, and is neither complete nor refused.
    awaited: bool,
    /// It was requested again, because the upstream has a newer one.
    renewed: bool,
    incoming: Incoming,
}

/// Both dictionaries of an upstream.
#[derive(Debug)]
pub(super) struct Download {
    streams: [Stream; 2],
}

impl Default for Download {
    fn default() -> Self {
        let stream =
            |kind| Stream { requested: None, awaited: false, renewed: false, incoming: Incoming::new(&kind) };
        Self { streams: [stream(Half::Fields(Fields::default())), stream(Half::Enums(Enums::default()))] }
    }
}

impl Download {
    /// Whether this is the stream of a dictionary.
    pub(super) fn owns(stream: i32) -> bool {
        (FIRST_STREAM..FIRST_STREAM + 2).contains(&stream)
    }

    /// Whether a requested dictionary is still to come.
    pub(super) fn is_awaited(&self) -> bool {
        self.streams.iter().any(|stream| stream.awaited)
    }

    /// Stops waiting; returns the names of the dictionaries that have not come.
    pub(super) fn give_up(&mut self) -> Vec<&'static str> {
        let awaited = self.streams.iter_mut().filter(|stream| stream.awaited);
        awaited
            .map(|stream| {
                stream.awaited = false;
                stream.incoming.name()
            })
            .collect()
    }

    /// Requests for the dictionaries that these services provide and that were not requested before.
    pub(super) fn requests(&mut self, changes: &[(Action, Service)]) -> rssl::Result<Vec<Vec<u8>>> {
        let mut requests = Vec::new();
        for (stream, id) in self.streams.iter_mut().zip(FIRST_STREAM..) {
            let name = stream.incoming.name();
            let provider = changes.iter().find(|(action, service)| {
                let info = service.info.as_ref();
                *action != Action::Delete
                    && info.is_some_and(|info| info.dictionaries_provided.iter().any(|known| known == name))
            });
            let Some((_, service)) = provider.filter(|_| stream.requested.is_none()) else { continue };
            (stream.requested, stream.awaited) = (Some(service.id), true);
            requests.push(request(id, service.id, name)?);
        }
        Ok(requests)
    }

    /// The request that answers this message of the upstream: a dictionary that was complete is suspect, because the
    /// upstream has a newer one. `None` for other messages.
    pub(super) fn renewal(&mut self, message: &Message<'_>) -> Option<rssl::Result<Vec<u8>>> {
        let id = message.head().stream;
        let stream = self.stream(id)?;
        let Message::Status(status) = message else { return None };
        let suspect = status.state.as_ref().is_some_and(|state| state.data == DataState::Suspect);
        if !suspect || status.state.as_ref().and_then(ended).is_some() || stream.awaited || stream.renewed {
            return None;
        }
        stream.renewed = true;
        Some(request(id, stream.requested?, stream.incoming.name()))
    }

    fn stream(&mut self, id: i32) -> Option<&mut Stream> {
        let place = usize::try_from(id - FIRST_STREAM).ok()?;
        self.streams.get_mut(place).filter(|stream| stream.requested.is_some())
    }

    /// Takes a message on a dictionary's stream. Returns a dictionary that is complete, or the name of one that does
    /// not come, with the reason.
    pub(super) fn message(&mut self, message: &Message<'_>) -> Option<Result<Half, (&'static str, String)>> {
        let stream = self.stream(message.head().stream)?;
        let outcome = match message {
            Message::Refresh(refresh) => match ended(&refresh.state) {
                Some(why) => Err(why),
                None => take(&mut stream.incoming, refresh),
            },
            Message::Status(status) => status.state.as_ref().and_then(ended).map_or(Ok(None), Err),
            _ => Ok(None),
        };
        let result = outcome.map_err(|why| (stream.incoming.name(), why)).transpose()?;
        (stream.awaited, stream.renewed) = (false, false);
        Some(result)
    }
}

/// A streaming request for a dictionary of a service.
fn request(stream: i32, service: u16, name: &str) -> rssl::Result<Vec<u8>> {
    Request::streaming(
        Domain::DICTIONARY,
        stream,
        Key {
            service: Some(service),
            name: Some(name.as_bytes()),
            filter: Some(VERBOSITY_VERBOSE),
            ..Key::default()
        },
    )
    .to_vec()
}

/// Adds a part. Part numbers are optional, and the SDK's C provider sends none; CLEAR_CACHE marks a first part then,
/// unless the provider sets it on all parts: only a first one has the summary.
fn take(incoming: &mut Incoming, refresh: &Refresh<'_>) -> Result<Option<Half>, String> {
    let first = match refresh.part {
        Some(number) => number == 0,
        None => refresh.flags.contains(RefreshFlags::CLEAR_CACHE) && has_summary(refresh.payload),
    };
    incoming.take(refresh.payload, first, refresh.flags.contains(RefreshFlags::COMPLETE))
}

fn has_summary(payload: &[u8]) -> bool {
    Series::decode(payload).is_ok_and(|series| series.summary.is_some())
}

/// The text of a state that ends the stream before the dictionary is complete.
fn ended(state: &State<'_>) -> Option<String> {
    let closed =
        !matches!(state.stream, StreamState::Unspecified | StreamState::Open | StreamState::NonStreaming);
    closed.then(|| String::from_utf8_lossy(state.text).into_owned())
}

#[cfg(test)]
mod tests {
    use rssl::dictionary::{Dictionary, ENUM_DICTIONARY, FIELD_DICTIONARY};
    use rssl::rdm::directory::Info;
    use rssl::rwf::{DataState, DataType, Status, code};

    use super::*;
    use crate::dictionaries::Dictionaries;

    fn service(id: u16, provided: &[&str]) -> (Action, Service) {
        let dictionaries_provided = provided.iter().map(|name| (*name).to_owned()).collect();
        let info = Info { name: format!("S{id}"), dictionaries_provided, ..Info::default() };
        (Action::Add, Service { id, info: Some(info), ..Service::default() })
    }

    /// Answers a request as a provider does; returns what the download makes of the last message.
    fn answer(download: &mut Download, request: &[u8]) -> Option<Result<Half, (&'static str, String)>> {
        let Message::Request(request) = Message::decode(request).unwrap() else { panic!("not a request") };
        let given_out = Dictionaries::of(&Dictionary::small(), 500).unwrap();
        let parts = given_out.answer(&request).unwrap();
        assert!(parts.len() > 2);
        let mut last = None;
        for part in &parts {
            assert!(last.is_none(), "complete before the last part");
            assert!(Download::owns(request.stream));
            last = download.message(&Message::decode(part).unwrap());
        }
        last
    }

    #[test]
    fn provided_dictionaries_are_requested_once_and_read_in_parts() {
        let mut download = Download::default();
        assert_eq!(download.requests(&[service(3, &["Other"])]).unwrap(), Vec::<Vec<u8>>::new());
        let changes = [service(4, &[FIELD_DICTIONARY]), service(5, &[FIELD_DICTIONARY, ENUM_DICTIONARY])];
        let requests = download.requests(&changes).unwrap();
        assert_eq!((requests.len(), download.is_awaited()), (2, true));
        assert!(download.requests(&changes).unwrap().is_empty());
        let Message::Request(request) = Message::decode(&requests[1]).unwrap() else {
            panic!("not a request")
        };
        assert_eq!((request.key.service, request.key.name), (Some(5), Some(&b"RWFEnum"[..])));

        let Some(Ok(Half::Fields(fields))) = answer(&mut download, &requests[0]) else { panic!("no fields") };
        assert_eq!(fields.len(), Dictionary::small().fields.len());
        assert!(download.is_awaited());
        let Some(Ok(Half::Enums(enums))) = answer(&mut download, &requests[1]) else { panic!("no enums") };
        assert_eq!(enums.tables(), Dictionary::small().enums.tables());
        assert!(!download.is_awaited());
        // A later version on the open stream.
        assert!(matches!(answer(&mut download, &requests[0]), Some(Ok(Half::Fields(_)))));
    }

    /// A part without a number, as the SDK's C provider sends it.
    fn unnumbered(stream: i32, payload: &[u8], flags: RefreshFlags) -> Message<'_> {
        Message::Refresh(Refresh {
            flags: flags | RefreshFlags::SOLICITED,
            state: State { text: b"Field Dictionary Refresh (starting fid -3)\0", ..State::OK },
            group: &[0, 0],
            ..Refresh::new(Domain::DICTIONARY, stream, DataType::SERIES, payload)
        })
    }

    #[test]
    fn parts_without_numbers_are_one_dictionary() {
        let own = Dictionary::small();
        let parts = own.fields.parts(VERBOSITY_VERBOSE, 600).unwrap();
        let (clear, none) = (RefreshFlags::CLEAR_CACHE, RefreshFlags::NONE);
        let mut download = Download::default();
        download.requests(&[service(4, &[FIELD_DICTIONARY])]).unwrap();
        // CLEAR_CACHE on the first part, on none, and on all of them; each time on the stream that stays open.
        for (first, others) in [(clear, none), (none, none), (clear, clear)] {
            let mut last = None;
            for (at, part) in parts.iter().enumerate() {
                assert!(last.is_none(), "complete before the last part");
                let mut flags = if at == 0 { first } else { others };
                if at + 1 == parts.len() {
                    flags.insert(RefreshFlags::COMPLETE);
                }
                last = download.message(&unnumbered(3, part, flags));
            }
            let Some(Ok(Half::Fields(fields))) = last else { panic!("no fields") };
            assert_eq!((fields.len(), &fields.edition), (own.fields.len(), &own.fields.edition));
        }
        // A first part in the middle starts again.
        assert!(download.message(&unnumbered(3, &parts[0], clear)).is_none());
        assert!(download.message(&unnumbered(3, &parts[0], clear)).is_none());
        let last = download.message(&unnumbered(3, &parts[1], RefreshFlags::COMPLETE));
        let Some(Ok(Half::Fields(fields))) = last else { panic!("no fields") };
        assert!(fields.len() < own.fields.len());
    }

    #[test]
    fn suspect_dictionary_is_requested_again_once() {
        let mut download = Download::default();
        let requests = download.requests(&[service(4, &[FIELD_DICTIONARY])]).unwrap();
        let suspect = |data| {
            let state = State::new(StreamState::Open, data, code::NONE, b"changed");
            let (domain, stream) = (Domain::DICTIONARY, 3);
            Message::Status(Status::new(domain, stream, state))
        };
        assert!(download.renewal(&suspect(DataState::Suspect)).is_none(), "it is still to come");
        assert!(matches!(answer(&mut download, &requests[0]), Some(Ok(_))));
        assert!(download.renewal(&suspect(DataState::Ok)).is_none());
        for _ in 0..2 {
            let again = download.renewal(&suspect(DataState::Suspect)).unwrap().unwrap();
            assert_eq!(again, requests[0]);
            assert!(download.renewal(&suspect(DataState::Suspect)).is_none(), "it is requested already");
            assert!(!download.is_awaited(), "services do not wait for it");
            assert!(matches!(answer(&mut download, &again), Some(Ok(Half::Fields(_)))));
        }
    }

    #[test]
    fn refused_and_malformed_dictionaries_are_reported() {
        let mut download = Download::default();
        download.requests(&[service(4, &[FIELD_DICTIONARY, ENUM_DICTIONARY])]).unwrap();
        let state = State::closed(code::NOT_FOUND, b"not here");
        let status = Status::new(Domain::DICTIONARY, 3, state);
        let Some(Err(why)) = download.message(&Message::Status(status)) else { panic!("not refused") };
        assert_eq!((why, download.is_awaited()), (("RWFFld", "not here".to_owned()), true));
        let refresh = Refresh {
            flags: RefreshFlags::COMPLETE,
            state: State::OK,
            ..Refresh::new(Domain::DICTIONARY, 4, DataType::SERIES, &[0xFF, 1])
        };
        assert!(matches!(download.message(&Message::Refresh(refresh)), Some(Err(("RWFEnum", _)))));
        assert!(!download.is_awaited());
        assert_eq!(download.give_up(), Vec::<&str>::new());
    }
}
