//! Who is bound to what, looked up in the daemon's own table, which this process maps (DESIGN L8).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, OnceLock};

use utipc_attach::{Reply, Request};
use utipc_core::addr::{NodeAddr, PortId, ServiceAddr, ServiceRange};
use utipc_core::names::replica::{Access, Areas, View, ViewError};
use utipc_core::names::{Lookup, ScopeRule};
use utipc_os::replica::Replica;
use utipc_os::shm::ReadWord;

use crate::Error;
use crate::attachment::{Attachment, lock};

/// Moves of the table to a larger segment that one lookup follows: each makes it much larger.
const MOVES_MAX: u32 = 8;

/// How the words of the table are read.
#[derive(Debug)]
enum Mapped {}

impl Access for Mapped {
    type Cell = ReadWord;
    type Cursor = AtomicU64;

    #[inline]
    fn load(cell: &ReadWord) -> u64 {
        cell.load()
    }

    #[inline]
    fn cursor(cursor: &AtomicU64) -> u64 {
        cursor.load(Relaxed)
    }

    #[inline]
    fn exchange(cursor: &AtomicU64, seen: u64, new: u64) -> bool {
        cursor.compare_exchange(seen, new, Relaxed, Relaxed).is_ok()
    }
}

/// One segment of the table, and the one that has taken its place. It stays mapped: each is much larger than the one
/// before it, so all the old ones together are smaller than the new one.
#[derive(Debug)]
struct Table {
    replica: Replica,
    next: OnceLock<Box<Table>>,
}

impl Table {
    #[inline]
    fn view(&self) -> View<'_, Mapped> {
        let [leaves, branches, records] = [0, 1, 2].map(|number| self.replica.area(number));
        View::new(Areas { leaves, branches, records, cursors: self.replica.open_area() })
    }
}

/// The table as the process knows it. Who looks something up takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Names {
    first: OnceLock<Box<Table>>,
    /// The daemon does not share it, or this process cannot map it: every lookup is a command.
    refused: AtomicBool,
    /// Held by who fetches it.
    fetching: Mutex<()>,
}

impl Names {
    /// The segment that is current, as far as this process knows.
    #[inline]
    fn current(&self) -> Option<&Table> {
        let mut table = self.first.get()?;
        while let Some(next) = table.next.get() {
            table = next;
        }
        Some(table)
    }

    /// Where the segment that is current is, or will be.
    #[inline]
    fn place(&self) -> &OnceLock<Box<Table>> {
        let mut place = &self.first;
        while let Some(table) = place.get()
            && table.next.get().is_some()
        {
            place = &table.next;
        }
        place
    }
}

/// Who alone is bound to a service, as long as the table stays as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    to: ServiceAddr,
    domain: NodeAddr,
    /// The table's version before it was looked up, and whose table it was then.
    version: u64,
    own: NodeAddr,
    found: Lookup,
}

/// The receivers of a multicast.
#[derive(Debug)]
pub(crate) struct Group {
    range: ServiceRange,
    /// The table's version when they were looked up.
    version: u64,
    /// Local sockets, each once.
    pub(crate) ports: Vec<u32>,
    /// There are receivers on other nodes.
    pub(crate) remote: bool,
}

impl Attachment {
    /// The socket for an anycast, whose turn it was; `None` if the daemon has to be asked.
    ///
    /// # Errors
    /// The daemon is gone or broken.
    #[inline]
    pub(crate) fn find(&self, to: ServiceAddr, domain: NodeAddr) -> Result<Option<Option<Lookup>>, Error> {
        self.look(|view| view.lookup(to, domain))
    }

    /// The same for who sends to one service again and again, `known` having been found before.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(crate) fn find_again(
        &self,
        known: &mut Option<Alone>,
        to: ServiceAddr,
        domain: NodeAddr,
    ) -> Result<Option<Option<Lookup>>, Error> {
        self.look(|view| {
            let (version, own) = (view.version()?, view.own_node());
            if let Some(alone) = known
                && (alone.to, alone.domain, alone.version, alone.own) == (to, domain, version, own)
            {
                return Ok(Some(alone.found));
            }
            let found = view.lookup_cacheable(to, domain)?;
            *known =
                found.filter(|(_, alone)| *alone).map(|(found, _)| Alone { to, domain, version, own, found });
            Ok(found.map(|(found, _)| found))
        })
    }

    /// The receivers of a multicast to `range`, `known` having been those of an earlier one; `None` if the daemon has to be
    /// asked.
    ///
    /// # Errors
    /// The daemon is gone or broken.
    pub(crate) fn group(
        &self,
        range: ServiceRange,
        mut known: Option<Group>,
    ) -> Result<Option<Group>, Error> {
        self.look(|view| {
            let version = view.version()?;
            if let Some(group) = known.take_if(|known| known.range == range && known.version == version) {
                return Ok(group);
            }
            let mut ports = known.take().map_or_else(Vec::new, |known| known.ports);
            view.local_ports(range, ScopeRule::Any, &mut ports)?;
            Ok(Group { range, version, ports, remote: view.has_remote(range)? })
        })
    }

    /// Whether messages of a [level](utipc_core::stack::Stack::level) to a node have to wait because its queue is full.
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
        // A segment that was left says what it said last.
        self.look(|view| view.version().map(drop))?;
        Ok(self.names.current().is_some_and(|table| table.replica.is_congested(node.0, level)))
    }

    #[inline]
    fn look<T>(
        &self,
        mut question: impl FnMut(View<'_, Mapped>) -> Result<T, ViewError>,
    ) -> Result<Option<T>, Error> {
        // The table of a daemon that was killed still says what it said last.
        if self.is_over() {
            return Err(self.died());
        }
        for _ in 0..MOVES_MAX {
            let place = self.names.place();
            let Some(table) = place.get() else {
                if self.fetch_table(place)? {
                    continue;
                }
                return Ok(None);
            };
            match question(table.view()) {
                Ok(answer) => return Ok(Some(answer)),
                Err(ViewError::Superseded) if self.fetch_table(&table.next)? => {}
                Err(ViewError::Superseded | ViewError::Contended) => return Ok(None),
                Err(ViewError::Gone) => return Err(self.lost()),
                // No daemon writes that: whatever else it says is worth as little.
                Err(_) => return Err(self.broken()),
            }
        }
        Ok(None)
    }

    /// Maps the table's segment for `place`, the next one; false if there is none to be had.
    #[cold]
    fn fetch_table(&self, place: &OnceLock<Box<Table>>) -> Result<bool, Error> {
        let _fetching = lock(&self.names.fetching);
        if place.get().is_some() {
            return Ok(true);
        }
        if self.names.refused.load(Relaxed) {
            return Ok(false);
        }
        let fetched = self.call(&Request::FetchTable, &[], |reply, extra| {
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

    /// Where the next anycast to `to` would go.
    pub(crate) fn lookup(&self, to: ServiceAddr, domain: NodeAddr) -> Result<Option<PortId>, Error> {
        match self.find(to, domain)? {
            Some(found) => Ok(found.map(|found| PortId { port: found.port, node: found.node })),
            None => self.ask_where(to, domain),
        }
    }

    #[cold]
    fn ask_where(&self, to: ServiceAddr, domain: NodeAddr) -> Result<Option<PortId>, Error> {
        self.call(&Request::Lookup { to, domain }, &[], |reply, _| match reply {
            Reply::Found(port) => Some(port),
            _ => None,
        })
    }
}
