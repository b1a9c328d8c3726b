//! The embedded engine: calls run on the node's protocol stack in this process and drive its event loop.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use utipc_core::group::LeaveError;
use utipc_core::limits::MAX_USER_DATA;
use utipc_core::socket::{
    AcceptError, Endpoint, OptionError, OptionValue, RecvError, SendError, SocketOption, State,
};
use utipc_core::stack::Stack;
use utipc_core::{PropertyError, Time};
use utipc_node::{Node, Slot, Want};
use utipc_os::{Left, Wait};

use super::{NodeEngine, SocketEngine};
use crate::{
    Binding, Call, Counters, Destination, Error, GroupPolicy, GroupRequest, LinkInfo, LinkProperty,
    MemberInfo, NodeAddr, PeerInfo, PortId, Received, RecvOptions, Result, Scope, ServiceAddress,
    ServiceRange, SocketKind, SocketStats, WaitReason,
};

/// Longest time between two checks of a barrier: acknowledgements wake no thread.
const BARRIER_STEP: Duration = Duration::from_millis(1);

/// An open socket. It holds the node, which leaves the cluster after its last socket.
#[derive(Debug)]
pub(crate) struct Socket {
    node: Node,
    port: u32,
    slot: Arc<Slot>,
}

/// Fails in a forked child, which must not touch the node: its locks may be held by threads that do not exist there.
fn in_own_process(node: &Node) -> Result<&Node> {
    if node.is_own() { Ok(node) } else { Err(Error::Forked) }
}

/// The result of `query` on the stack; the default value in a forked child.
fn query<T: Default>(node: &Node, query: impl FnOnce(&mut Stack) -> T) -> T {
    in_own_process(node).map_or_else(|_| T::default(), |node| node.with(|stack, _| query(stack)))
}

impl NodeEngine for Node {
    fn wait_for_address(&self, limit: Duration) -> Result<()> {
        let observers = in_own_process(self)?.observers();
        let final_address = |stack: &mut Stack, _| stack.address_is_final().then_some(());
        let is_final = self.block(&observers, Want::Change, Wait::AtMost(limit), final_address);
        is_final.ok_or(Error::TimedOut { call: Call::ChooseAddress, reason: None, node: None })
    }

    fn wait_for_peers(&self, count: usize, limit: Duration) {
        let observers = self.observers();
        let informed = |stack: &mut Stack, _| (stack.informed_peers() >= count).then_some(());
        let _ = self.block(&observers, Want::Change, Wait::AtMost(limit), informed);
    }

    fn open(&self, kind: SocketKind) -> Result<super::Socket> {
        let port = in_own_process(self)?.with(|stack, now| stack.open(now, kind))?;
        Ok(super::Socket::Embedded(Socket::new(self, port)))
    }

    fn address(&self) -> NodeAddr {
        query(self, |stack| stack.own_node())
    }

    fn barrier(&self, limit: Duration) -> Result<Vec<NodeAddr>> {
        let node = in_own_process(self)?;
        let observers = node.observers();
        let mut barrier = node.with(|stack, now| stack.begin_barrier(now));
        let end = Wait::AtMost(limit).start();
        let mut awaited = Vec::new();
        loop {
            let step = match end.left() {
                Left::Nothing => Duration::ZERO,
                Left::Time(left) => BARRIER_STEP.min(left.unwrap_or(BARRIER_STEP)),
            };
            let wait = if step.is_zero() { Wait::Never } else { Wait::AtMost(step) };
            let reached = |stack: &mut Stack, now| {
                awaited = stack.awaited(now, &mut barrier);
                awaited.is_empty().then_some(())
            };
            let is_reached = node.block(&observers, Want::Change, wait, reached).is_some();
            if is_reached || step.is_zero() {
                return Ok(awaited);
            }
        }
    }

    fn poll(&self) -> Option<Duration> {
        in_own_process(self).ok()?.poll()
    }

    fn drive(&self, limit: Duration) -> bool {
        in_own_process(self).is_ok_and(|node| node.drive(Wait::AtMost(limit)))
    }

    fn descriptor(&self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(in_own_process(self)?.descriptor()?))
    }

    fn peers(&self) -> Vec<PeerInfo> {
        query(self, |stack| stack.nodes())
    }

    fn links(&self) -> Vec<LinkInfo> {
        query(self, |stack| stack.links())
    }

    fn bindings(&self) -> Vec<Binding> {
        query(self, |stack| stack.bindings())
    }

    fn lookup(&self, service: ServiceAddress) -> Option<PortId> {
        query(self, |stack| stack.lookup(service, NodeAddr::NONE))
    }

    fn set_link(&self, name: &str, property: LinkProperty) -> Result<()> {
        let result = in_own_process(self)?.with(|stack, now| stack.set_link(now, name, property));
        result.map_err(|e| match e {
            PropertyError::Range { what, range } => Error::OutOfRange { what, remedy: range },
            PropertyError::NoLink(name) => Error::NoSuchLink(name),
        })
    }

    fn counters(&self) -> Counters {
        in_own_process(self).map_or_else(|_| Counters::default(), Node::counters)
    }
}

impl Socket {
    fn new(node: &Node, port: u32) -> Self {
        Self { node: node.clone(), port, slot: node.slot(port) }
    }

    fn with_endpoint<T>(&self, read: impl FnOnce(&Endpoint) -> T) -> Option<T> {
        in_own_process(&self.node).ok()?.ask(|stack| stack.endpoint(self.port).map(read))
    }

    fn block<T>(
        &self,
        want: Want,
        wait: Wait,
        attempt: impl FnMut(&mut Stack, Time) -> Option<T>,
    ) -> Result<Option<T>> {
        Ok(in_own_process(&self.node)?.block(&self.slot, want, wait, attempt))
    }
}

impl SocketEngine for Socket {
    fn port(&self) -> u32 {
        self.port
    }

    fn peer(&self) -> Option<PortId> {
        self.with_endpoint(Endpoint::peer).flatten()
    }

    fn state(&self) -> State {
        self.with_endpoint(Endpoint::state).unwrap_or(State::Disconnecting)
    }

    fn bind(&self, range: ServiceRange, scope: Scope) -> Result<()> {
        in_own_process(&self.node)?
            .with(|stack, now| stack.bind(now, self.port, range, scope))
            .map_err(|why| Error::Bind { range, why })
    }

    fn unbind(&self, which: Option<(ServiceRange, Scope)>) -> Result<()> {
        in_own_process(&self.node)?
            .with(|stack, now| stack.unbind(now, self.port, which))
            .map_err(Error::Unbind)
    }

    fn join(&self, request: GroupRequest, policy: GroupPolicy) -> Result<()> {
        in_own_process(&self.node)?
            .with(|stack, now| stack.join_with(now, self.port, request, policy))
            .map_err(|why| Error::Join { group: request.member.service, why })
    }

    fn group_members(&self) -> Result<Vec<MemberInfo>> {
        let members = in_own_process(&self.node)?.ask(|stack| {
            let own = stack.own_node();
            let group = stack.endpoint(self.port)?.group()?;
            Some(group.members().map(|member| member.on(own)).collect())
        });
        members.ok_or(Error::Leave(LeaveError::NotJoined))
    }

    fn leave(&self) -> Result<()> {
        in_own_process(&self.node)?.with(|stack, now| stack.leave(now, self.port)).map_err(Error::Leave)
    }

    fn listen(&self) -> Result<()> {
        in_own_process(&self.node)?.with(|stack, now| stack.listen(now, self.port)).map_err(Error::Listen)
    }

    fn accept(&self, wait: Wait) -> Result<Option<(super::Socket, PortId)>> {
        let accepted = self.block(Want::Read, wait, |stack, now| match stack.accept(now, self.port) {
            Err(AcceptError::WouldBlock) => None,
            done => Some(done),
        });
        let accepted = accepted?.transpose().map_err(Error::Accept)?;
        let socket = |port| super::Socket::Embedded(Self::new(&self.node, port));
        Ok(accepted.map(|(port, peer)| (socket(port), peer)))
    }

    fn connect(&self, to: Option<Destination>) -> Result<()> {
        in_own_process(&self.node)?
            .with(|stack, now| stack.connect(now, self.port, to))
            .map_err(Error::Connect)
    }

    fn wait_connected(&self, wait: Wait) -> Result<Option<()>> {
        let connected = self.block(Want::Change, wait, |stack, _| stack.take_setup(self.port));
        connected?.transpose().map_err(Error::Connect)
    }

    fn shutdown(&self) -> Result<()> {
        in_own_process(&self.node)?.with(|stack, now| stack.shutdown(now, self.port)).map_err(Error::Shutdown)
    }

    fn set_option(&self, option: SocketOption, value: OptionValue) -> Result<()> {
        in_own_process(&self.node)?
            .with(|stack, now| stack.set_option(now, self.port, option, value))
            .map_err(Error::Option)
    }

    fn option(&self, option: SocketOption) -> Result<u32> {
        let value = in_own_process(&self.node)?
            .ask(|stack| stack.endpoint(self.port).map(|endpoint| endpoint.option(option)));
        value.ok_or(Error::Option(OptionError::Invalid))?.map_err(Error::Option)
    }

    fn send(&self, data: &[u8], to: Option<Destination>, wait: Wait) -> Result<Option<usize>> {
        self.send_keyed(data, to, 0, wait)
    }

    fn send_keyed(
        &self,
        data: &[u8],
        to: Option<Destination>,
        key: u64,
        wait: Wait,
    ) -> Result<Option<usize>> {
        let sent = self.block(Want::Write, wait, |stack, now| {
            match stack.send_keyed(now, self.port, data, to, key) {
                Err(SendError::WouldBlock) => None,
                done => Some(done),
            }
        });
        sent?.transpose().map_err(|why| Error::Send { to, why })
    }

    fn receive(&self, buffer: &mut [u8], options: RecvOptions, wait: Wait) -> Result<Option<Received>> {
        // On a stream, one call of the endpoint may yield less than the caller asked for.
        let mut collected: Option<Received> = None;
        let received = self.block(Want::Read, wait, |stack, now| {
            let goal = stack.endpoint(self.port).map_or(1, |e| e.receive_goal(buffer.len(), options));
            loop {
                let done = collected.as_ref().map_or(0, |part| part.len);
                match stack.recv(now, self.port, &mut buffer[done..], options) {
                    Err(RecvError::WouldBlock) => return None,
                    Err(why) => return Some(collected.take().ok_or(why)),
                    Ok(part) => {
                        let ended = part.len == 0 || options.peek;
                        match &mut collected {
                            Some(all) => all.len += part.len,
                            None => collected = Some(part),
                        }
                        if ended || collected.as_ref().is_some_and(|all| all.len >= goal) {
                            return collected.take().map(Ok);
                        }
                    }
                }
            }
        });
        // On a timeout, return what was collected so far.
        received?.or_else(|| collected.take().map(Ok)).transpose().map_err(Error::Receive)
    }

    fn receive_whole(&self, data: &mut Vec<u8>, wait: Wait) -> Result<Option<Received>> {
        let received = self.block(Want::Read, wait, |stack, now| {
            // As large as the pending data; at least one byte, because the endpoint refuses an empty buffer.
            let len = stack.endpoint(self.port).map_or(0, Endpoint::available).clamp(1, MAX_USER_DATA);
            data.resize(len, 0);
            match stack.recv(now, self.port, data, RecvOptions::default()) {
                Err(RecvError::WouldBlock) => None,
                done => Some(done),
            }
        });
        let received = received?.transpose().map_err(Error::Receive)?;
        data.truncate(received.as_ref().map_or(0, |received| received.len));
        Ok(received)
    }

    fn wait_reason(&self) -> Option<WaitReason> {
        self.with_endpoint(Endpoint::wait_reason).flatten()
    }

    fn stats(&self) -> SocketStats {
        self.with_endpoint(Endpoint::stats).unwrap_or_default()
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        Ok(in_own_process(&self.node)?.pollable(self.port, &self.slot)?.as_fd())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.node.is_own() {
            self.node.close(self.port);
        }
    }
}
