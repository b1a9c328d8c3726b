//! Messages from the peer: logins, requests, closes, posts and generic messages.

use anyhow::{Result, bail};
use rssl::rdm::{directory, login};
use rssl::rwf::{
    Ack, Class, DataState, DataType, Domain, Generic, Message, Post, Refresh, Request, RequestFlags, State,
    Status, StatusFlags, StreamState, code, nak, peek,
};
use rssl::wire::to_vec;

use super::items::Items;
use super::state::{PendingImage, SessionState};

impl SessionState {
    pub(super) fn login_request(&self) -> Result<Vec<u8>> {
        let request = login::Request {
            user: self.shared.options.user.as_bytes(),
            attributes: login::Attributes {
                application_name: Some(b"sink_driven_src"),
                role: 1,
                single_open: false,
                ..login::Attributes::default()
            },
            ..login::Request::default()
        };
        Ok(to_vec(|w| request.encode(1, w))?)
    }

    /// Handles one message; `reply` sends the answers.
    pub(super) fn message(
        &mut self,
        message: &[u8],
        reply: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let head = peek(message)?;
        match (head.class, head.domain) {
            (Class::Request, Domain::LOGIN) => {
                let request = Request::decode(message)?;
                self.ready = true;
                self.counts.logins += 1;
                let requested = login::Request::decode(&request)?;
                let answer = login::Reply {
                    attributes: login::Attributes {
                        single_open: false,
                        ..requested.attributes.accepted(b"sink_driven_src")
                    },
                    support_post: true,
                    ..login::Reply::to(&requested)
                };
                reply(&to_vec(|w| answer.encode(request.stream, w))?)
            }
            (Class::Refresh, Domain::LOGIN) => {
                let refresh = Refresh::decode(message)?;
                if refresh.state.is_final() {
                    bail!("the login was refused: {}", String::from_utf8_lossy(refresh.state.text));
                }
                if !self.ready {
                    self.ready = true;
                    self.counts.logins += 1;
                    reply(&self.shared.directory(-1, directory::filter::ALL, None, false)?)?;
                }
                Ok(())
            }
            (Class::Status, Domain::LOGIN) => {
                let status = Status::decode(message)?;
                if let Some(state) = status.state.filter(State::is_final) {
                    bail!("the login was ended: {}", String::from_utf8_lossy(state.text));
                }
                Ok(())
            }
            (Class::Request, Domain::DIRECTORY) => {
                let request = Request::decode(message)?;
                let filter = request.key.filter.unwrap_or(directory::filter::ALL);
                (self.directory, self.announced) = (Some(request.stream), self.shared.events.count());
                reply(&self.shared.directory(request.stream, filter, request.key.service, true)?)
            }
            (Class::Request, Domain::DICTIONARY) => {
                for part in self.shared.dictionary(&Request::decode(message)?)? {
                    reply(&part)?;
                }
                Ok(())
            }
            (Class::Request, _) => self.request(&Request::decode(message)?, reply),
            (Class::Close, Domain::LOGIN) => {
                self.items.clear();
                self.pending_images.clear();
                self.end = Some("the peer logged out".into());
                Ok(())
            }
            (Class::Close, _) => {
                self.counts.closes += 1;
                self.items.remove(head.stream);
                self.pending_images.retain(|pending| pending.stream != head.stream);
                Ok(())
            }
            (Class::Post, _) => self.post(&Post::decode(message)?, reply),
            (Class::Generic, domain) if !domain.is_administrative() => {
                let generic = Generic::decode(message)?;
                self.counts.generics += 1;
                let echo = Generic { key: None, perm: None, ext: None, req_key: None, ..generic };
                reply(&to_vec(|w| echo.encode(w))?)
            }
            _ => Ok(()),
        }
    }

    fn request(&mut self, request: &Request<'_>, reply: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.counts.requests += 1;
        let place = self.shared.options.sets.iter().position(|set| set.domain == request.domain);
        let refused = match (place, request.key.name) {
            _ if request.key.service.is_some_and(|service| service != self.shared.options.service_id) => {
                Some((code::SOURCE_UNKNOWN, "no such service here"))
            }
            _ if request.flags.contains(RequestFlags::BATCH) => {
                Some((code::NO_BATCH_VIEW_SUPPORT, "no batch requests here"))
            }
            (None, _) => Some((code::USAGE_ERROR, "no data of this domain here")),
            (_, None) => Some((code::USAGE_ERROR, "a request needs a name")),
            (_, Some(name)) if !self.shared.knows(name) => Some((code::NOT_FOUND, "no such item")),
            _ => None,
        };
        if let Some((code, text)) = refused {
            let status = Status {
                domain: request.domain,
                stream: request.stream,
                flags: if request.flags.contains(RequestFlags::PRIVATE) {
                    StatusFlags::PRIVATE
                } else {
                    StatusFlags::NONE
                },
                state: Some(State::new(StreamState::Closed, DataState::Suspect, code, text.as_bytes())),
                ..Status::default()
            };
            return reply(&to_vec(|w| status.encode(w))?);
        }
        if request.flags.contains(RequestFlags::NO_REFRESH) {
            return Ok(());
        }
        self.pending_images.push_back(PendingImage {
            stream: request.stream,
            service: request.key.service,
            name: request.key.name.unwrap_or_default().into(),
            set: place.unwrap_or(0) as u8,
            streaming: request.flags.contains(RequestFlags::STREAMING),
            private: request.flags.contains(RequestFlags::PRIVATE),
        });
        Ok(())
    }

    /// Acknowledges a post and sends its content back as an update, as a distributor does.
    fn post(&mut self, post: &Post<'_>, reply: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.counts.posts += 1;
        let item = self.items.get(post.stream);
        if post.flags.contains(rssl::rwf::PostFlags::ACK) {
            let unknown = item.is_none() && post.domain != Domain::LOGIN;
            let ack = Ack {
                domain: post.domain,
                stream: post.stream,
                ack_id: post.post_id.unwrap_or(0),
                seq: post.seq,
                nak: unknown.then_some(nak::NOT_OPEN),
                ..Ack::default()
            };
            reply(&to_vec(|w| ack.encode(w))?)?;
        }
        let Some(set) = item.and_then(|item| self.shared.options.sets.get(usize::from(item.set))) else {
            return Ok(());
        };
        let (container, payload) = if post.container == DataType::MSG {
            let inner = Message::decode(post.payload)?;
            (inner.container(), inner.payload())
        } else {
            (post.container, post.payload)
        };
        match Items::posted(set, post.stream, post.post_user, container, payload) {
            Some(update) => reply(&update),
            None => Ok(()),
        }
    }
}
