//! The default bearer of an embedded node: the nodes of one user on one host find each other with
//! no configuration and no privilege.
//!
//! Each node takes a free address of 127.0.0.0/8, announces it by a file in the user's runtime directory, and
//! copies its broadcasts to the addresses that it finds there. A file is valid as long as a process holds its lock; a
//! directory watch reports new files at once.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use utipc_core::Rng;
use utipc_core::outbox::{BearerId, FrameBatch};
use utipc_core::wire::MediaAddr;
use utipc_os::inotify::{Change, DirWatch};
use utipc_os::mmsg::ReceiveRing;
use utipc_os::runtime_dir::{network_namespace, private_dir, user_dir};
use utipc_os::timer::Timer;
use utipc_os::udp::Express;
use utipc_os::{clock, random};

use super::tally::Counters;
use super::udp::{DEFAULT_PORT, UdpBearer, UdpConfig, UdpMode};
use super::{Bearer, BearerError};
use registry::Registry;

mod registry;

/// Addresses tried on the default port, and then on a free port, because a program may use the default port on all
/// addresses.
const ADDRESS_TRIES: u32 = 16;

/// Every how many calls the directory is checked, even if frames arrive.
const DIRECTORY_CHECK_AFTER: u32 = 16;

/// Delay of a second check after a file was closed: the kernel reports that just before the lock is free.
const SECOND_CHECK: Duration = Duration::from_millis(50);

/// Interval of checks if the system refuses a directory watch.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Configuration of a local bearer.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The name after `udp:`, 1 to 15 characters.
    pub name: String,
    /// The directory of the nodes; `None`: one for each user and network namespace.
    pub directory: Option<PathBuf>,
    /// The MTU to advertise in bytes; `None` fits it to the loopback interface.
    pub mtu: Option<usize>,
}

impl Default for LocalConfig {
    fn default() -> LocalConfig {
        LocalConfig { name: "local".into(), directory: None, mtu: None }
    }
}

/// UDP among the nodes of one user on one host.
pub struct LocalBearer {
    udp: UdpBearer,
    registry: Registry,
    watch: Option<DirWatch>,
    timer: Timer,
    next_check: Option<Duration>,
    calls: u32,
}

impl LocalBearer {
    /// Takes an address, announces it, and finds the nodes that exist already.
    ///
    /// # Errors
    /// There is no directory that only the user can write, or no free address.
    pub fn open(config: &LocalConfig) -> Result<LocalBearer, BearerError> {
        let directory = match &config.directory {
            Some(directory) => directory.clone(),
            None => default_directory()?,
        };
        private_dir(&directory)?;
        // The watch first: it reports the nodes that announce themselves after the first check.
        let watch = match DirWatch::new(&directory) {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!(%error, "no directory watch: checking for local nodes twice a second");
                None
            }
        };
        let udp = open_free_address(config)?;
        let registry = Registry::publish(&directory, udp.address())?;
        let mut bearer =
            LocalBearer { udp, registry, watch, timer: Timer::new()?, next_check: None, calls: 0 };
        if bearer.watch.is_none() {
            bearer.check_at(clock::monotonic() + CHECK_INTERVAL)?;
        }
        bearer.refresh();
        Ok(bearer)
    }

    /// The addresses of the other nodes, as known now.
    pub fn peers(&self) -> &[SocketAddr] {
        self.udp.remotes()
    }

    /// The directory of the nodes.
    pub fn directory(&self) -> &Path {
        self.registry.directory()
    }

    /// Sets the remotes to the nodes whose locks are held now.
    fn refresh(&mut self) {
        let alive = match self.registry.others() {
            Ok(alive) => alive,
            Err(error) => {
                tracing::warn!(%error, "the directory of local nodes cannot be read");
                return;
            }
        };
        for gone in self.udp.remotes().to_vec() {
            if !alive.contains(&gone) {
                self.udp.remove_remote(gone);
            }
        }
        for peer in alive {
            if let Err(error) = self.udp.add_remote(peer) {
                tracing::warn!(%error, "a local node cannot be added as remote");
            }
        }
    }

    /// Applies the changes of the directory.
    fn check(&mut self) -> Result<(), BearerError> {
        let (mut changed, mut gone) = (false, false);
        if let Some(watch) = &self.watch {
            watch.take(&mut |change| match change {
                Change::Appeared(name) => changed |= registry::address(&name).is_some(),
                Change::Gone(name) => gone |= registry::address(&name).is_some(),
                Change::Unknown => changed = true,
            })?;
        }
        let now = clock::monotonic();
        if self.next_check.is_some_and(|at| at <= now) {
            changed = true;
            self.next_check = None;
            self.timer.set(None)?;
        }
        if gone {
            self.check_at(now + SECOND_CHECK)?;
        } else if self.watch.is_none() && self.next_check.is_none() {
            self.check_at(now + CHECK_INTERVAL)?;
        }
        if changed || gone {
            self.refresh();
        }
        Ok(())
    }

    fn check_at(&mut self, at: Duration) -> Result<(), BearerError> {
        self.next_check = Some(at);
        Ok(self.timer.set(self.next_check)?)
    }
}

impl Bearer for LocalBearer {
    fn name(&self) -> &str {
        self.udp.name()
    }

    fn description(&self) -> String {
        format!("{}, nodes in {}", self.udp.description(), self.registry.directory().display())
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.udp.fds();
        fds.extend(self.watch.iter().map(AsFd::as_fd));
        fds.push(self.timer.as_fd());
        fds
    }

    fn local_address(&self) -> MediaAddr {
        self.udp.local_address()
    }

    fn mtu(&self) -> usize {
        self.udp.mtu()
    }

    fn max_receive(&self) -> usize {
        self.udp.max_receive()
    }

    fn has_broadcast(&self) -> bool {
        false
    }

    fn broadcast_targets(&self) -> Vec<MediaAddr> {
        self.udp.broadcast_targets()
    }

    fn send(&mut self, id: BearerId, batch: &FrameBatch) {
        self.udp.send(id, batch);
    }

    fn receive(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        let before = self.udp.counters().rx_frames;
        let more = self.udp.receive(sink)?;
        self.calls = self.calls.wrapping_add(1);
        if self.udp.counters().rx_frames == before || self.calls.is_multiple_of(DIRECTORY_CHECK_AFTER) {
            self.check()?;
        }
        Ok(more)
    }

    fn receive_spinning(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(DIRECTORY_CHECK_AFTER) {
            self.check()?;
        }
        self.udp.receive_spinning(sink)
    }

    fn receive_others(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.check()?;
        self.udp.receive_others(sink)
    }

    fn express(&self) -> Option<(usize, Arc<Express>)> {
        self.udp.express()
    }

    fn receive_express(
        &mut self,
        read: io::Result<&ReceiveRing>,
        sink: &mut dyn FnMut(MediaAddr, &[u8]),
    ) -> Result<(), BearerError> {
        self.udp.receive_express(read, sink)
    }

    fn counters(&self) -> Counters {
        self.udp.counters()
    }
}

/// One directory for each network namespace: 127.0.0.0/8 is another network in each.
fn default_directory() -> Result<PathBuf, BearerError> {
    let base = user_dir("utipc")?;
    Ok(base.join(format!("nodes-{}", network_namespace())))
}

fn open_free_address(config: &LocalConfig) -> Result<UdpBearer, BearerError> {
    let mut rng = Rng::new(random::seed()?);
    let mut tries = 0;
    loop {
        let port = if tries < ADDRESS_TRIES { DEFAULT_PORT } else { 0 };
        let local = SocketAddr::new(pick(&mut rng).into(), port);
        let mode = UdpMode::Replicast { remotes: Vec::new() };
        let udp = UdpConfig { name: config.name.clone(), local, mode, mtu: config.mtu, offloads: true };
        tries += 1;
        match UdpBearer::open(&udp) {
            Err(BearerError::Os(error))
                if error.kind() == std::io::ErrorKind::AddrInUse && tries < 2 * ADDRESS_TRIES => {}
            opened => return opened,
        }
    }
}

/// A random address of 127.0.0.0/8, outside 127.0.0.0/15, which resolvers and host names use; its last byte is 1 to
/// 254.
fn pick(rng: &mut Rng) -> Ipv4Addr {
    let [.., second, third, last] = rng.next_u32().to_be_bytes();
    Ipv4Addr::new(127, second.max(2), third, last.clamp(1, 254))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picked_addresses_are_outside_the_reserved_ranges() {
        let mut rng = Rng::new(1);
        for _ in 0..10_000 {
            let [first, second, _, last] = pick(&mut rng).octets();
            assert!(first == 127 && second >= 2 && last != 0 && last != 255);
        }
    }

    #[test]
    fn without_a_watch_new_nodes_are_found_by_polling() {
        let directory = std::env::temp_dir().join(format!("utipc-unwatched-{}", std::process::id()));
        let config = LocalConfig { directory: Some(directory.clone()), ..LocalConfig::default() };
        let mut first = LocalBearer::open(&config).unwrap();
        first.watch = None;
        let second = LocalBearer::open(&config).unwrap();
        for peers in [1, 0] {
            if peers == 0 {
                std::fs::remove_file(directory.join(second.udp.address().to_string())).unwrap();
            }
            let end = clock::monotonic() + Duration::from_secs(20);
            while first.peers().len() != peers {
                assert!(clock::monotonic() < end, "{:?}", first.peers());
                std::thread::sleep(Duration::from_millis(5));
                first.receive(&mut |_, _| ()).unwrap();
            }
        }
        drop((first, second));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn bearer_opens_on_another_port_if_the_default_is_taken_on_all_addresses() {
        // It fails if another program has the port on the wildcard address, which is the same case.
        let wildcard = SocketAddr::from(([0, 0, 0, 0], DEFAULT_PORT));
        let _holder = std::net::UdpSocket::bind(wildcard);
        let opened = open_free_address(&LocalConfig::default()).unwrap();
        assert!(opened.address().ip().is_loopback());
    }
}
