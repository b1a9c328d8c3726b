//! Symbol lists with data: the server opens the listed items for the consumer. Spec: rssl.md §5.4

use rssl::rwf::{DataType, Domain, Key, Map, MapAction, Request, RequestFlags};

use super::slots::Ticket;
use super::tasks::{PORTION, Task};
use super::worker::Worker;

impl Worker {
    /// Opens the items that a part of a symbol list names, on streams with negative ids: a portion at once, the others
    /// in later turns.
    pub(super) fn open_listed_items(&mut self, list: Ticket, container: DataType, payload: &[u8]) {
        let Some(id) = self.streams.get(list).map(|stream| stream.mount) else { return };
        if container == DataType::MAP && !self.listed_portion(list, payload, 0) {
            self.put_off(id, Task::Listed { list, payload: payload.to_vec(), done: PORTION });
        }
    }

    /// Opens [`PORTION`] of the items that a map names, from entry `from` on; returns whether these were the last.
    pub(super) fn listed_portion(&mut self, list: Ticket, payload: &[u8], from: usize) -> bool {
        let Some(stream) = self.streams.get(list) else { return true };
        let Some(streaming) = stream.extra.as_ref().and_then(|extra| extra.opens_listed) else { return true };
        let (id, service) = (stream.mount, stream.service);
        let Ok(map) = Map::decode(payload) else { return true };
        let mut entries = map.entries().map_while(Result::ok).skip(from);
        for entry in entries.by_ref().take(PORTION) {
            if entry.action == MapAction::Delete {
                continue;
            }
            let Some(own) = self.unused_stream_id(id) else { return true };
            let request = Request::new(
                Domain::MARKET_PRICE,
                own,
                if streaming { RequestFlags::STREAMING } else { RequestFlags::NONE },
                Key::item(service, entry.key),
            );
            self.item_request(id, &request);
        }
        entries.next().is_none()
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
