//! The queue of a mount's requests for images.
//!
//! Requests go to the hub no faster than the consumer reads the images. So a burst of requests does not
//! overflow the output of a consumer that reads. Streams whose request waits here get their image later, and no
//! updates until then.
//!
//! Updates do not wait for room, so under full load they alone may keep the output above the mark at which images stop.
//! Images then get a fixed share of what the consumer reads ([`ImageShare`]).

use super::mount::Wanted;
use super::pool::BUFFER;
use super::slots::Ticket;
use super::slow_consumer::Limits;
use super::worker::Worker;
use crate::hub::HubRequest;

/// While updates fill the output, images get one of this many bytes that the consumer reads: enough for 100,000 images
/// of 1,500 bytes in 3 s beside two million updates of 90 bytes a second.
const IMAGE_SHARE: usize = 4;

/// Bytes of images that a mount may request although its output is above the mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageShare {
    /// Bytes that the consumer has read and that do not count yet.
    rest: usize,
    credit: usize,
}

impl ImageShare {
    /// Counts `bytes` that the consumer has read; the credit is at most `most`.
    pub(crate) fn read(&mut self, bytes: usize, most: usize) {
        let all = self.rest + bytes;
        self.rest = all % IMAGE_SHARE;
        self.credit = (self.credit + all / IMAGE_SHARE).min(most);
    }

    /// Takes the credit for an image of `bytes`; false: there is not enough.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.credit.checked_sub(bytes);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }
}

/// The requests that a mount may send now.
struct Window {
    /// Maximum number of requests at the hub: their images fill half of the guaranteed buffers, less the bytes that the
    /// consumer has not read.
    usual: usize,
    /// Maximum number of requests at the hub within the share of images; 0: the consumer is too slow.
    shared: usize,
}

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

    /// Bytes of output up to which a mount requests images freely.
    fn image_mark(limits: Limits) -> usize {
        limits.guaranteed.min(limits.max).max(1) * BUFFER / 2
    }

    fn window(&self, id: Ticket) -> Window {
        let Some(output) = self.outputs.get(id) else { return Window { usual: 0, shared: 0 } };
        let (mark, waiting) = (Self::image_mark(output.limits()), output.waiting());
        let left = mark.saturating_sub(waiting);
        let images = |bytes: usize| (bytes / self.image_bytes.max(1)).max(1);
        // The images must not be what makes a slow consumer overflow.
        let is_slow = waiting >= output.limits().max * BUFFER / 2;
        Window {
            usual: if left == 0 { 0 } else { images(left) },
            shared: if is_slow { 0 } else { images(mark) },
        }
    }

    /// Counts bytes that a consumer has read, while requests of it wait.
    pub(super) fn grant_images(&mut self, id: Ticket, bytes: usize) {
        let Some(output) = self.outputs.get(id) else { return };
        let mark = Self::image_mark(output.limits());
        if let Some(mount) = self.mounts.get_mut(id).filter(|mount| !mount.queue.is_empty()) {
            mount.image_share.read(bytes, mark);
        }
    }

    /// Sends the mount's queued requests to the hub, as far as its window and the share of images allow.
    pub(super) fn send_requests(&mut self, id: Ticket) {
        let window = self.window(id);
        let image_bytes = self.image_bytes.max(1);
        let Some(mount) = self.mounts.get_mut(id) else { return };
        while (mount.outstanding < window.usual
            || mount.outstanding < window.shared && mount.image_share.take(image_bytes))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_get_a_quarter_of_what_is_read_up_to_a_limit() {
        let mut share = ImageShare::default();
        assert!(!share.take(1));
        let mut images = 0;
        // 64,000 bytes in odd pieces: 16,000 bytes, 32 images of 500.
        for _ in 0..9_142 {
            share.read(7, 1_000);
            images += u32::from(share.take(500));
        }
        assert!((31..=32).contains(&images), "{images}");
        share.read(usize::MAX / 2, 1_000);
        assert_eq!((share.take(600), share.take(600), share.take(400)), (true, false, true));
    }
}
