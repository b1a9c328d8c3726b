//! The variants compared: transports, kinds of sockets and modes of waiting; and where the two ends are.

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use utipc_bench_kit::Named as _;

/// The locations of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// On this host.
    Intra,
    /// In two network namespaces joined by a virtual Ethernet cable.
    Inter,
}

/// The carrier of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    /// utipc.
    Utipc,
    /// utipc between nodes with a cluster key (AES-256): everything is encrypted.
    UtipcEncrypted,
    /// A TCP connection with `TCP_NODELAY`.
    Tcp,
    /// A TCP connection with Nagle's algorithm.
    TcpNagle,
    /// A Unix socket with message boundaries (SOCK_SEQPACKET).
    Uds,
    /// A Unix stream socket.
    UdsStream,
    /// UDP, one datagram per call.
    Udp,
    /// A one-to-one SCTP association.
    Sctp,
    /// The kernel's TIPC, by the API of utipc.
    KernelTipc,
    /// The shared-memory crate iceoryx2: zero-copy, without connections, on one host.
    Iceoryx2,
}

/// Mode of waiting of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// It polls without a pause.
    Busy,
    /// It polls for a while, then sleeps: the default of utipc.
    Adaptive,
    /// It sleeps at once.
    Parked,
    /// An ordinary blocking call: the mode of all transports except utipc.
    Blocking,
}

/// Kind of socket, if a transport has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Reliable datagrams.
    Rdm,
    /// Connections that carry messages.
    Seqpacket,
    /// Connections that carry bytes.
    Stream,
    /// Members of a communication group, for multicasts.
    Group,
    /// Members of an ordered group, for multicasts in agreed order.
    Ordered,
    /// Members of an ordered group, for multicasts in safe order.
    Safe,
}

/// Kind of utipc node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// In the measured process.
    Embedded,
    /// In a daemon: one that the benchmark starts for each end, or on this host the daemon that $UTIPC_SOCKET names.
    Daemon,
    /// In the kernel: `kernel-tipc` replaces utipc in comparisons.
    Kernel,
}

/// A transport with its mode and kind: what a comparison measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Variant {
    pub(crate) transport: Transport,
    pub(crate) mode: Mode,
    pub(crate) kind: Kind,
}

impl Engine {
    /// The engine of the command line, else of `UTIPC_ENGINE`.
    pub(crate) fn chosen(given: Option<Self>) -> Result<Self> {
        if let Some(engine) = given {
            return Ok(engine);
        }
        let name = std::env::var("UTIPC_ENGINE").unwrap_or_default();
        // `Auto` means embedded here: a running daemon may serve other programs, which would disturb the measurement.
        let engine = if name.is_empty() { utipc::Engine::Auto } else { name.parse()? };
        Ok(match engine {
            utipc::Engine::Daemon => Self::Daemon,
            utipc::Engine::Kernel => Self::Kernel,
            _ => Self::Embedded,
        })
    }
}

impl Transport {
    /// Whether it has the API, kinds and modes of utipc.
    pub(crate) fn is_tipc(self) -> bool {
        matches!(self, Self::Utipc | Self::UtipcEncrypted | Self::KernelTipc)
    }

    /// Whether utipc carries the messages.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Self::Utipc | Self::UtipcEncrypted)
    }

    /// Largest message, bytes.
    pub(crate) fn largest(self) -> u32 {
        match self {
            Self::Udp => 65_507,
            _ => 66_000,
        }
    }
}

impl Kind {
    /// Whether its ends are members of a group.
    pub(crate) const fn is_of_members(self) -> bool {
        matches!(self, Self::Group) || self.is_ordered()
    }

    /// Whether its ends are members of an ordered group.
    pub(crate) const fn is_ordered(self) -> bool {
        matches!(self, Self::Ordered | Self::Safe)
    }
}

impl Variant {
    /// Largest message, bytes.
    pub(crate) fn largest(self) -> u32 {
        let largest = self.transport.largest();
        if self.kind.is_ordered() { largest.min(utipc::ordered::MAX_MESSAGE as u32) } else { largest }
    }

    pub(crate) const fn new(transport: Transport, mode: Mode, kind: Kind) -> Self {
        Self { transport, mode, kind }
    }

    /// TCP without Nagle's algorithm and with blocking calls: the reference of all comparisons.
    pub(crate) const TCP: Self = Self::new(Transport::Tcp, Mode::Blocking, Kind::Stream);

    /// All combinations of `transports`, `modes` and `kinds`, reduced to the modes and kinds that each transport has.
    pub(crate) fn all(transports: &[Transport], modes: &[Mode], kinds: &[Kind]) -> Vec<Self> {
        let mut variants = Vec::new();
        for &transport in transports {
            for &kind in kinds {
                for &mode in modes {
                    let variant = Self::new(transport, mode.of(transport), kind.of(transport));
                    if !variants.contains(&variant) {
                        variants.push(variant);
                    }
                }
            }
        }
        variants
    }

    /// The transport, and the kind if it has several, for tables.
    pub(crate) fn label(&self) -> String {
        let kind = if self.transport.is_tipc() { format!(" {}", self.kind.name()) } else { String::new() };
        format!("{}{kind}", self.transport.name())
    }
}

impl Mode {
    /// The mode of `transport` that corresponds to this one.
    fn of(self, transport: Transport) -> Self {
        match (self, transport) {
            (_, Transport::Iceoryx2) | (Self::Busy, _) => Self::Busy,
            (Self::Blocking, own) if own.is_tipc() => Self::Adaptive,
            (mode, own) if own.is_own() => mode,
            // The kernel does not spin for its callers.
            (_, Transport::KernelTipc) => Self::Parked,
            _ => Self::Blocking,
        }
    }
}

impl Kind {
    /// The kind of `transport` that corresponds to this one.
    fn of(self, transport: Transport) -> Self {
        match transport {
            own if own.is_tipc() => self,
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
    fn each_mode_and_kind_of_a_transport_appears_once() {
        let modes = [Mode::Busy, Mode::Adaptive, Mode::Parked];
        let count = |transport| Variant::all(&[transport], &modes, &[Kind::Rdm, Kind::Seqpacket]).len();
        assert_eq!([count(Transport::Utipc), count(Transport::Tcp), count(Transport::Iceoryx2)], [6, 2, 1]);
        let tcp = Variant::all(&[Transport::Tcp], &[Mode::Adaptive], &[Kind::Rdm]);
        assert_eq!(tcp, [Variant::TCP]);
        assert_eq!((Variant::TCP.label(), Transport::TcpNagle.name()), ("tcp".into(), "tcp-nagle".into()));
    }
}
