//! The quiet period of a round: all faults are repaired, and then all nodes must agree.

use std::collections::BTreeSet;

use utipc_core::{Binding, Scope};

use crate::check::{Broken, Violation};
use crate::cluster::Cluster;
use crate::host::Role;

/// Shortest quiet period, milliseconds: setups of connections must have ended.
const QUIET_MS: u64 = 10_000;
/// Time during which frames are counted at the end of a quiet period, milliseconds.
const IDLE_CHECK_MS: u64 = 1000;
/// Maximum number of frames in that time from one node to another on one network. Idle links send 5 or 6; two nodes
/// that answer each other endlessly send hundreds.
const MAX_IDLE_FRAMES: u64 = 60;
/// Longest quiet period, milliseconds. A neighbour that missed all fast discovery requests is found by the next
/// slow one, within 60 s.
const LONGEST_QUIET_MS: u64 = 90_000;
/// Maximum number of bytes that one socket may hold: its receive buffer of 2 MiB, and a last message that exceeds it.
const MAX_SOCKET_BYTES: u32 = 4 * 2_097_152;

impl Cluster {
    /// Runs the cluster without faults until it is idle, and checks that everything is consistent.
    pub(crate) fn quiet_time(&mut self) -> Result<(), Violation> {
        let begin = self.now;
        let mut pause = QUIET_MS;
        loop {
            self.step_until(self.now.plus_millis(pause - IDLE_CHECK_MS))?;
            self.network.start_counting();
            self.step_until(self.now.plus_millis(IDLE_CHECK_MS))?;
            self.read_everything()?;
            match self.check_agreement() {
                Ok(()) => break self.check_idle_traffic()?,
                Err(violation) if self.now >= begin.plus_millis(LONGEST_QUIET_MS) => return Err(violation),
                Err(_) => pause = 2000,
            }
        }
        let outcome = self.datagrams.check_outstanding(&self.contacts);
        outcome.map_err(|broken| self.broken(0, broken))?;
        self.connections.mark_finished();
        Ok(())
    }

    fn check_agreement(&self) -> Result<(), Violation> {
        if let Some((a, b)) = self.contacts.missing() {
            return Err(self.broken(a, Broken::NoContact(format!("node {a} with node {b}"))));
        }
        self.connections.check_finished(self.now, &self.contacts).map_err(|b| self.broken(0, b))?;
        self.check_tables()?;
        self.check_subscribers()?;
        self.sockets_can_send()?;
        self.check_memory()
    }

    fn check_tables(&self) -> Result<(), Violation> {
        let cluster_wide = |node: usize| -> BTreeSet<Binding> {
            let all = self.hosts[node].running.as_ref().map(|r| r.stack.bindings()).unwrap_or_default();
            all.into_iter().filter(|b| b.scope == Scope::Cluster).collect()
        };
        let truth: BTreeSet<Binding> = (0..self.config.nodes)
            .flat_map(|n| cluster_wide(n).into_iter().filter(move |b| b.port.node == self.hosts[n].addr))
            .collect();
        for node in 0..self.config.nodes {
            let table = cluster_wide(node);
            if let Some(binding) = table.symmetric_difference(&truth).next() {
                let (has, of) = (table.contains(binding), binding.port);
                let what = if has { "has a withdrawn binding => " } else { "lacks" };
                let what = format!("node {node} {what}: {} of {of} key {}", binding.range, binding.key);
                return Err(self.broken(node, Broken::Tables(what)));
            }
            self.check_own_bindings(node)?;
        }
        Ok(())
    }

    /// Checks that the bindings that a node lists as its own are those that its applications made.
    fn check_own_bindings(&self, node: usize) -> Result<(), Violation> {
        let Some(running) = &self.hosts[node].running else { return Ok(()) };
        let own = self.hosts[node].addr;
        let table = running.stack.bindings();
        let mut has: Vec<_> = table
            .iter()
            .filter(|b| b.port.node == own && (1000..2000).contains(&b.range.service))
            .map(|b| (b.port.port, b.range, b.scope))
            .collect();
        let mut wanted: Vec<_> = running
            .bound
            .iter()
            .map(|(id, range, scope)| (self.datagrams.get(*id).port.port, *range, *scope))
            .collect();
        has.sort();
        wanted.sort();
        if has == wanted {
            return Ok(());
        }
        let what = format!("node {node} holds {} own bindings, its sockets made {}", has.len(), wanted.len());
        Err(self.broken(node, Broken::Tables(what)))
    }

    fn check_subscribers(&self) -> Result<(), Violation> {
        for host in &self.hosts {
            let Some(running) = &host.running else { continue };
            for role in running.roles.values() {
                let Role::Subscriber { server, asked, reported, .. } = role else { continue };
                let Some(table) = self.hosts[*server].running.as_ref().map(|r| r.stack.bindings()) else {
                    continue;
                };
                if *asked == crate::subscribers::WATCHED.len() {
                    reported.check(&table).map_err(|b| self.broken(host.index, b))?;
                }
            }
        }
        Ok(())
    }

    /// Checks that every socket can send, because everything was read and acknowledged.
    fn sockets_can_send(&self) -> Result<(), Violation> {
        for host in &self.hosts {
            let Some(running) = &host.running else { continue };
            for (port, endpoint) in running.stack.sockets() {
                let sends = !matches!(running.roles.get(&port), None | Some(Role::Listener));
                if sends && !endpoint.readiness().writable {
                    let reason = endpoint.wait_reason();
                    let what = format!(
                        "socket {port} of node {} cannot send after the quiet period: {reason:?}",
                        host.index
                    );
                    return Err(self.broken(host.index, Broken::Stalled(what)));
                }
            }
        }
        Ok(())
    }

    /// Checks that only supervision frames are sent, because no data is left.
    fn check_idle_traffic(&self) -> Result<(), Violation> {
        let (frames, (plane, from, to)) = self.network.busiest();
        if frames <= MAX_IDLE_FRAMES {
            return Ok(());
        }
        let what = format!(
            "{frames} frames in {IDLE_CHECK_MS} ms of quiet from node {from} to node {to} on network {plane}"
        );
        Err(self.broken(from, Broken::Livelock(what)))
    }

    fn check_memory(&self) -> Result<(), Violation> {
        for host in &self.hosts {
            let Some(running) = &host.running else { continue };
            for (port, endpoint) in running.stack.sockets() {
                let used = endpoint.option(utipc_core::socket::SocketOption::ReceiveQueueUsed).unwrap_or(0);
                let unread = used > 0 && running.roles.contains_key(&port);
                if used > MAX_SOCKET_BYTES || unread {
                    let what = format!(
                        "socket {port} of node {} holds {used} bytes after the quiet period",
                        host.index
                    );
                    return Err(self.broken(host.index, Broken::Memory(what)));
                }
            }
            let sockets = running.stack.sockets().count();
            if sockets != running.roles.len() {
                let what =
                    format!("node {} has {sockets} sockets, {} are in use", host.index, running.roles.len());
                return Err(self.broken(host.index, Broken::Memory(what)));
            }
        }
        Ok(())
    }
}
