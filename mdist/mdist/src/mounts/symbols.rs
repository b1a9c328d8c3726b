//! Symbol lists with data: the server opens the listed items for the consumer. Spec: rssl.md §5.4

use rssl::rwf::{DataType, Domain, Key, Map, MapAction, Request, RequestFlags};

use super::slots::Ticket;
use super::worker::Worker;

impl Worker {
    /// Opens the items that a part of a symbol list names, on streams with negative ids.
    pub(super) fn open_listed_items(&mut self, ticket: Ticket, container: DataType, payload: &[u8]) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Some(streaming) = stream.extra.as_ref().and_then(|extra| extra.opens_listed) else { return };
        let (id, service) = (stream.mount, stream.service);
        if container != DataType::MAP {
            return;
        }
        let Ok(map) = Map::decode(payload) else { return };
        for entry in map.entries().map_while(Result::ok) {
            if entry.action == MapAction::Delete {
                continue;
            }
            let Some(own) = self.unused_stream_id(id) else { return };
            let request = Request {
                domain: Domain::MARKET_PRICE,
                stream: own,
                flags: if streaming { RequestFlags::STREAMING } else { RequestFlags::NONE },
                container: DataType::NO_DATA,
                key: Key::item(service, entry.key),
                ..Request::default()
            };
            self.item_request(id, &request);
        }
    }

    /// A negative stream id that the mount does not use; `None` if the mount may not have more streams.
    fn unused_stream_id(&mut self, id: Ticket) -> Option<i32> {
        let mount = self.mounts.get_mut(id)?;
        if mount.ids.len() >= self.config.open_limit as usize {
            return None;
        }
        loop {
            let own = mount.next_own;
            mount.next_own = if own == i32::MIN { -1 } else { own - 1 };
            if !mount.ids.contains_key(&own) {
                return Some(own);
            }
        }
    }
}
