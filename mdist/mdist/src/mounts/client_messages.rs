//! Messages of consumers besides requests: closes, posts and generic messages.

use rssl::rdm::items;
use rssl::rwf::{Ack, Close, CloseFlags, DataType, Domain, Generic, Post, PostFlags, nak};

use super::mount::Role;
use super::reason::Reason;
use super::slots::Ticket;
use super::tasks::Task;
use super::worker::Worker;
use crate::hub::{HubRequest, Target};

impl Worker {
    /// Handles a close. Closes have no answer; one for a stream that is not open has no effect. Spec: rssl.md §10
    pub(super) fn close(&mut self, id: Ticket, close: &Close<'_>) -> Result<(), Reason> {
        if close.flags.contains(CloseFlags::BATCH) {
            let streams = items::stream_ids(close.payload)
                .map_err(|error| Reason::Protocol(format!("batch close: {error}")))?
                .unwrap_or_default();
            self.begin(id, Task::Close(streams.into_iter()));
            return Ok(());
        }
        self.close_one(id, close.stream);
        Ok(())
    }

    pub(super) fn close_one(&mut self, id: Ticket, stream: i32) {
        let Some(ticket) = self.find_stream(id, stream) else { return };
        if self.streams.get(ticket).is_some_and(|stream| stream.role == Role::Login) {
            self.logged_out(id);
        } else {
            self.end_stream(ticket);
        }
    }

    /// Handles a post: on the login stream it goes to the service of its key, else to the item of its stream. Spec:
    /// rssl.md §6.1
    pub(super) fn post(&mut self, id: Ticket, post: &Post<'_>, message: &[u8]) {
        if !self.config.posts {
            return self.refuse_post(
                id,
                post,
                nak::ACCESS_DENIED,
                "posts are refused by this server (p2ps.posts)",
            );
        }
        let Some(ticket) = self.find_stream(id, post.stream) else {
            return self.refuse_post(id, post, nak::NOT_OPEN, "no such stream is open");
        };
        let Some(stream) = self.streams.get(ticket) else { return };
        let target = match (stream.role, stream.item) {
            (Role::Item, Some(item)) => Target::Item(item),
            (Role::Item, None) => {
                return self.refuse_post(id, post, nak::NOT_OPEN, "the item has not been answered yet");
            }
            (Role::Login, _) => match post.key.and_then(|key| Some((key.service?, key.name?))) {
                None => {
                    let text = "a post on the login stream needs service and name";
                    return self.refuse_post(id, post, nak::INVALID_CONTENT, text);
                }
                Some((service, _)) if self.services.find(service).is_none() => {
                    return self.refuse_post(id, post, nak::SOURCE_UNKNOWN, "no service has this id");
                }
                Some((service, _)) => Target::Service(service),
            },
            _ => {
                return self.refuse_post(
                    id,
                    post,
                    nak::INVALID_CONTENT,
                    "nothing can be posted on this stream",
                );
            }
        };
        self.hub_requests.push(HubRequest::SendUpstream {
            side: self.side,
            token: ticket.to_u64(),
            to: target,
            message: message.to_vec(),
        });
    }

    /// Sends the refusal of a post, if the post requests an acknowledgement.
    fn refuse_post(&mut self, id: Ticket, post: &Post<'_>, code: u8, text: &str) {
        if !post.flags.contains(PostFlags::ACK) {
            return;
        }
        let ack = Ack {
            domain: post.domain,
            stream: post.stream,
            container: DataType::NO_DATA,
            ack_id: post.post_id.unwrap_or_default(),
            nak: Some(code),
            text: Some(text.as_bytes()),
            seq: post.seq,
            ..Ack::default()
        };
        if let Ok(message) = ack.to_vec() {
            self.send(id, &message);
        }
    }

    /// Handles a generic message: on an item's stream it goes upstream, others have no effect.
    pub(super) fn generic(&mut self, id: Ticket, generic: &Generic<'_>, message: &[u8]) {
        let Some(ticket) = self.find_stream(id, generic.stream) else { return };
        let Some(stream) = self.streams.get(ticket) else { return };
        if let (Role::Item, Some(item)) = (stream.role, stream.item)
            && Domain(stream.domain) == generic.domain
        {
            let to = Target::Item(item);
            self.hub_requests.push(HubRequest::SendUpstream {
                side: self.side,
                token: ticket.to_u64(),
                to,
                message: message.to_vec(),
            });
        }
    }
}
