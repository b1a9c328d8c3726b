//! Turns the requests of sinks into requests to the hub.

use rssl::rwf::{self, Class, Request, RequestFlags};

use super::pacing::SinkRequest;
use super::{SourceSide, Stream};
use crate::backbone::SinkId;
use crate::hub::{HubRequest, ItemId, ItemSpec, Target, Token};

/// The hub's token for a stream of a sink.
pub(super) fn token(sink: SinkId, stream: i32) -> Token {
    u64::from(sink.0) << 32 | u64::from(stream.cast_unsigned())
}

/// The sink and stream of a [`token`].
pub(super) fn split_token(token: Token) -> (SinkId, i32) {
    (SinkId((token >> 32) as u32), (token as u32).cast_signed())
}

impl SourceSide {
    /// Handles a request, close, post or generic message of a sink. The error breaks its connection.
    pub(super) fn handle_request(
        &mut self,
        id: SinkId,
        request: SinkRequest,
    ) -> std::result::Result<(), String> {
        let SinkRequest { reissue, in_feed, message } = request;
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(()) };
        let head = rwf::peek(&message).map_err(|why| why.to_string())?;
        let stream = head.stream;
        let known = sink.streams.get(&stream).copied();
        match head.class {
            Class::Request => {
                let request = Request::decode(&message).map_err(|why| why.to_string())?;
                match known {
                    Some(known) => self.request_image(id, stream, known, &request, in_feed),
                    None => return self.open(id, stream, &request, reissue),
                }
            }
            Class::Close => {
                if let Some(known) = sink.streams.remove(&stream) {
                    self.release(id, stream, known.item);
                }
            }
            Class::Post | Class::Generic => {
                let key = match rwf::Message::decode(&message) {
                    Ok(rwf::Message::Post(post)) => post.key,
                    _ => None,
                };
                let to = match known.filter(|known| known.item != ItemId::NONE) {
                    Some(known) => Target::Item(known.item),
                    None => match key.and_then(|key| key.service) {
                        Some(service) => Target::Service(service),
                        None => return Ok(()),
                    },
                };
                let (side, token) = (self.side, token(id, stream));
                self.hub_requests.push(HubRequest::SendUpstream { side, token, to, message });
            }
            Class::Refresh | Class::Status | Class::Update | Class::Ack => {
                return Err("it sent a message that only a source sends".into());
            }
        }
        Ok(())
    }

    /// Requests another image for an open stream.
    fn request_image(
        &mut self,
        id: SinkId,
        stream: i32,
        known: Stream,
        request: &Request<'_>,
        in_feed: bool,
    ) {
        if known.item == ItemId::NONE || request.flags.contains(RequestFlags::NO_REFRESH) {
            return;
        }
        let token = token(id, stream);
        if in_feed && !known.private {
            self.in_feed.insert(token);
        }
        if let Some(sink) = self.sinks.get_mut(&id) {
            sink.pace.requested();
        }
        self.hub_requests.push(HubRequest::Image { side: self.side, token, item: known.item });
    }

    /// Opens a stream on an item.
    fn open(
        &mut self,
        id: SinkId,
        stream: i32,
        request: &Request<'_>,
        reissue: bool,
    ) -> std::result::Result<(), String> {
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(()) };
        let service = request.key.service.ok_or("a request without a service")?;
        let feed = self.feeds.of_service(service);
        let joined = feed.is_some_and(|feed| sink.joined.iter().any(|joined| joined.feed == feed));
        if reissue || !joined {
            // The stream has ended, or the request is older than the sink's disconnect; the sink learns that
            // from the feed.
            return Ok(());
        }
        let private = request.flags.contains(RequestFlags::PRIVATE);
        let spec = ItemSpec::new(service, request.domain, &request.key, request.qos, private)
            .map_err(|why| why.to_string())?;
        sink.streams.insert(stream, Stream { item: ItemId::NONE, service, private });
        sink.pace.requested();
        self.hub_requests.push(HubRequest::Open {
            side: self.side,
            token: token(id, stream),
            spec,
            worst_qos: request.worst_qos,
            streaming: request.flags.contains(RequestFlags::STREAMING),
        });
        Ok(())
    }

    /// Removes a stream from an item, and closes the item after its last stream.
    pub(super) fn release(&mut self, id: SinkId, stream: i32, item: ItemId) {
        self.in_feed.remove(&token(id, stream));
        let Some(holders) = self.items.holders.get_mut(item.index()) else { return };
        holders.streams.retain(|holder| *holder != (id, stream));
        if holders.streams.is_empty() && holders.holds > 0 {
            self.hub_requests.push(HubRequest::Close {
                side: self.side,
                item,
                holds: std::mem::take(&mut holders.holds),
            });
            self.items.leave_feed(item);
        }
    }
}
