//! Lookups of service addresses: in the mapped binding table, otherwise by a request to the daemon.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use utipc_attach::{ProcessCall, Reply, Request};
use utipc_core::Load;
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr, ServiceRange};
use utipc_core::names::replica::{Choice, View, ViewError};
use utipc_core::names::{Lookup, ScopeRule};
use utipc_os::replica::Replica;

use crate::attachment::Attachment;
use crate::attachment::names::{Mapped, Receivers, SoleBinding, Table};
use crate::error::Error;

/// Maximum number of moves of the table to a larger segment that one lookup follows.
const MOVES_MAX: u32 = 8;

/// The result of a lookup in the mapped table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// This is bound.
    Bound(T),
    /// Nothing is bound.
    Nothing,
    /// Only the daemon can answer.
    AskDaemon,
}

impl<T> From<Option<T>> for Found<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::Nothing, Self::Bound)
    }
}

impl Attachment {
    /// Chooses the receiver of an anycast of a sender that repeatedly uses one service, by the loads of those that are
    /// next in turn. `known` is the result of an earlier lookup.
    ///
    /// # Errors
    /// The daemon is gone or broken.
    #[inline]
    pub(crate) fn choose(
        &self,
        known: &mut Option<SoleBinding>,
        to: ServiceAddr,
        domain: NodeAddr,
        mut load: impl FnMut(Lookup) -> Load,
    ) -> Result<Found<Choice>, Error> {
        self.query(|view| {
            let (version, own) = (view.version()?, view.own_node());
            if let Some(sole) = known
                && (sole.to, sole.domain, sole.version, sole.own) == (to, domain, version, own)
            {
                return Ok(Found::Bound(sole.choice));
            }
            let choice = view.choose(to, domain, &mut load)?;
            *known = choice.filter(|choice| choice.is_sole).map(|choice| SoleBinding {
                to,
                domain,
                version,
                own,
                choice,
            });
            Ok(choice.into())
        })
    }

    /// The receivers of a multicast to `range`, which may be none. `known` is the result of an earlier multicast.
    ///
    /// # Errors
    /// The daemon is gone or broken.
    pub(crate) fn receivers(
        &self,
        range: ServiceRange,
        mut known: Option<Receivers>,
    ) -> Result<Found<Receivers>, Error> {
        self.query(|view| {
            let version = view.version()?;
            if let Some(known) = known.take_if(|known| known.range == range && known.version == version) {
                return Ok(Found::Bound(known));
            }
            let mut ports = known.take().map_or_else(Vec::new, |known| known.ports);
            view.local_ports(range, ScopeRule::Any, &mut ports)?;
            Ok(Found::Bound(Receivers { range, version, ports, remote: view.has_remote(range)? }))
        })
    }

    /// Whether messages of a [level](utipc_core::stack::Stack::level) to a node have to wait, because its link is
    /// congested.
    ///
    /// # Errors
    /// The daemon is gone or broken.
    #[inline]
    pub(crate) fn is_congested(&self, node: NodeAddr, level: u8) -> Result<bool, Error> {
        match self.names.current() {
            Some(table) if !table.replica.is_congested(node.0, level) => Ok(false),
            _ => self.is_congested_now(node, level),
        }
    }

    #[cold]
    fn is_congested_now(&self, node: NodeAddr, level: u8) -> Result<bool, Error> {
        // An old segment keeps the last state that was written to it: move to the current one first.
        self.query(|view| view.version().map(Found::Bound))?;
        Ok(self.names.current().is_some_and(|table| table.replica.is_congested(node.0, level)))
    }

    /// Queries the mapped table.
    #[inline]
    fn query<T>(
        &self,
        mut ask: impl FnMut(View<'_, Mapped>) -> Result<Found<T>, ViewError>,
    ) -> Result<Found<T>, Error> {
        // After the daemon's death the mapped table keeps its last content.
        if self.connection.is_over() {
            return Err(self.connection.died());
        }
        for _ in 0..MOVES_MAX {
            let place = self.names.place();
            let Some(table) = place.get() else {
                if self.fetch_table(place)? {
                    continue;
                }
                return Ok(Found::AskDaemon);
            };
            match ask(table.view()) {
                Ok(answer) => return Ok(answer),
                Err(ViewError::Superseded) if self.fetch_table(&table.next)? => {}
                Err(ViewError::Superseded | ViewError::Contended) => return Ok(Found::AskDaemon),
                Err(ViewError::Gone) => return Err(self.connection.lost()),
                // The table is malformed: the daemon is faulty, so detach from it.
                Err(_) => return Err(self.connection.broken()),
            }
        }
        Ok(Found::AskDaemon)
    }

    /// Maps the daemon's current segment into `place`; false if there is none.
    #[cold]
    fn fetch_table(&self, place: &OnceLock<Box<Table>>) -> Result<bool, Error> {
        let _fetching = self.names.lock_fetching();
        if place.get().is_some() {
            return Ok(true);
        }
        if self.names.refused.load(Relaxed) {
            return Ok(false);
        }
        let fetched = self.call(&Request::Process(ProcessCall::FetchTable), &[], |reply, extra| {
            let fds = std::mem::take(extra.fds);
            (reply == Reply::Done).then_some(fds)
        });
        let replica = match fetched {
            Ok(fds) => match fds.as_slice() {
                [table, cursors] => Replica::map(table, cursors).ok(),
                _ => None,
            },
            Err(Error::Failed(_)) => None,
            Err(error) => return Err(error),
        };
        let Some(replica) = replica else {
            self.names.refused.store(true, Relaxed);
            return Ok(false);
        };
        Ok(place.set(Box::new(Table { replica, next: OnceLock::new() })).is_ok())
    }

    /// Looks up the socket to which the next anycast to `to` would go.
    pub(crate) fn lookup(&self, to: ServiceAddr, domain: NodeAddr) -> Result<Option<PortId>, Error> {
        match self.query(|view| view.lookup(to, domain).map(Found::from))? {
            Found::Bound(Lookup { port, node, .. }) => Ok(Some(PortId { port, node })),
            Found::Nothing => Ok(None),
            Found::AskDaemon => self.request_lookup(to, domain),
        }
    }

    #[cold]
    fn request_lookup(&self, to: ServiceAddr, domain: NodeAddr) -> Result<Option<PortId>, Error> {
        self.call(&Request::Process(ProcessCall::Lookup { to, domain }), &[], |reply, _| match reply {
            Reply::Found(port) => Some(port),
            _ => None,
        })
    }
}
