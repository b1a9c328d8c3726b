//! A socket as a handle that may lead to another one: to that of a forked child, or to that at the next daemon; and its
//! end.

use std::sync::Arc;

use utipc_attach::{Failure, SocketCall};

use crate::attachment::Attachment;
use crate::base::Base;
use crate::error::Error;
use crate::life::resume::{Resumable, Resumption};
use crate::life::{Handle, Life};
use crate::ready::Readiness;
use crate::socket::Socket;
use crate::state::events::Event;

impl Handle for Socket {
    fn life(&self) -> &Life<Self> {
        &self.life
    }

    fn readiness(&self) -> &Readiness {
        &self.ready
    }

    fn inherited(&self, own: Arc<Attachment>) -> Self {
        let base = Base::new(own, self.base().state.inherited());
        let ends = Arc::new(self.ready.ends().inherited());
        let inherited = Self::with(base, ends, None);
        inherited.ready.watch_inherited();
        inherited
    }
}

impl Resumable for Socket {
    fn open_next(old: &Resumption<Self>) -> Result<Self, Error> {
        let attachment = old.attacher.living()?;
        if old.ends.near().is_some() && !old.ends.are_kept() {
            return Err(Failure::State.into());
        }
        let record = old.record();
        let base = Base::open(&attachment, old.state.kind, old.mode)?;
        let next = Self::resuming(base, Arc::clone(&old.ends), &old.attacher, old.mode);
        let mut notice = Error::Resumed(attachment.connection.path().to_owned());
        let mut note = |done: Result<(), Error>| match done {
            Err(error @ Error::Failed(_)) => {
                notice = error;
                Ok(())
            }
            done => done,
        };
        for (option, value) in &record.options {
            note(next.set_option(*option, *value))?;
        }
        if record.default_to.is_some() {
            note(next.connect(record.default_to))?;
        }
        for (range, scope) in &record.bindings {
            note(next.bind(*range, *scope))?;
        }
        if let Some((request, policy)) = record.group {
            note(next.join(request, policy))?;
        }
        if record.listens {
            note(next.listen())?;
        }
        next.base().state.interruptible.set(old.state.interruptible.get());
        next.ready.adopt()?;
        if let Some(resumption) = next.life.resumption()
            && !(record.listens && matches!(notice, Error::Resumed(_)))
        {
            resumption.leave_notice(notice);
        }
        Ok(next)
    }

    fn has_notice(&self) -> bool {
        self.life.resumption().is_some_and(Resumption::has_notice)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.life.next().is_some() {
            // The daemon of this handle is gone; the next one is dropped with the resumption.
            return;
        }
        let Base { attachment, state } = self.base();
        if !attachment.is_own() {
            // Claims the child's socket, which is closed when the child's handle is dropped. The parent's stays open.
            let _ = Life::in_child(self, false);
            return;
        }
        state.lock().close_lanes();
        // From now on the attachment answers the ends of lanes, including those that this socket has queued.
        attachment.notices.unregister(self.port());
        for event in state.outbox.events.take() {
            if let Event::LaneOver(lane) = event {
                attachment.notices.answer_lane_end(lane);
            }
        }
        // If the daemon is gone, the socket is closed already.
        let _ = self.base().request(SocketCall::Close);
        if attachment.notices.has_tasks() {
            let _ = attachment.fetch_notices();
        }
    }
}
