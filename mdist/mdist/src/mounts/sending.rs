//! Messages to one mount through its transport.

use rssl::rwf::{Domain, State, Status, StatusFlags};
use rssl::transport::Channel;
use rssl::wire::to_vec;

use super::mount::MountId;
use super::reason::Reason;
use super::slots::Ticket;
use super::worker::Worker;

impl Worker {
    /// Lets the mount's channel append to its output; disconnects the mount if it is a slow consumer.
    pub(super) fn append_output<T>(
        &mut self,
        id: Ticket,
        write: impl FnOnce(&mut Channel, &mut Vec<u8>) -> T,
    ) -> Option<T> {
        let mount = self.mounts.get_mut(id).filter(|mount| mount.disconnecting.is_none() && !mount.ending)?;
        let output = self.outputs.get_mut(id.index() as usize)?;
        match output.append(&mut self.arena, &self.shared.pool, |out| write(&mut mount.channel, out)) {
            Ok(result) => {
                if !output.dirty && output.waiting() > 0 {
                    output.dirty = true;
                    self.dirty.push(MountId(id));
                }
                Some(result)
            }
            Err(overflow) => {
                self.disconnect_slow_consumer(id, overflow);
                None
            }
        }
    }

    /// Sends one message to a mount.
    pub(super) fn send(&mut self, id: Ticket, message: &[u8]) {
        match self.append_output(id, |channel, out| channel.write(message, out)) {
            Some(Ok(())) => {
                if let Some(output) = self.outputs.get_mut(id.index() as usize) {
                    output.messages += 1;
                }
            }
            Some(Err(error)) => self.disconnect(id, Reason::Protocol(error.to_string())),
            None => {}
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
        if let Ok(message) = to_vec(|w| status.encode(w)) {
            self.send(id, &message);
        }
    }
}
