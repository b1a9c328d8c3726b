//! Symbol lists whose items the client wants with them: streams that the server opens. Spec: rssl.md §5.4

use rssl::rwf::{DataType, Domain, Key, Map, MapAction, Request, RequestFlags};

use super::slots::Ticket;
use super::worker::Worker;

impl Worker {
    /// Opens the items that a part of a symbol list names, on streams with negative ids.
    pub(super) fn open_listed(&mut self, ticket: Ticket, container: DataType, payload: &[u8]) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Some(streaming) = stream.extra.as_ref().and_then(|extra| extra.data_streams) else { return };
        let (id, service) = (stream.mount, stream.service);
        if container != DataType::MAP {
            return;
        }
        let Ok(map) = Map::decode(payload) else { return };
        for entry in map.entries().map_while(Result::ok) {
            if entry.action == MapAction::Delete {
                continue;
            }
            let Some(own) = self.own_stream(id) else { return };
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

    /// A negative stream id that the mount does not use; none when it has all the streams it may have.
    fn own_stream(&mut self, id: Ticket) -> Option<i32> {
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
