//! Requests go to the hub no faster than the client reads the images, so that a burst of requests never overflows a
//! client that reads. What waits here takes its image late, and needs no updates until then.

use super::mount::Wanted;
use super::pool::BUFFER;
use super::slots::Ticket;
use super::worker::Worker;
use crate::hub::HubRequest;

impl Worker {
    /// Queues a request for an image; it goes out with `pump`.
    pub(super) fn want(&mut self, ticket: Ticket, wanted: Wanted) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Some(mount) = self.mounts.get_mut(stream.mount) else { return };
        mount.queue.push_back((ticket, wanted));
        // Requests closed while they waited are still in the queue; a client that does nothing else must not make it grow.
        if mount.queue.len() > 64 && mount.queue.len() > 2 * mount.ids.len() {
            let streams = &self.streams;
            mount.queue.retain(|(ticket, _)| streams.get(*ticket).is_some());
        }
    }

    /// How many images may be on their way to a mount: half of what it is guaranteed, less what it has not read.
    fn window(&self, id: Ticket) -> usize {
        let Some(output) = self.outputs.get(id.index() as usize) else { return 0 };
        let mark = output.limits().guaranteed.min(output.limits().max).max(1) * BUFFER / 2;
        let left = mark.saturating_sub(output.waiting());
        if left == 0 { 0 } else { (left / self.image_bytes.max(1)).max(1) }
    }

    /// Sends the mount's waiting requests to the hub as far as its window goes.
    pub(super) fn pump(&mut self, id: Ticket) {
        let window = self.window(id);
        let Some(mount) = self.mounts.get_mut(id) else { return };
        while mount.outstanding < window
            && let Some((ticket, wanted)) = mount.queue.pop_front()
        {
            let Some(stream) = self.streams.get_mut(ticket) else { continue };
            stream.at_hub = true;
            if !stream.counted {
                stream.counted = true;
                mount.outstanding += 1;
            }
            let (side, token) = (self.side, ticket.to_u64());
            self.hub_requests.push(match wanted {
                // The quality was chosen among those that the service offers.
                Wanted::Open(spec) => {
                    HubRequest::Open { side, token, spec, worst_qos: None, streaming: stream.streaming() }
                }
                Wanted::Image(item) => HubRequest::Image { side, token, item },
            });
        }
    }

    /// The stream's image is there, or will not come soon: the next may be asked for.
    pub(super) fn answered(&mut self, ticket: Ticket) {
        let Some(stream) = self.streams.get_mut(ticket) else { return };
        if std::mem::take(&mut stream.counted)
            && let Some(mount) = self.mounts.get_mut(stream.mount)
        {
            mount.outstanding = mount.outstanding.saturating_sub(1);
            if !mount.queue.is_empty() {
                self.eager.push(stream.mount);
            }
        }
    }
}
