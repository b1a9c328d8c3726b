//! Work on the lanes of sockets, in steps, and what follows when it is done: the answer to a request, the end of
//! sockets, or another task.

use utipc_attach::Reply;
use utipc_lanes::daemon::Work;

use super::{Task, Tasks};
use crate::daemon::attachments::AttachmentId;
use crate::daemon::sockets::Sockets;

/// The continuation when work on lanes is done.
#[derive(Debug)]
pub(crate) enum Then {
    /// Nothing.
    Nothing,
    /// A process that has ended counts no longer.
    Forgotten,
    /// A request of this attachment is answered.
    Reply(AttachmentId, Reply),
    /// The request to leave a group is carried out.
    Leave(AttachmentId, u32),
    /// The request to shut down a connection is carried out.
    ShutDown(AttachmentId, u32),
    /// The counted number is added to this one, which the attachment has asked for.
    Counted(AttachmentId, u32),
    /// The last holder has closed the socket; maybe an attachment waits for the end.
    Close(u32, Option<AttachmentId>),
    /// These sockets have lost their last holder.
    CloseAll(Vec<u32>, Option<Box<Task>>),
    /// Another task continues.
    Task(Box<Task>),
}

impl Tasks {
    /// One step of work on lanes; returns what is left.
    pub(super) fn step_lanes(
        &mut self,
        sockets: &mut Sockets,
        mut work: Vec<Work>,
        then: Then,
    ) -> Option<Task> {
        let counted = match work.last_mut() {
            None => 0,
            Some(last) => {
                if sockets.with_lanes(|lanes, context| lanes.step(context, last)) {
                    return Some(Task::Lanes { work, then });
                }
                last.counted()
            }
        };
        work.pop();
        if !work.is_empty() {
            return Some(Task::Lanes { work, then });
        }
        match then {
            Then::Nothing => {}
            Then::Forgotten => self.leaving = self.leaving.saturating_sub(1),
            Then::Reply(id, reply) => sockets.reply(id, Ok(reply)),
            Then::Leave(id, port) => {
                let reply = sockets.leave_group(port).unwrap_or_else(Reply::Failed);
                return self.step(sockets, Task::Announced { port, id, reply });
            }
            Then::ShutDown(id, port) => {
                let reply = sockets.shut_down(port);
                sockets.reply(id, reply);
            }
            Then::Counted(id, value) => {
                sockets.reply(id, Ok(Reply::Number(value.saturating_add(counted))));
            }
            Then::Close(port, reply_to) => {
                sockets.close(port);
                if let Some(id) = reply_to {
                    sockets.reply(id, Ok(Reply::Done));
                }
            }
            Then::CloseAll(ports, next) => {
                sockets.close_all(&ports);
                return next.map(|next| *next);
            }
            Then::Task(next) => return Some(*next),
        }
        None
    }
}
