//! Shrinking the rings of idle lanes.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::thread;
use std::time::Duration;

use utipc_attach::{LaneCall, Request};
use utipc_lanes::{FIRST_RING, Idle, Wakeup};
use utipc_os::signals;

use crate::attachment::Attachment;
use crate::state::SocketState;

/// Time after which a large ring of an idle lane is freed: at least this, at most twice.
const IDLE: Duration = Duration::from_secs(2);
/// The highest importance: its share of the receiver's buffer is the largest, so the request to shrink is never
/// refused.
const IMPORTANCE: u8 = 3;

impl Attachment {
    /// Starts the thread that shrinks idle rings, unless it is running. Call it when a lane gets a large ring; the
    /// thread ends when no large ring is left.
    pub(crate) fn shrink_idle_rings(self: &Arc<Self>) {
        if self.shrinks_rings.swap(true, AcqRel) {
            return;
        }
        let attachment = Arc::downgrade(self);
        let run = move || {
            loop {
                thread::sleep(IDLE);
                let Some(attachment) = attachment.upgrade() else { return };
                if !attachment.is_own() || attachment.connection.is_over() || !attachment.shrink_rings() {
                    return;
                }
            }
        };
        // Without it the rings stay as they are.
        let thread = thread::Builder::new().name("utipc rings".to_owned());
        if signals::masked(|| thread.spawn(run)).is_err() {
            self.shrinks_rings.store(false, Release);
        }
    }

    /// Shrinks the rings that were not used since the last call; false if no large ring is left and the thread can end.
    fn shrink_rings(&self) -> bool {
        // From here on a lane that gets a large ring starts another thread. The swap below finds out, and this one
        // ends.
        self.shrinks_rings.store(false, Release);
        let sockets = self.notices.sockets();
        // `count`, not `any`: every socket has to be visited.
        let large = sockets.iter().filter(|socket| self.shrink_rings_of(socket)).count();
        large > 0 && !self.shrinks_rings.swap(true, AcqRel)
    }

    /// Shrinks the idle rings of one socket; returns whether to visit it again.
    fn shrink_rings_of(&self, socket: &SocketState) -> bool {
        // A half that is in use is not idle.
        let Some(mut sender) = socket.outbox.try_lock() else { return true };
        let mut large = false;
        for lane in sender.lanes_mut() {
            match lane.shrink_if_idle() {
                Idle::Small => continue,
                Idle::Busy => {}
                Idle::Shrunk(wakeup) => {
                    if wakeup == Wakeup::TellDaemon {
                        self.request_ignoring_failure(&Request::Lane(LaneCall::Wake { lane: lane.id }));
                    }
                }
                Idle::Left => {
                    // Frees the share of the receiver's buffer.
                    self.request_ignoring_failure(&Request::Lane(LaneCall::Grow {
                        lane: lane.id,
                        log2: FIRST_RING,
                        importance: IMPORTANCE,
                    }));
                    continue;
                }
            }
            large = true;
        }
        large
    }

    /// Sends a request whose failure does not matter: a refusal means that the lane has just ended, and the next call
    /// of the program finds the end of the connection.
    fn request_ignoring_failure(&self, request: &Request) {
        drop(self.request(request, &[]));
    }
}
