//! The end of an attachment, whatever the reason: nothing of a process outlives it.

use utipc_attach::PairId;
use utipc_core::Time;

use crate::daemon::attachments::attachment::{Attachment, AttachmentId, Holder};
use crate::daemon::counters::Cut;
use crate::daemon::dispatcher::Dispatcher;
use crate::daemon::lanes::end::Why;
use crate::daemon::lanes::node_lanes::End;

impl Dispatcher {
    /// Ends the attachments that have come to their end.
    pub(in crate::daemon) fn bury(&mut self, now: Time) {
        for (id, cut) in std::mem::take(&mut self.ended) {
            if let Some(attachment) = self.attachments.remove(&id) {
                self.counters.count_end(cut);
                self.end(now, id, attachment, cut);
                self.forget_writer(now, id);
            }
        }
    }

    /// Lanes are frozen and read out first; then names are withdrawn, unread messages go back and connections end; subscribers learn it last
    /// ([`utipc_core::stack::Stack::close_all`]). DESIGN L5.
    fn end(&mut self, now: Time, id: AttachmentId, attachment: Attachment, cut: Cut) {
        // A process that it forked may hold its end too: closing ours would not take it out of the event loop.
        let _ = self.reactor.remove(&attachment.channel);
        if let Some(process) = &attachment.process {
            let _ = self.reactor.remove(process);
        }
        if !attachment.is_served() {
            return;
        }
        tracing::debug!(
            id,
            pid = attachment.peer.pid,
            program = attachment.program,
            "a process is gone: {}",
            cut.name()
        );
        attachment.channel.shut();
        attachment.ring();
        let user = attachment.peer.uid;
        if let Some(count) = self.users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&user);
            }
        }
        let mut ports: Vec<u32> = attachment.ports.into_iter().collect();
        // Sockets that others hold too live on.
        ports.retain(|port| !self.release(now, *port, Holder::Process(id)));
        self.end_sockets(now, &ports);
        let pairs: Vec<PairId> = self.broker.pairs.of(id).collect();
        for pair in pairs {
            if let Some((pair, sides)) = self.broker.pairs.drop_if_empty(pair) {
                self.tell_pair_over(pair, sides);
            }
        }
    }

    /// Nobody holds these sockets any more.
    pub(in crate::daemon) fn end_sockets(&mut self, now: Time, ports: &[u32]) {
        for port in ports {
            self.end_lanes(now, *port, Why::Dead);
            self.drop_far(*port);
        }
        for port in ports {
            self.sockets.remove(port);
        }
        let (later, ports): (Vec<u32>, Vec<u32>) =
            ports.iter().partition(|port| self.node_lanes.has_unsent(**port));
        for port in later {
            // A socket without names has none to withdraw.
            let _ = self.driver.stack.unbind(now, port, None);
            self.end_socket(now, port, End::Close);
        }
        self.driver.stack.close_all(now, &ports);
    }
}
