//! Replies with descriptors that the system refused, because too many descriptors of the daemon's user are in flight:
//! those of all processes of this user count, even of other programs. The replies leave when there is room.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use utipc_core::Time;
use utipc_os::fdpass::Put;

use super::{Attachments, EndReason, Outgoing};

/// Pause between two tries, milliseconds: the system does not report that there is room.
const RETRY_MS: u64 = 10;
/// Time after which the process is disconnected. By then its own wait for the reply has expired.
const LONGEST: Duration = Duration::from_secs(30);
/// Maximum number of replies behind the delayed one. A process has at most 64 requests without a reply.
const BEHIND_MAX: usize = 64;

/// A reply that waits for room, and the later replies to the same process.
#[derive(Debug)]
pub(super) struct Delayed {
    packet: Vec<u8>,
    fds: Vec<OwnedFd>,
    since: Instant,
    behind: VecDeque<Outgoing>,
}

impl Delayed {
    pub(super) fn new(packet: Vec<u8>, fds: Vec<OwnedFd>) -> Self {
        Self { packet, fds, since: Instant::now(), behind: VecDeque::new() }
    }

    /// Queues a later reply.
    pub(super) fn push(&mut self, reply: Outgoing) -> Result<(), EndReason> {
        if self.behind.len() >= BEHIND_MAX {
            return Err(EndReason::Unread);
        }
        self.behind.push_back(reply);
        Ok(())
    }
}

impl Attachments {
    /// When to call [`Attachments::send_delayed`] again.
    pub(crate) fn deadline(&self, now: Time) -> Time {
        if self.delayed.is_empty() { Time::NEVER } else { now.plus_millis(RETRY_MS) }
    }

    /// Tries to send the delayed replies, and then those that were behind them.
    pub(crate) fn send_delayed(&mut self) {
        let Self { all, delayed, replies, ended, .. } = self;
        delayed.retain(|id| {
            let Some(attachment) = all.get_mut(id) else { return false };
            let Some(waiting) = &mut attachment.delayed else { return false };
            let fds: Vec<BorrowedFd<'_>> = waiting.fds.iter().map(AsFd::as_fd).collect();
            match attachment.channel.send(&[IoSlice::new(&waiting.packet)], &fds, false) {
                Ok(Put::Sent) => {
                    replies.extend(attachment.delayed.take().into_iter().flat_map(|it| it.behind))
                }
                Ok(Put::Busy) if waiting.since.elapsed() < LONGEST => return true,
                Ok(Put::Busy) | Err(_) => ended.push((*id, EndReason::System)),
                Ok(Put::Full) => ended.push((*id, EndReason::Unread)),
                Ok(Put::Gone) => ended.push((*id, EndReason::Closed)),
            }
            false
        });
    }
}
