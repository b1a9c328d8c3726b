//! Calls of processes on their sockets.

use std::os::fd::OwnedFd;

use utipc_attach::{Failure, MAX_GROUP_MEMBERS, Reply, SocketCall, SocketView};
use utipc_core::addr::{PortId, Scope, ServiceRange};
use utipc_core::group::LeaveError;
use utipc_core::socket::{Endpoint, OptionError};
use utipc_lanes::daemon::{EndCause, Work};
use utipc_os::fdpass::own_user;

use super::Call;
use crate::daemon::holders::Holder;
use crate::daemon::sockets::{Done, Sent};
use crate::daemon::tasks::{STEP_ITEMS, Task, Then};

fn done(_: ()) -> Reply {
    Reply::Done
}

impl Call<'_> {
    /// A call on a socket that the attachment holds; `passed` is the descriptor that came with the request.
    pub(crate) fn socket(
        &mut self,
        port: u32,
        call: SocketCall,
        payload: &[u8],
        passed: &mut Option<OwnedFd>,
    ) -> Done {
        let (now, id) = (self.sockets.now(), self.id);
        if !self.sockets.holders().is_held_by(port, id) {
            return Err(Failure::NoSocket(port));
        }
        let sockets = &mut *self.sockets;
        match call {
            SocketCall::Close => {
                if self.tasks.release(sockets, port, Holder::Process(id)) {
                    return Ok(Reply::Done);
                }
                self.unbind_all(port, true)
            }
            SocketCall::Bind { range, scope } => {
                self.check_binding(port, range)?;
                self.sockets.bind(port, range, scope)?;
                self.when_announced(port)
            }
            SocketCall::Unbind { which } => self.unbind(port, which),
            SocketCall::Listen => sockets.stack_mut().listen(now, port).map_err(Failure::Call).map(done),
            SocketCall::Connect { to } => {
                sockets.stack_mut().connect(now, port, to).map_err(Failure::Connect).map(done)
            }
            SocketCall::Accept => sockets.accept(id, port),
            SocketCall::Shutdown => {
                let endpoint = sockets.stack().endpoint(port);
                if !endpoint.is_some_and(|e| e.kind().is_connection_oriented()) {
                    return sockets.shut_down(port);
                }
                self.work(Work::end(port, EndCause::Shutdown), Then::ShutDown(id, port))
            }
            SocketCall::SetOption { option, value } => {
                let set = sockets.stack_mut().set_option(now, port, option, value);
                set.map_err(Failure::Option).map(done)
            }
            SocketCall::GetOption { option } => {
                let endpoint = sockets.endpoint(port, Failure::Option(OptionError::NoSuchOption))?;
                let value = endpoint.option(option).map_err(Failure::Option)?;
                if !sockets.lanes().has_unopened(port) {
                    return Ok(Reply::Number(value));
                }
                // An option that counts what waits includes what is in unopened lanes.
                self.work(Work::count(port, option), Then::Counted(id, value))
            }
            SocketCall::Send { to } => {
                let sent = sockets.send((id, port), to, payload);
                self.sent(sent)
            }
            SocketCall::SendFound { to, found } => sockets.send_found(port, (to, found), payload),
            SocketCall::SendKeyed { to, key } => {
                let sent = sockets.send_keyed((id, port), (to, key), payload);
                self.sent(sent)
            }
            SocketCall::Receive { room, options } => {
                sockets.receive(port, (room, options), &mut self.payload)
            }
            SocketCall::ReceivePolled { room, options } => {
                let received = sockets.receive(port, (room, options), &mut self.payload);
                sockets.rearm(port);
                received
            }
            SocketCall::Look => Ok(Reply::Socket(Box::new(view(sockets.endpoint(port, Failure::State)?)))),
            SocketCall::TakeError => Ok(Reply::Error(sockets.stack_mut().take_error(port))),
            SocketCall::Descriptor => {
                self.fds.push(sockets.open_descriptor(id, port, false)?);
                Ok(Reply::Done)
            }
            SocketCall::Keep => {
                self.fds.push(sockets.open_descriptor(id, port, true)?);
                Ok(Reply::Done)
            }
            SocketCall::Rearm => {
                sockets.rearm(port);
                Ok(Reply::Done)
            }
            SocketCall::Drained { more } => sockets.acknowledge_poll(port, more),
            SocketCall::FarEnd => {
                self.fds.push(sockets.far_end(port)?);
                Ok(Reply::Done)
            }
            SocketCall::Adopt { near } => sockets.adopt(id, port, near, passed),
            SocketCall::MakeHosted { partly } => {
                let work = Work::end(port, EndCause::Hosted(partly));
                self.work(work, Then::Reply(id, Reply::Done))
            }
            SocketCall::Lend => {
                if !sockets.holders().is_sole(port) || sockets.in_group(port) {
                    return Err(Failure::State);
                }
                self.work(Work::lend(port, id), Then::Reply(id, Reply::Done))
            }
            SocketCall::WantLane { to } => {
                sockets.with_lanes(|lanes, context| lanes.want(context, id, port, to))
            }
            SocketCall::AwaitRoom { millis } => {
                sockets.with_lanes(|lanes, _| lanes.await_room(now, port, millis));
                Ok(Reply::Done)
            }
            // The socket is hosted: lanes of a group are requested afterwards.
            SocketCall::Join { .. } if sockets.lanes().is_direct(port) => Err(Failure::State),
            SocketCall::Join { request, policy } => {
                self.check_binding(port, request.member.into())?;
                self.sockets.join_group(port, request, policy)?;
                self.when_announced(port)
            }
            SocketCall::Leave => {
                if !sockets.in_group(port) {
                    return sockets.leave_group(port);
                }
                // Hosts the socket first if the process has not done so.
                self.work(Work::end(port, EndCause::Hosted(None)), Then::Leave(id, port))
            }
            SocketCall::GroupMembers { after } => {
                group_members(sockets.endpoint(port, Failure::State)?, after)
            }
            SocketCall::GroupLanes => sockets.open_group_lanes(id, port),
        }
    }

    /// The reply to a send.
    fn sent(&mut self, sent: Sent) -> Done {
        match sent? {
            Some(reply) => Ok(reply),
            None => self.later(),
        }
    }

    /// Replies to a request that has changed a binding of a socket when all sockets of this node know it: a process
    /// cannot make changes faster than they are announced.
    fn when_announced(&mut self, port: u32) -> Done {
        if self.sockets.stack().is_spreading(port) {
            return self.begin(Task::Announced { port, id: self.id, reply: Reply::Done });
        }
        Ok(Reply::Done)
    }

    /// Checks that the policy and the limits allow a binding.
    fn check_binding(&mut self, port: u32, range: ServiceRange) -> Result<(), Failure> {
        let peer = self.sockets.attachments().peer(self.id).ok_or(Failure::State)?;
        if self.policy.may_bind(&peer, own_user(), range) {
            return self.sockets.check_binding(self.id, port);
        }
        self.requests.bindings_refused += 1;
        let refused = self.requests.bindings_refused;
        // A user who keeps trying must not fill the log.
        if refused.is_power_of_two() {
            let service = range.service;
            tracing::warn!(uid = peer.uid, service, refused, "binding refused by the policy");
        }
        Err(Failure::NotAllowed { uid: peer.uid, what: format!("bind service type {}", range.service) })
    }

    fn unbind(&mut self, port: u32, which: Option<(ServiceRange, Scope)>) -> Done {
        if which.is_none() && self.sockets.holders().bindings(port) > STEP_ITEMS {
            return self.unbind_all(port, false);
        }
        let in_group = self.sockets.in_group(port);
        self.sockets.unbind(port, which)?;
        if in_group {
            // By this it may have left the group.
            self.sockets.with_lanes(|lanes, context| lanes.stop_group_lanes(context, port));
        }
        Ok(Reply::Done)
    }

    /// Withdraws all bindings of a socket, and closes it then or not. The reply follows.
    fn unbind_all(&mut self, port: u32, closes: bool) -> Done {
        self.tasks.unbind(self.sockets, port, closes, Some(self.id));
        self.later()
    }
}

/// A socket of the node, as every process may see it.
fn view(endpoint: &Endpoint) -> SocketView {
    SocketView {
        kind: endpoint.kind(),
        state: endpoint.state(),
        peer: endpoint.peer(),
        service: endpoint.connected_service(),
        wait: endpoint.wait_reason(),
        error: endpoint.error(),
        stats: endpoint.stats(),
    }
}

/// Members of a socket's group behind `after`.
fn group_members(endpoint: &Endpoint, after: Option<PortId>) -> Done {
    let Some(group) = endpoint.group() else { return Err(Failure::Leave(LeaveError::NotJoined)) };
    let members = group.members_from(after.unwrap_or_default());
    let members = members.filter(|member| Some(member.port) != after);
    Ok(Reply::GroupMembers(members.take(MAX_GROUP_MEMBERS).collect()))
}
