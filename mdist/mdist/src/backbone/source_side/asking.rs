//! What sinks ask becomes asks of the hub.

use rssl::rwf::{self, Class, Request, RequestFlags};

use super::pacing::Asked;
use super::{NONE, SourceSide, Stream};
use crate::backbone::SinkId;
use crate::hub::{HubRequest, ItemId, ItemSpec, Target, Token};

pub(super) fn token(sink: SinkId, stream: i32) -> Token {
    u64::from(sink.0) << 32 | u64::from(stream.cast_unsigned())
}

pub(super) fn of_token(token: Token) -> (SinkId, i32) {
    (SinkId((token >> 32) as u32), (token as u32).cast_signed())
}

impl SourceSide {
    /// A request, close, post or generic message of a sink.
    pub(super) fn ask(&mut self, id: SinkId, asked: Asked) -> std::result::Result<(), String> {
        let Asked { reissue, in_feed, message } = asked;
        let Some(sink) = self.sinks.get_mut(&id) else { return Ok(()) };
        let head = rwf::peek(&message).map_err(|why| why.to_string())?;
        let (stream, side) = (head.stream, self.side);
        let known = sink.streams.get(&stream).copied();
        let token = token(id, stream);
        match head.class {
            Class::Request => {
                let request = Request::decode(&message).map_err(|why| why.to_string())?;
                if let Some(known) = known {
                    if known.item != ItemId::NONE && !request.flags.contains(RequestFlags::NO_REFRESH) {
                        if in_feed && !known.private {
                            self.in_feed.insert(token);
                        }
                        sink.pace.asked();
                        self.asks.push(HubRequest::Image { side, token, item: known.item });
                    }
                    return Ok(());
                }
                let service = request.key.service.ok_or("a request without a service")?;
                let feed = self.services.get(&service);
                let joined = feed.is_some_and(|feed| sink.joined.iter().any(|joined| joined.feed == *feed));
                if reissue || !joined {
                    // For what has ended, or from before a cut: the sink will hear of that.
                    return Ok(());
                }
                let private = request.flags.contains(RequestFlags::PRIVATE);
                let spec = ItemSpec::new(service, request.domain, &request.key, request.qos, private)
                    .map_err(|why| why.to_string())?;
                let streaming = request.flags.contains(RequestFlags::STREAMING);
                sink.streams.insert(stream, Stream { item: ItemId::NONE, service, private });
                sink.pace.asked();
                self.asks.push(HubRequest::Open {
                    side,
                    token,
                    spec,
                    worst_qos: request.worst_qos,
                    streaming,
                });
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
                self.asks.push(HubRequest::SendUpstream { side, token, to, message });
            }
            Class::Refresh | Class::Status | Class::Update | Class::Ack => {
                return Err("it sent a message that only a source sends".into());
            }
        }
        Ok(())
    }

    /// One stream less on an item.
    pub(super) fn release(&mut self, id: SinkId, stream: i32, item: ItemId) {
        self.in_feed.remove(&token(id, stream));
        let Some(holders) = self.holders.get_mut(item.index()) else { return };
        holders.streams.retain(|held| *held != (id, stream));
        if holders.streams.is_empty() && holders.holds > 0 {
            self.asks.push(HubRequest::Close {
                side: self.side,
                item,
                holds: std::mem::take(&mut holders.holds),
            });
            if let Some(feed) = self.feed_of.get_mut(item.index()) {
                *feed = NONE;
            }
        }
    }
}
