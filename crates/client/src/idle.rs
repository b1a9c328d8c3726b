//! Lanes that are not used give the memory of large rings back.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::thread;
use std::time::Duration;

use utipc_attach::Request;
use utipc_lanes::Wakeup;
use utipc_os::signals;

use crate::attachment::{Attachment, lock};
use crate::lanes::outbound::Rest;
use crate::shared::Shared;

/// How long nothing is sent before a large ring goes back: at least this, at most twice.
const IDLE: Duration = Duration::from_secs(2);
/// log2 of the ring that every lane has.
const SMALLEST: u8 = 12;
/// With the highest importance the receiver's buffer takes most: giving back is not to be refused for want of room.
const IMPORTANCE: u8 = 3;

impl Attachment {
    /// A lane has a large ring now: as long as there are any, a thread looks whether they are used.
    pub(crate) fn watch_rings(self: &Arc<Self>) {
        if self.watches_rings.swap(true, AcqRel) {
            return;
        }
        let attachment = Arc::downgrade(self);
        let run = move || {
            loop {
                thread::sleep(IDLE);
                let Some(attachment) = attachment.upgrade() else { return };
                if !attachment.is_own() || attachment.is_over() || !attachment.rest_rings() {
                    return;
                }
            }
        };
        // Without it the rings stay as they are.
        let thread = thread::Builder::new().name("utipc rings".to_owned());
        if signals::masked(|| thread.spawn(run)).is_err() {
            self.watches_rings.store(false, Release);
        }
    }

    /// Gives back what has not been used since the last time; false if nothing large is left, and no thread is needed.
    fn rest_rings(&self) -> bool {
        // Who gets a large ring from here on starts a thread of its own, unless this one goes on.
        self.watches_rings.store(false, Release);
        let sockets = lock(&self.residents).all();
        // Each of them, also after the first with a large one.
        let large = sockets.iter().filter(|socket| self.rest_rings_of(socket)).count();
        large > 0 && !self.watches_rings.swap(true, AcqRel)
    }

    /// Whether a lane of this socket still has a large ring.
    fn rest_rings_of(&self, socket: &Shared) -> bool {
        // A half that is in use is not idle.
        let Ok(mut sender) = socket.sender.try_lock() else { return true };
        let mut large = false;
        for lane in sender.lanes_mut() {
            match lane.rest() {
                Rest::Small => continue,
                Rest::Large => {}
                Rest::Returned(ring) => {
                    if ring == Wakeup::TellDaemon {
                        self.request(&Request::Wake { lane: lane.id });
                    }
                    // The receiver's buffer has room for others.
                    self.request(&Request::Grow { lane: lane.id, log2: SMALLEST, importance: IMPORTANCE });
                }
            }
            large = true;
        }
        large
    }

    /// What is refused here is a lane that has just ended; what fails, the next call of the program finds out.
    fn request(&self, request: &Request) {
        drop(self.command(request, &[]));
    }
}
