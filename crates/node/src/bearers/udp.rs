//! The UDP bearer. Spec: tipc.md §4.1.
//!
//! In multicast mode it has two sockets: one bound to the local address, which sends everything and
//! receives unicast; one bound to the group. So several nodes of one host can share a group: each has its own address
//! and receives only its own frames.
//!
//! A third one, the express path, is connected to a peer that got many frames in a row: see [`utipc_os::udp::Express`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use utipc_core::outbox::{BearerId, FrameBatch, Target};
use utipc_core::wire::MediaAddr;
use utipc_os::interface::{self, Interface};
use utipc_os::mmsg::{Datagram, ReceiveRing};
use utipc_os::offload::gro;
use utipc_os::sockaddr::SockAddr;
use utipc_os::udp::{Express, UdpOptions, UdpSocket};

use super::tally::{Counters, Tally};
use super::{Bearer, BearerError, runs};

/// The port of TIPC over UDP, at both ends. Spec: tipc.md §4.1.
pub const DEFAULT_PORT: u16 = 6118;

/// Hops of multicast, as many as a route's usual hop limit. Spec: tipc.md §4.1.
const MULTICAST_HOPS: u32 = 64;

/// Largest MTU that the bearer chooses itself, bytes: the one that the kernel's TIPC uses for UDP over IPv4. Only
/// loopback allows more, and there larger frames fill the receive buffer too soon.
const MTU_CHOSEN_MAX: usize = 14_000;

/// Maximum number of remotes of a replicast bearer: every broadcast is copied to each.
pub(crate) const REMOTES_MAX: usize = 256;

/// Maximum number of reads of one receive call, each of up to 64 KiB of coalesced frames.
const RECEIVE_BATCH: usize = 16;

/// Number of calls after which all sockets are read, even if the first one has frames.
const READ_ALL_AFTER: u32 = 16;

/// Number of calls after which all sockets are read for a caller that spins. Reading them in each call would
/// cost too much.
const SPIN_READ_ALL_AFTER: u32 = 64;

/// Consecutive sends to one peer after which the express path to it is opened.
const EXPRESS_AFTER: u32 = 64;

/// The broadcast mode of a UDP bearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UdpMode {
    /// An IP multicast group, joined on the interface that owns the local address.
    Multicast {
        /// The group and its port.
        group: SocketAddr,
    },
    /// A copy to each remote, at most 256; more can be added while the bearer runs.
    Replicast {
        /// The remotes with their ports.
        remotes: Vec<SocketAddr>,
    },
}

/// Configuration of a UDP bearer.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The name after `udp:`, 1 to 15 characters.
    pub name: String,
    /// The address that peers send to; it must be one of this host, not the wildcard.
    pub local: SocketAddr,
    /// The broadcast mode.
    pub mode: UdpMode,
    /// The largest frame to send, in bytes; `None` fits it to the interface and the known path.
    pub mtu: Option<usize>,
    /// Use segmentation and coalescing of the kernel where it has them; off only to measure or
    /// to find a fault.
    pub offloads: bool,
}

impl UdpConfig {
    /// Multicast mode with the default group of cluster `cluster` on the default port.
    ///
    /// # Errors
    /// If IPv6 has no default group for this cluster id (above 9999).
    pub fn multicast(name: &str, local: IpAddr, cluster: u32) -> Result<UdpConfig, BearerError> {
        let group = default_group(cluster, local.is_ipv6()).ok_or_else(|| BearerError::Config {
            bearer: format!("udp:{name}"),
            reason: format!("IPv6 has no default multicast group for cluster id {cluster}"),
            remedy: "name a group, or use a cluster id up to 9999",
        })?;
        let mode = UdpMode::Multicast { group: SocketAddr::new(group, DEFAULT_PORT) };
        let local = SocketAddr::new(local, DEFAULT_PORT);
        Ok(UdpConfig { name: name.to_owned(), local, mode, mtu: None, offloads: true })
    }

    /// Replicast mode to `remotes`, from the default port; a remote's port 0 also means the default port.
    pub fn replicast(name: &str, local: IpAddr, mut remotes: Vec<SocketAddr>) -> UdpConfig {
        let local = SocketAddr::new(local, DEFAULT_PORT);
        for remote in remotes.iter_mut().filter(|remote| remote.port() == 0) {
            remote.set_port(DEFAULT_PORT);
        }
        UdpConfig {
            name: name.to_owned(),
            local,
            mode: UdpMode::Replicast { remotes },
            mtu: None,
            offloads: true,
        }
    }
}

/// The multicast group that the `tipc` tool computes from a cluster id: 228.0.(id/256).(id%256),
/// or ff02:: with the id's decimal digits as its last group, which must be at most four.
pub fn default_group(cluster: u32, v6: bool) -> Option<IpAddr> {
    if v6 {
        return format!("ff02::{cluster}").parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let [_, _, high, low] = cluster.to_be_bytes();
    Some(IpAddr::V4(Ipv4Addr::new(228, 0, high, low)))
}

/// TIPC over UDP, IPv4 or IPv6.
pub struct UdpBearer {
    name: String,
    socket: UdpSocket,
    group: Option<(SocketAddr, UdpSocket)>,
    remotes: Vec<SocketAddr>,
    interface: Interface,
    mtu: usize,
    ring: ReceiveRing,
    sends: Vec<Datagram>,
    calls: u32,
    tally: Tally,
    express: Option<Arc<Express>>,
    /// The peer of the express path, once it is open.
    express_to: Option<SocketAddr>,
    /// The express path was connected, or an attempt failed; from then on it may receive frames from any peer.
    express_bound: bool,
    express_sends: Vec<Datagram>,
    /// The last unicast address, and the number of consecutive sends to it.
    streak: (SocketAddr, u32),
}

impl UdpBearer {
    /// Opens the bearer; it can send and receive at once.
    ///
    /// # Errors
    /// Wildcard or foreign local address, address taken, IPv4 and IPv6 mixed, MTU out of range.
    pub fn open(config: &UdpConfig) -> Result<UdpBearer, BearerError> {
        let name = format!("udp:{}", config.name);
        if config.local.ip().is_unspecified() || config.local.ip().is_multicast() {
            return Err(BearerError::Config {
                bearer: name,
                reason: format!("{} is not an address that peers can send to", config.local.ip()),
                remedy: "give a unicast address of this host",
            });
        }
        let interface = interface_of(config.local)?;
        let local = scoped(config.local, interface.index);
        let socket = UdpSocket::bind(local, &options(config, false))?;
        // Without the reservation the bearer works without an express path.
        let express = socket.reserve_express(&options(config, false)).ok().map(Arc::new);
        let mut bearer = UdpBearer {
            name,
            socket,
            group: None,
            remotes: Vec::new(),
            mtu: 0,
            interface,
            ring: ReceiveRing::new(RECEIVE_BATCH, gro::MAX_BYTES),
            sends: Vec::new(),
            calls: 0,
            tally: Tally::default(),
            express,
            express_to: None,
            express_bound: false,
            express_sends: Vec::new(),
            streak: (local, 0),
        };
        bearer.mtu = bearer.choose_mtu(config)?;
        match &config.mode {
            UdpMode::Multicast { group } => bearer.join(*group, config)?,
            UdpMode::Replicast { remotes } => {
                for remote in remotes {
                    bearer.add_remote(*remote)?;
                }
            }
        }
        Ok(bearer)
    }

    /// The remotes that broadcasts are copied to; none in multicast mode.
    pub fn remotes(&self) -> &[SocketAddr] {
        &self.remotes
    }

    /// The socket's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    fn join(&mut self, group: SocketAddr, config: &UdpConfig) -> Result<(), BearerError> {
        if !group.ip().is_multicast() || group.is_ipv4() != self.address().is_ipv4() {
            return Err(BearerError::Config {
                bearer: self.name.clone(),
                reason: format!("{} is not a multicast group for {}", group.ip(), self.address().ip()),
                remedy: "IPv4 groups are 224.0.0.0/4, IPv6 groups ff00::/8",
            });
        }
        let group = scoped(group, self.interface.index);
        let socket = UdpSocket::bind(group, &options(config, true))?;
        socket.join(group.ip(), &self.interface)?;
        self.socket.multicast_through(&self.interface, MULTICAST_HOPS)?;
        self.group = Some((group, socket));
        Ok(())
    }

    fn choose_mtu(&self, config: &UdpConfig) -> Result<usize, BearerError> {
        let overhead = self.overhead();
        let least = utipc_core::limits::MIN_BEARER_MTU as usize;
        let fits = match config.mtu {
            Some(mtu) => mtu,
            None => {
                let path = self.path_mtu(config);
                path.saturating_sub(overhead).min(MTU_CHOSEN_MAX)
            }
        };
        let most = 65_535 - overhead;
        if (least..=most).contains(&fits) {
            return Ok(fits);
        }
        Err(BearerError::Config {
            bearer: self.name.clone(),
            reason: format!("an MTU of {fits} bytes is outside {least} to {most}"),
            remedy: "set an MTU in that range, or let it be chosen",
        })
    }

    /// Bytes of the IP and UDP headers.
    fn overhead(&self) -> usize {
        if self.address().is_ipv4() { 28 } else { 48 }
    }

    /// The least MTU among the interface and the known paths to the remotes.
    fn path_mtu(&self, config: &UdpConfig) -> usize {
        let remotes = match &config.mode {
            UdpMode::Replicast { remotes } => remotes.as_slice(),
            UdpMode::Multicast { .. } => &[],
        };
        // A remote without a route may get one later; until then only the interface counts.
        let paths = remotes.iter().filter_map(|remote| interface::path_mtu(self.address(), *remote).ok());
        paths.fold(self.interface.mtu, usize::min)
    }

    /// Turns runs of frames into datagrams, one for each remote where a broadcast is copied.
    fn plan(&mut self, id: BearerId, batch: &FrameBatch) {
        let index = self.interface.index;
        let (sends, remotes, group) = (&mut self.sends, &self.remotes, &self.group);
        let (express_to, express_sends, streak) =
            (self.express_to, &mut self.express_sends, &mut self.streak);
        sends.clear();
        express_sends.clear();
        let mut foreign = 0;
        let refused = runs::for_each(batch, id, self.mtu, self.socket.segmentation(), |run| {
            let mut send = |to: SocketAddr| sends.push(run.datagram(SockAddr::from(to)));
            match (&run.to, group) {
                (Target::Unicast(MediaAddr::Udp(to)), _) => {
                    let to = scoped(*to, index);
                    if streak.0 != to {
                        *streak = (to, 0);
                    }
                    streak.1 = streak.1.saturating_add(1);
                    if express_to == Some(to) {
                        express_sends.push(run.datagram(SockAddr::NONE));
                    } else {
                        send(to);
                    }
                }
                (Target::Broadcast, Some((group, _))) => send(*group),
                (Target::Broadcast, None) => remotes.iter().copied().for_each(&mut send),
                (Target::Unicast(MediaAddr::Ethernet(_)), _) => foreign += run.frames(),
            }
        });
        self.tally.counters.tx_refused += refused + foreign;
    }
}

impl UdpBearer {
    /// Sends the frames for the express path.
    fn send_express(&mut self, batch: &FrameBatch) {
        if let Some(path) = self.express.as_ref().filter(|_| !self.express_sends.is_empty()) {
            let report = path.send(&runs::Batch(batch), &self.express_sends);
            self.tally.sent(&self.name, &report);
        }
    }

    /// Opens the express path to the peer that gets all frames now.
    fn open_express(&mut self) {
        let (to, sends) = self.streak;
        // A failed connect is not repeated.
        let fails = self.express_bound && self.express_to.is_none();
        let usable = sends >= EXPRESS_AFTER && self.express_to != Some(to) && !fails;
        let Some(path) = self.express.as_ref().filter(|_| usable) else { return };
        self.express_bound = true;
        self.express_to = match path.connect(&self.socket, to) {
            Ok(()) => Some(to),
            Err(error) => {
                tracing::info!(bearer = %self.name, %error, "no express path: all frames use one socket");
                None
            }
        };
    }

    /// Reads the express path; true if it had frames.
    fn read_express(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        let own = unscoped(self.address());
        let (ring, tally) = (&mut self.ring, &mut self.tally);
        let Some(path) = self.express.as_ref().filter(|_| self.express_bound) else { return Ok(false) };
        let mut knocked = false;
        let mut take = |from: &SockAddr, frame: &[u8]| {
            knocked |= !pass(own, tally, from, frame, sink) && frame.is_empty();
        };
        let result = path.poll(ring, RECEIVE_BATCH).map(|()| ring.deliver(&mut take));
        if knocked {
            path.confirm_wake();
        }
        Ok(tally.received(&self.name, result)?.reads > 0)
    }

    /// Reads the first socket if `wanted`, and the group if the first had nothing; true if there may be more.
    fn read_others(
        &mut self,
        wanted: bool,
        sink: &mut dyn FnMut(MediaAddr, &[u8]),
    ) -> Result<bool, BearerError> {
        if !wanted {
            return Ok(true);
        }
        let own = unscoped(self.address());
        let (ring, tally) = (&mut self.ring, &mut self.tally);
        let mut read = |socket: &UdpSocket| {
            let result = socket.receive(ring, &mut |from, frame| _ = pass(own, tally, from, frame, sink));
            tally.received(&self.name, result)
        };
        let first = read(&self.socket)?;
        let mut more = first.more;
        if let Some((_, group)) = &self.group
            && (first.reads == 0 || self.calls.is_multiple_of(READ_ALL_AFTER))
        {
            more |= read(group)?.more;
        }
        Ok(more)
    }
}

/// Passes a frame to `sink`; false if the frame is the bearer's own.
fn pass(
    own: SocketAddr,
    tally: &mut Tally,
    from: &SockAddr,
    frame: &[u8],
    sink: &mut dyn FnMut(MediaAddr, &[u8]),
) -> bool {
    match from.to_ip().map(unscoped) {
        Some(from) if from != own => {
            tally.frame(frame.len());
            sink(MediaAddr::Udp(from), frame);
            true
        }
        _ => {
            tally.counters.rx_own += 1;
            false
        }
    }
}

impl Bearer for UdpBearer {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> String {
        let how = match &self.group {
            Some((group, _)) => format!("multicast group {group} on {}", self.interface.name),
            None => format!("{} remotes", self.remotes.len()),
        };
        let gso = if self.socket.segmentation() { "on" } else { "off" };
        let gro = if self.socket.coalescing() { "on" } else { "off" };
        format!("{} at {}, {how}, mtu {}, gso {gso}, gro {gro}", self.name, self.address(), self.mtu)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let group = self.group.iter().map(|(_, socket)| socket.as_fd());
        let express = self.express.iter().map(|path| path.as_fd());
        std::iter::once(self.socket.as_fd()).chain(group).chain(express).collect()
    }

    fn local_address(&self) -> MediaAddr {
        MediaAddr::Udp(unscoped(self.address()))
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    /// The system reassembles IP fragments, so the path does not limit what arrives. A kernel node sends packets of
    /// 14,000 bytes, and copies of its broadcasts are lost if its link to this node takes less. Spec: tipc.md §4.7.
    fn max_receive(&self) -> usize {
        65_535 - self.overhead()
    }

    /// Switches and routers on the path may silently drop what the interface sends.
    fn base_mtu(&self) -> usize {
        utipc_core::limits::BASE_PACKET as usize
    }

    fn has_broadcast(&self) -> bool {
        self.group.is_some()
    }

    fn broadcast_targets(&self) -> Vec<MediaAddr> {
        let targets = self.group.iter().map(|(group, _)| group).chain(&self.remotes);
        targets.map(|to| MediaAddr::Udp(unscoped(*to))).collect()
    }

    fn send(&mut self, id: BearerId, batch: &FrameBatch) {
        self.plan(id, batch);
        self.send_express(batch);
        if self.sends.is_empty() {
            return;
        }
        let could_segment = self.socket.segmentation();
        let report = self.socket.send(&runs::Batch(batch), &self.sends);
        if could_segment && !self.socket.segmentation() {
            tracing::info!(bearer = %self.name, "the path does not support segmentation offload: frames are sent one by one");
        }
        self.tally.sent(&self.name, &report);
        self.open_express();
    }

    fn receive(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.calls = self.calls.wrapping_add(1);
        let idle = !self.read_express(sink)?;
        self.read_others(idle || self.calls.is_multiple_of(READ_ALL_AFTER), sink)
    }

    fn receive_spinning(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.calls = self.calls.wrapping_add(1);
        self.read_express(sink)?;
        self.read_others(self.express_to.is_none() || self.calls.is_multiple_of(SPIN_READ_ALL_AFTER), sink)
    }

    fn receive_others(&mut self, sink: &mut dyn FnMut(MediaAddr, &[u8])) -> Result<bool, BearerError> {
        self.read_others(true, sink)
    }

    fn express(&self) -> Option<(usize, Arc<Express>)> {
        let index = 1 + usize::from(self.group.is_some());
        self.express.as_ref().map(|path| (index, Arc::clone(path)))
    }

    fn receive_express(
        &mut self,
        read: io::Result<&ReceiveRing>,
        sink: &mut dyn FnMut(MediaAddr, &[u8]),
    ) -> Result<(), BearerError> {
        let own = unscoped(self.address());
        let tally = &mut self.tally;
        let result =
            read.map(|ring| ring.deliver(&mut |from, frame| _ = pass(own, tally, from, frame, sink)));
        tally.received(&self.name, result).map(|_| ())
    }

    fn counters(&self) -> Counters {
        self.tally.counters
    }

    /// Adding a remote twice changes nothing. It fails in multicast mode, for an address that is multicast or of the
    /// other IP version, and above 256 remotes.
    fn add_remote(&mut self, remote: SocketAddr) -> Result<(), BearerError> {
        let refuse =
            |reason: String, remedy| Err(BearerError::Config { bearer: self.name.clone(), reason, remedy });
        if self.group.is_some() {
            return refuse(
                "it reaches its peers by multicast and has no remotes".into(),
                "enable it with a unicast remote address instead",
            );
        }
        if remote.is_ipv4() != self.socket.local_address().is_ipv4() {
            return refuse(format!("remote {remote} has the other IP version"), "use one IP version");
        }
        if remote.ip().is_multicast() || remote.ip().is_unspecified() {
            return refuse(format!("remote {remote} is not a unicast address"), "name one host");
        }
        let remote = scoped(remote, self.interface.index);
        if self.remotes.contains(&remote) {
            return Ok(());
        }
        if self.remotes.len() >= REMOTES_MAX {
            return refuse(format!("it has {REMOTES_MAX} remotes already"), "use multicast");
        }
        self.remotes.push(remote);
        Ok(())
    }

    fn remove_remote(&mut self, remote: SocketAddr) -> bool {
        let remote = scoped(remote, self.interface.index);
        let before = self.remotes.len();
        self.remotes.retain(|it| *it != remote);
        self.remotes.len() != before
    }
}

fn options(config: &UdpConfig, reuse_address: bool) -> UdpOptions {
    UdpOptions { reuse_address, offloads: config.offloads, ..UdpOptions::default() }
}

/// The interface of a local address: the one of its scope if it has one, else the one that has the address.
fn interface_of(local: SocketAddr) -> Result<Interface, BearerError> {
    if let SocketAddr::V6(v6) = local
        && v6.scope_id() != 0
        && let Some(found) = Interface::all()?.into_iter().find(|it| it.index == v6.scope_id())
    {
        return Ok(found);
    }
    Ok(Interface::by_address(local.ip())?)
}

/// Adds the interface to an IPv6 address that needs one: discovery messages carry none.
fn scoped(address: SocketAddr, interface: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if needs_scope(v6.ip()) => {
            let scope = if v6.scope_id() == 0 { interface } else { v6.scope_id() };
            SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope))
        }
        other => other,
    }
}

/// The address as discovery announces it.
fn unscoped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

/// Link-local unicast (fe80::/10), or multicast of link or interface scope.
fn needs_scope(ip: &Ipv6Addr) -> bool {
    let first = ip.segments()[0];
    first & 0xFFC0 == 0xFE80 || (ip.is_multicast() && matches!(first & 0xF, 1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_groups_are_those_of_the_tipc_tool() {
        assert_eq!(default_group(4711, false), Some("228.0.18.103".parse().unwrap()));
        assert_eq!(default_group(4711, true), Some("ff02::4711".parse().unwrap()));
        assert_eq!(default_group(10_000, true), None);
        let error = UdpConfig::multicast("x", "::1".parse().unwrap(), 10_000).unwrap_err();
        assert!(error.to_string().contains("10000"), "{error}");
    }

    #[test]
    fn remotes_without_a_port_get_the_default_port() {
        let remotes = vec!["10.0.0.1:0".parse().unwrap(), "10.0.0.2:7".parse().unwrap()];
        let config = UdpConfig::replicast("x", "10.0.0.3".parse().unwrap(), remotes);
        let expected = vec!["10.0.0.1:6118".parse().unwrap(), "10.0.0.2:7".parse().unwrap()];
        assert_eq!(config.mode, UdpMode::Replicast { remotes: expected });
    }

    #[test]
    fn link_local_addresses_get_a_scope_that_unscoped_removes() {
        let bare: SocketAddr = "[fe80::1]:6118".parse().unwrap();
        assert_eq!(scoped(bare, 3), "[fe80::1%3]:6118".parse().unwrap());
        assert_eq!(unscoped(scoped(bare, 3)), bare);
        assert_eq!(scoped("[ff02::1%9]:1".parse().unwrap(), 3), "[ff02::1%9]:1".parse().unwrap());
        for free in ["[fd00::1]:6118", "[ff05::1]:6118", "127.0.0.1:6118"] {
            assert_eq!(scoped(free.parse().unwrap(), 3), free.parse().unwrap());
        }
    }

    #[test]
    fn invalid_configurations_are_refused_with_a_remedy() {
        let open = |local: &str, mode, mtu| {
            let config =
                UdpConfig { name: "t".into(), local: local.parse().unwrap(), mode, mtu, offloads: true };
            UdpBearer::open(&config).map(|_| ()).unwrap_err().to_string()
        };
        let none = || UdpMode::Replicast { remotes: vec![] };
        let to = |remote: &str| UdpMode::Replicast { remotes: vec![remote.parse().unwrap()] };
        let group = |group: &str| UdpMode::Multicast { group: group.parse().unwrap() };
        assert!(open("0.0.0.0:0", none(), None).contains("unicast address of this host"));
        assert!(open("127.0.0.1:0", to("[::1]:1"), None).contains("other IP version"));
        assert!(open("127.0.0.1:0", to("228.0.0.1:1"), None).contains("not a unicast address"));
        assert!(open("127.0.0.1:0", group("127.0.0.2:1"), None).contains("not a multicast group"));
        assert!(open("127.0.0.1:0", group("[ff02::1]:1"), None).contains("not a multicast group"));
        assert!(open("127.0.0.1:0", none(), Some(99)).contains("outside 100 to 65507"));
    }
}
