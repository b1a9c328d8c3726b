//! The queue of a mount's requests for images.
//!
//! Requests go to the hub no faster than the consumer reads the images. So a burst of requests does not
//! overflow the output of a consumer that reads. Streams whose request waits here get their image later, and no
//! updates until then.

use super::mount::Wanted;
use super::pool::BUFFER;
use super::slots::Ticket;
use super::worker::Worker;
use crate::hub::HubRequest;

impl Worker {
    /// Queues a stream's request for an image.
    pub(super) fn queue_request(&mut self, ticket: Ticket, wanted: Wanted) {
        let Some(stream) = self.streams.get(ticket) else { return };
        let Some(mount) = self.mounts.get_mut(stream.mount) else { return };
        mount.queue.push_back((ticket, wanted));
        // Remove requests that were closed while they waited: a consumer that opens and closes must not make
        // the queue grow.
        if mount.queue.len() > 64 && mount.queue.len() > 2 * mount.ids.len() {
            let streams = &self.streams;
            mount.queue.retain(|(ticket, _)| streams.get(*ticket).is_some());
        }
    }

    /// Most requests of a mount that may be at the hub. Their images fill half of its guaranteed buffers, less
    /// the bytes that it has not read.
    fn window(&self, id: Ticket) -> usize {
        let Some(output) = self.outputs.get(id.index() as usize) else { return 0 };
        let mark = output.limits().guaranteed.min(output.limits().max).max(1) * BUFFER / 2;
        let left = mark.saturating_sub(output.waiting());
        if left == 0 { 0 } else { (left / self.image_bytes.max(1)).max(1) }
    }

    /// Sends the mount's queued requests to the hub, as far as its window allows.
    pub(super) fn send_requests(&mut self, id: Ticket) {
        let window = self.window(id);
        let Some(mount) = self.mounts.get_mut(id) else { return };
        while mount.outstanding < window
            && let Some((ticket, wanted)) = mount.queue.pop_front()
        {
            let Some(stream) = self.streams.get_mut(ticket) else { continue };
            stream.requested = true;
            if !stream.counted {
                stream.counted = true;
                mount.outstanding += 1;
            }
            let (side, token) = (self.side, ticket.to_u64());
            self.hub_requests.push(match wanted {
                // The quality of service was chosen from those that the service offers.
                Wanted::Open(spec) => {
                    HubRequest::Open { side, token, spec, worst_qos: None, streaming: stream.streaming() }
                }
                Wanted::Image(item) => HubRequest::Image { side, token, item },
            });
        }
    }

    /// Takes the stream's request out of the window, because its image has come or will not come soon.
    pub(super) fn request_answered(&mut self, ticket: Ticket) {
        let Some(stream) = self.streams.get_mut(ticket) else { return };
        if std::mem::take(&mut stream.counted)
            && let Some(mount) = self.mounts.get_mut(stream.mount)
        {
            mount.outstanding = mount.outstanding.saturating_sub(1);
            if !mount.queue.is_empty() {
                self.resumable.push(stream.mount);
            }
        }
    }
}
