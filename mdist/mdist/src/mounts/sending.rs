//! Messages to one mount through its transport.

use rssl::rwf::{Domain, State, Status, StatusFlags};
use rssl::transport::Channel;

use super::delivery::Subject;
use super::patch;
use super::reason::Reason;
use super::slots::Ticket;
use super::worker::Worker;

impl Worker {
    /// Lets the mount's channel append to its output, and carries out the decision if that has no space.
    pub(super) fn append_output<T>(
        &mut self,
        id: Ticket,
        subject: Subject,
        write: impl FnOnce(&mut Channel, &mut Vec<u8>) -> T,
    ) -> Option<T> {
        let mount = self.mounts.get_mut(id).filter(|mount| mount.disconnecting.is_none() && !mount.ending)?;
        let channel = &mut mount.channel;
        match self.outputs.queue(id, subject, &self.shared.pool, |out| write(channel, out))? {
            Ok(result) => Some(result),
            Err(verdict) => {
                self.overflowed(id, verdict);
                None
            }
        }
    }

    /// Sends one message to a mount.
    pub(super) fn send(&mut self, id: Ticket, message: &[u8]) {
        let subject = Subject::Stream(patch::stream(message));
        if let Some(Err(error)) = self.append_output(id, subject, |channel, out| channel.write(message, out))
        {
            self.disconnect(id, Reason::Protocol(error.to_string()));
        }
    }

    /// Sends a status that carries only a state.
    pub(super) fn status(
        &mut self,
        id: Ticket,
        domain: Domain,
        stream: i32,
        private: bool,
        state: State<'_>,
    ) {
        let flags = if private { StatusFlags::PRIVATE } else { StatusFlags::NONE };
        let status = Status { domain, stream, flags, state: Some(state), ..Status::default() };
        if let Ok(message) = status.to_vec() {
            self.send(id, &message);
        }
    }
}
