//! Who is compared: transports, kinds of sockets, ways of waiting, and where the two ends are.

use anyhow::Result;
use clap::ValueEnum;
use rustix::net::{AddressFamily, SocketType, ipproto, socket};
use serde::{Deserialize, Serialize};

use super::library;

/// Where the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// On one node's host.
    Intra,
    /// In two network namespaces, joined by a pair of virtual Ethernet interfaces.
    Inter,
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    /// This library.
    Utipc,
    /// A TCP connection with `TCP_NODELAY`.
    Tcp,
    /// A TCP connection with Nagle's algorithm.
    TcpNagle,
    /// A Unix socket that keeps messages apart (SOCK_SEQPACKET).
    Uds,
    /// A Unix stream socket.
    UdsStream,
    /// UDP, one datagram a call.
    Udp,
    /// A one-to-one SCTP association.
    Sctp,
    /// This library's interface over the kernel's TIPC.
    KernelTipc,
    /// The shared-memory crate of that name: zero-copy, no connections, one host.
    Iceoryx2,
}

/// How an end waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// It does not: it asks again and again.
    Busy,
    /// It asks for a while, then sleeps: the default of utipc.
    Adaptive,
    /// It sleeps at once.
    Parked,
    /// An ordinary blocking call: what utipc's peers have.
    Blocking,
}

/// Kind of socket, where a transport has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Reliable datagrams.
    Rdm,
    /// Connections that carry messages.
    Seqpacket,
    /// Connections that carry bytes.
    Stream,
}

/// Where a utipc node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// In the measured process.
    Embedded,
    /// In a daemon that the bench starts, one for each end's host; on this host in the one that $UTIPC_SOCKET names.
    Daemon,
    /// The kernel's own: what is compared as utipc elsewhere is `kernel-tipc` then.
    Kernel,
}

/// One column of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Party {
    pub(crate) transport: Transport,
    pub(crate) mode: Mode,
    pub(crate) kind: Kind,
}

/// The word of the command line and of the reports.
fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Scope {
    pub(crate) fn name(self) -> String {
        word(&self)
    }
}

impl Engine {
    /// What the command line says, else `UTIPC_ENGINE`, as for every program.
    pub(crate) fn chosen(given: Option<Self>) -> Result<Self> {
        if let Some(engine) = given {
            return Ok(engine);
        }
        let name = std::env::var("UTIPC_ENGINE").unwrap_or_default();
        // Not attached to whoever's daemon happens to run: its other programs would be measured too.
        let engine = if name.is_empty() { utipc::Engine::Auto } else { name.parse()? };
        Ok(match engine {
            utipc::Engine::Daemon => Self::Daemon,
            utipc::Engine::Kernel => Self::Kernel,
            _ => Self::Embedded,
        })
    }

    pub(crate) fn name(self) -> String {
        word(&self)
    }
}

impl Kind {
    pub(crate) fn name(self) -> String {
        word(&self)
    }
}

impl Mode {
    pub(crate) fn name(self) -> String {
        word(&self)
    }
}

impl Transport {
    pub(crate) fn name(self) -> String {
        word(&self)
    }

    /// Has the interface, the kinds and the modes of utipc.
    pub(crate) fn is_tipc(self) -> bool {
        matches!(self, Self::Utipc | Self::KernelTipc)
    }

    /// The largest message, bytes.
    pub(crate) fn largest(self) -> u32 {
        match self {
            Self::Udp => 65_507,
            _ => 66_000,
        }
    }

    /// Why it cannot be measured here, if so: one line.
    pub(crate) fn obstacle(self, scope: Scope) -> Option<String> {
        let why = match self {
            Self::Uds | Self::UdsStream if scope == Scope::Inter => "does not leave the host".to_owned(),
            Self::Sctp => {
                socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::SCTP)).err().map(|why| {
                    format!("this kernel has none ({why}; `modprobe sctp` loads it where it was built)")
                })?
            }
            Self::KernelTipc => library::kernel_obstacle()?,
            #[cfg(not(feature = "iceoryx2"))]
            Self::Iceoryx2 => "left out of this build (add --features iceoryx2)".to_owned(),
            #[cfg(feature = "iceoryx2")]
            Self::Iceoryx2 if scope == Scope::Inter => "does not leave the host".to_owned(),
            _ => return None,
        };
        Some(why)
    }
}

impl Party {
    pub(crate) const fn new(transport: Transport, mode: Mode, kind: Kind) -> Self {
        Self { transport, mode, kind }
    }

    /// TCP without Nagle, as most programs wait: what the others are compared with.
    pub(crate) const TCP: Self = Self::new(Transport::Tcp, Mode::Blocking, Kind::Stream);

    /// All that `transports`, `modes` and `kinds` make: each transport in the modes and kinds that it has.
    pub(crate) fn all(transports: &[Transport], modes: &[Mode], kinds: &[Kind]) -> Vec<Self> {
        let mut parties = Vec::new();
        for &transport in transports {
            for &kind in kinds {
                for &mode in modes {
                    let party = Self::new(transport, mode.of(transport), kind.of(transport));
                    if !parties.contains(&party) {
                        parties.push(party);
                    }
                }
            }
        }
        parties
    }

    /// Name for people: the transport, and the kind where it has several.
    pub(crate) fn label(&self) -> String {
        let kind = if self.transport.is_tipc() { format!(" {}", self.kind.name()) } else { String::new() };
        format!("{}{kind}", self.transport.name())
    }
}

impl Mode {
    /// The mode that `transport` has for this one.
    fn of(self, transport: Transport) -> Self {
        match (self, transport) {
            (_, Transport::Iceoryx2) | (Self::Busy, _) => Self::Busy,
            (Self::Blocking, Transport::Utipc | Transport::KernelTipc) => Self::Adaptive,
            (mode, Transport::Utipc) => mode,
            // The kernel does not spin for its callers.
            (_, Transport::KernelTipc) => Self::Parked,
            _ => Self::Blocking,
        }
    }
}

impl Kind {
    /// The kind that `transport` has.
    fn of(self, transport: Transport) -> Self {
        match transport {
            Transport::Utipc | Transport::KernelTipc => self,
            Transport::Uds => Self::Seqpacket,
            Transport::Udp | Transport::Iceoryx2 => Self::Rdm,
            _ => Self::Stream,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transport_has_its_own_modes_and_kinds_once() {
        let modes = [Mode::Busy, Mode::Adaptive, Mode::Parked];
        let count = |transport| Party::all(&[transport], &modes, &[Kind::Rdm, Kind::Seqpacket]).len();
        assert_eq!([count(Transport::Utipc), count(Transport::Tcp), count(Transport::Iceoryx2)], [6, 2, 1]);
        let tcp = Party::all(&[Transport::Tcp], &[Mode::Adaptive], &[Kind::Rdm]);
        assert_eq!(tcp, [Party::TCP]);
        assert_eq!((Party::TCP.label(), Transport::TcpNagle.name()), ("tcp".into(), "tcp-nagle".into()));
    }

    #[test]
    fn what_stays_on_the_host_says_so() {
        assert!(Transport::Uds.obstacle(Scope::Inter).is_some());
        assert!(Transport::Uds.obstacle(Scope::Intra).is_none());
        assert!(Transport::Tcp.obstacle(Scope::Inter).is_none());
    }
}
