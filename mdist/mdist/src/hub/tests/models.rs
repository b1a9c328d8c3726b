//! Model providers and publishers, which share a table of fields.

use std::collections::{BTreeMap, VecDeque};

use rssl::rwf::{
    self, Ack, Class, Close, DataState, DataType, Domain, Key, Message, Post, Refresh, RefreshFlags, Request,
    RequestFlags, State, Status, StreamState, Update,
};

use super::super::*;
use super::rig::Rig;

pub(super) type Fields = BTreeMap<i16, Vec<u8>>;

/// A field list payload.
pub(super) fn encode(fields: &Fields) -> Vec<u8> {
    let mut out = vec![0x08];
    out.extend((fields.len() as u16).to_be_bytes());
    for (id, value) in fields {
        out.extend(id.to_be_bytes());
        out.push(value.len() as u8);
        out.extend(value);
    }
    out
}

pub(super) fn decode(payload: &[u8]) -> Fields {
    let mut fields = Fields::new();
    let Some((3.., mut rest)) = Some((payload.len(), payload.get(3..).unwrap_or(&[]))) else { return fields };
    while let [a, b, len, tail @ ..] = rest {
        let (value, tail) = tail.split_at(*len as usize);
        fields.insert(i16::from_be_bytes([*a, *b]), value.to_vec());
        rest = tail;
    }
    fields
}

/// The answers of a model to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Image,
    Nothing,
    NotFound,
    Recover,
    /// A refresh whose flags have neither solicited nor clear-cache.
    Plain,
    /// A suspect image.
    Stale,
    /// No answer for the item of this name, and an image for every other.
    AllBut(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) domain: Domain,
    pub(super) streaming: bool,
    pub(super) private: bool,
    pub(super) service: u16,
}

/// One provider.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) up: UpstreamId,
    pub(super) alive: bool,
    pub(super) answer: Answer,
    pub(super) streams: BTreeMap<i32, Stream>,
    pub(super) requests: usize,
    pub(super) closes: usize,
    pub(super) seen: Vec<Vec<u8>>,
    pub(super) outgoing: VecDeque<Vec<u8>>,
}

impl Model {
    pub(super) fn send(&mut self, message: Vec<u8>) {
        self.outgoing.push_back(message);
    }

    pub(super) fn stream_of(&self, name: &str) -> Option<i32> {
        self.streams.iter().find(|(_, s)| s.name == name).map(|(id, _)| *id)
    }

    pub(super) fn status(&mut self, name: &str, stream: StreamState, data: DataState, code: u8) {
        let id = self.stream_of(name).expect("an open stream");
        let domain = self.streams[&id].domain;
        if !matches!(stream, StreamState::Open | StreamState::Unspecified) {
            self.streams.remove(&id);
        }
        let state = State::new(stream, data, code, b"model");
        self.send(Status::new(domain, id, state).to_vec().unwrap());
    }
}

pub(super) fn price_key(name: &str) -> Key<'_> {
    Key { name: Some(name.as_bytes()), ..Key::default() }
}

impl Rig {
    /// Answers one message as a provider.
    pub(super) fn answer(&mut self, model: usize, message: &[u8]) {
        self.models[model].seen.push(message.to_vec());
        match Message::decode(message).expect("the hub writes good messages") {
            Message::Request(r) => self.answer_request(model, &r),
            Message::Close(Close { stream, .. }) => {
                self.models[model].closes += 1;
                self.models[model].streams.remove(&stream);
            }
            Message::Post(Post { domain, stream, post_id: Some(id), .. })
                if self.models[model].answer != Answer::Nothing =>
            {
                let ack = Ack { domain, stream, ack_id: id, ..Ack::default() };
                self.models[model].send(ack.to_vec().unwrap());
            }
            _ => {}
        }
    }

    fn answer_request(&mut self, model: usize, r: &Request<'_>) {
        let name = String::from_utf8(r.key.name.expect("a name").to_vec()).unwrap();
        let m = &mut self.models[model];
        m.requests += 1;
        let stream = Stream {
            name: name.clone(),
            domain: r.domain,
            streaming: r.flags.contains(RequestFlags::STREAMING),
            private: r.flags.contains(RequestFlags::PRIVATE),
            service: r.key.service.expect("a service"),
        };
        if let Some(old) = m.streams.insert(r.stream, stream) {
            assert_eq!(old.name, name, "a reissue has the key of its stream");
        }
        match m.answer {
            Answer::AllBut(unanswered) if unanswered == name => {}
            Answer::Image | Answer::Plain | Answer::Stale | Answer::AllBut(_) => {
                self.image(model, r.stream, m_solicited(self.models[model].answer))
            }
            Answer::Nothing => {}
            Answer::NotFound => m.status(&name, StreamState::Closed, DataState::Suspect, 1),
            Answer::Recover => m.status(&name, StreamState::ClosedRecover, DataState::Suspect, 0),
        }
    }

    /// Sends a provider's refresh in `parts` parts.
    pub(super) fn image(&mut self, model: usize, id: i32, solicited: bool) {
        for part in self.image_parts(model, id, solicited) {
            self.models[model].send(part);
        }
        if !self.models[model].streams[&id].streaming {
            self.models[model].streams.remove(&id);
        }
    }

    pub(super) fn image_parts(&mut self, model: usize, id: i32, solicited: bool) -> Vec<Vec<u8>> {
        let stream = self.models[model].streams[&id].clone();
        let row = self.row(&stream.name).clone();
        let parts = self.parts;
        let size = row.len().div_ceil(parts);
        let mut rows = row.into_iter();
        (0..parts)
            .map(|n| {
                let fields: Fields = rows.by_ref().take(size).collect();
                let mut flags = RefreshFlags::NONE;
                if solicited {
                    flags.insert(RefreshFlags::SOLICITED);
                }
                if n == 0 && solicited {
                    flags.insert(RefreshFlags::CLEAR_CACHE);
                }
                if n + 1 == parts {
                    flags.insert(RefreshFlags::COMPLETE);
                }
                if stream.private {
                    flags.insert(RefreshFlags::PRIVATE);
                }
                let state = if stream.streaming { StreamState::Open } else { StreamState::NonStreaming };
                let is_stale = self.models[model].answer == Answer::Stale;
                let data = if is_stale { DataState::Suspect } else { DataState::Ok };
                let payload = encode(&fields);
                let refresh = Refresh {
                    flags,
                    state: State::new(state, data, 0, b"All is well"),
                    group: &[0, 7],
                    key: Some(Key { service: Some(stream.service), ..price_key(&stream.name) }),
                    part: (parts > 1).then_some(n as u16),
                    ..Refresh::new(stream.domain, id, DataType::FIELD_LIST, &payload)
                };
                refresh.to_vec().unwrap()
            })
            .collect()
    }

    fn row(&mut self, name: &str) -> &mut Fields {
        self.table.entry(name.to_owned()).or_insert_with(|| {
            (1..10)
                .map(|n| (n, vec![n as u8; 2 + n as usize % 5]))
                .chain([(22, name.as_bytes().to_vec())])
                .collect()
        })
    }

    /// Changes some fields of an item, and sends updates on its streams.
    pub(super) fn update(&mut self, name: &str) {
        self.counter += 1;
        let n = self.counter;
        let changed: Fields =
            [(22, n.to_be_bytes().to_vec()), (1 + (n % 20) as i16, vec![n as u8; 3])].into();
        self.row(name).extend(changed.clone());
        for model in self.models.iter_mut().filter(|m| m.alive) {
            let streams: Vec<_> =
                model.streams.iter().filter(|(_, s)| s.name == name && s.streaming).collect();
            let updates: Vec<_> =
                streams.iter().map(|(id, s)| update_message(**id, s.domain, &changed)).collect();
            model.outgoing.extend(updates);
        }
    }
}

fn m_solicited(answer: Answer) -> bool {
    answer == Answer::Image
}

pub(super) fn update_message(stream: i32, domain: Domain, fields: &Fields) -> Vec<u8> {
    let payload = encode(fields);
    let update = Update { kind: 1, ..Update::new(domain, stream, DataType::FIELD_LIST, &payload) };
    update.to_vec().unwrap()
}

pub(super) fn class_of(message: &[u8]) -> Class {
    rwf::peek(message).unwrap().class
}
