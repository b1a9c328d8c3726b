//! Options of the measurements, and their defaults.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use utipc_bench_kit::Named as _;

use super::run::{Case, Name, Run};
use super::table::{Group, groups};
use super::variant::{Engine, Kind, Mode, Scope, Transport, Variant};

/// Options of the measurements that compare transports.
#[derive(Clone, Debug, Args)]
pub(super) struct Traffic {
    /// intra: on this host; inter: between two network namespaces (needs root or user namespaces)
    #[arg(long, value_enum, default_value_t = Scope::Intra)]
    pub(super) scope: Scope,
    /// Transports to compare [default: all that are available]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) transport: Vec<Transport>,
    /// How the ends wait. For utipc, blocking means adaptive; for others, adaptive and parked mean blocking
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) mode: Vec<Mode>,
    /// Kinds of utipc sockets [default: seqpacket; of multicasts: rdm]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) kind: Vec<Kind>,
    /// Message size, bytes [default: 64 for latency, 64,1024,65536 for rates]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=66000))]
    pub(super) size: Vec<u32>,
    /// Connections between the two processes, each with a thread at both ends
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) connections: Vec<u32>,
    /// Receivers of a multicast
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(super) receivers: u32,
    /// Pairs of processes
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) pairs: u32,
    /// Messages per second by schedule; a round trip then counts from the scheduled time of the request
    #[arg(long)]
    pub(super) rate: Option<u32>,
    /// Rounds; tables show medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Messages of a round, on each connection [default: as many as take --seconds]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) messages: Option<u64>,
    /// Duration of a round, seconds
    #[arg(long, default_value_t = 0.5)]
    pub(super) seconds: f64,
    /// Engine of the nodes of utipc [default: $UTIPC_ENGINE, else embedded, then daemon compared with TCP]
    #[arg(long, value_enum)]
    pub(super) engine: Option<Engine>,
    /// Do not pin the two ends to cores
    #[arg(long)]
    pub(super) unpinned: bool,
    /// Switch segmentation and coalescing of the interfaces off (inter only)
    #[arg(long)]
    pub(super) no_offloads: bool,
    /// Bytes of a message in a fragment, for `sizes` [default: the link's]
    #[arg(long)]
    pub(super) fragment: Option<u32>,
    /// Also show the distribution of round-trip times
    #[arg(long)]
    pub(super) histogram: bool,
    /// Print one JSON object per round, one per line
    #[arg(long)]
    pub(super) json: bool,
    /// Write a plot against message size
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
}

/// Message sizes of TIPC's slides.
pub(super) const SLIDES: [u32; 6] = [64, 256, 1024, 4096, 16_384, 65_536];
/// Header of a message of a connection, bytes. Spec: tipc.md §2
const MESSAGE_HEADER: u32 = 24;
/// Header of a fragment, bytes.
const FRAGMENT_HEADER: u32 = 40;
/// Bytes of the MTU of a link that a fragment does not carry: its header, and a reserve for a tunnel. Spec: tipc.md
/// §5.9
pub(super) const BESIDE_FRAGMENT: u32 = FRAGMENT_HEADER + 40;
/// Largest number of full packets in a write of `sizes`.
pub(super) const FRAGMENTS: u32 = 15;
/// Load of `cpu`, bits per second, as in the report on TIPC of 2011.
const CPU_RATE: f64 = 25e6;

/// Default message sizes of a measurement.
pub(super) fn sizes(name: Name) -> &'static [u32] {
    match name {
        Name::Latency => &[64],
        Name::Multicast => &[256],
        Name::Cpu => &[1024],
        Name::Throughput | Name::Pairs | Name::Sizes => &[64, 1024, 65_536],
    }
}

/// The largest write that fits `packets` packets if a fragment carries `fragment` bytes of a message.
pub(super) const fn whole(packets: u32, fragment: u32) -> u32 {
    // A message that fits one packet is not fragmented.
    let message = if packets == 1 { fragment + FRAGMENT_HEADER } else { packets * fragment };
    message.saturating_sub(MESSAGE_HEADER)
}

/// Sizes of writes: some up to 40,000 bytes, and multiples of a packet, each with and without one byte more.
pub(super) fn write_sizes(fragment: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = [64, 256, 1024, 4096, 16_384, 40_000].to_vec();
    sizes.extend(
        (1..=FRAGMENTS).map(|k| whole(k, fragment)).filter(|size| *size < 66_000).flat_map(|s| [s, s + 1]),
    );
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Prints how one byte more than whole packets changes the rate of each variant.
pub(super) fn print_packet_borders(runs: &[Run]) {
    let groups = groups(runs);
    for group in &groups {
        let case = group.case;
        let is_next = |other: &&Group<'_>| {
            let next = (other.case.size, other.case.variant, other.case.connections);
            next == (case.size + 1, case.variant, case.connections)
        };
        if let Some(after) = groups.iter().find(is_next) {
            let ratio = after.median(Run::mbit_per_s) / group.median(Run::mbit_per_s);
            let (label, mode) = (case.variant.label(), case.variant.mode.name());
            println!("{label} {mode}: {} bytes and one more: {ratio:.3} x the rate", case.size);
        }
    }
}

/// The transports to compare: those `given`, else the usual ones. On the kernel's engine, `kernel-tipc` replaces utipc.
pub(super) fn transports(given: &[Transport], name: Name, engine: Engine) -> Vec<Transport> {
    let chosen = if given.is_empty() { usual(name) } else { given.to_vec() };
    let mut all = Vec::new();
    for transport in chosen {
        let own = transport == Transport::Utipc && engine == Engine::Kernel;
        let transport = if own { Transport::KernelTipc } else { transport };
        if !all.contains(&transport) {
            all.push(transport);
        }
    }
    all
}

/// The transports that are compared by default.
fn usual(name: Name) -> Vec<Transport> {
    use Transport::{Iceoryx2, KernelTipc, Sctp, Tcp, TcpNagle, Udp, Uds, UdsStream, Utipc};
    match name {
        Name::Latency => vec![Utipc, Tcp, Uds, UdsStream, Udp, Sctp, KernelTipc, Iceoryx2],
        Name::Throughput => vec![Utipc, Tcp, TcpNagle, Uds, UdsStream, Udp, Sctp, KernelTipc],
        Name::Cpu | Name::Multicast | Name::Pairs => vec![Utipc, Tcp, Uds, Udp],
        Name::Sizes => vec![Utipc, Tcp, TcpNagle],
    }
}

impl Traffic {
    /// The engines to measure, one after the other.
    pub(super) fn engines(&self) -> Result<Vec<Engine>> {
        let named = std::env::var_os("UTIPC_ENGINE").is_some_and(|name| !name.is_empty());
        let own = self.transport.is_empty() || self.transport.contains(&Transport::Utipc);
        let chosen = Engine::chosen(self.engine)?;
        let both = self.engine.is_none() && !named && own && chosen == Engine::Embedded;
        Ok(if both { vec![chosen, Engine::Daemon] } else { vec![chosen] })
    }

    /// The options of the first engine, or of a further one, which is compared with TCP alone.
    pub(super) fn of_engine(&self, number: usize) -> Self {
        let beside = |transport: &Transport| matches!(transport, Transport::Utipc | Transport::Tcp);
        let mut options = self.clone();
        if number > 0 {
            options.transport.retain(beside);
            if options.transport.is_empty() {
                options.transport = vec![Transport::Utipc, Transport::Tcp];
            }
        }
        options
    }

    /// The case of a variant.
    pub(super) fn case(&self, name: Name, variant: Variant, size: u32, connections: u32) -> Case {
        let mut case = Case::new(name, variant, size);
        case.connections = connections;
        case.servers = if name == Name::Multicast { self.receivers } else { 1 };
        case.pairs = if name == Name::Pairs { self.pairs } else { 1 };
        case.rate = match (self.rate, name) {
            (Some(rate), _) => Some(f64::from(rate.max(1))),
            (None, Name::Cpu) => Some(CPU_RATE / 8.0 / f64::from(size)),
            (None, _) => None,
        };
        (case.messages, case.seconds) = (self.messages, self.seconds);
        if variant.transport == Transport::Iceoryx2 {
            case.connections = 1;
        }
        case.pinned = !self.unpinned;
        case
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_sizes_are_on_both_sides_of_a_packet_border() {
        let sizes = write_sizes(1400);
        assert!([1416, 1417, 2776, 2777, 20_977].iter().all(|size| sizes.contains(size)));
        assert!(sizes.is_sorted() && sizes.iter().all(|size| *size <= 66_000));
        assert!(write_sizes(60_000).contains(&60_017));
    }

    #[test]
    fn kernel_engine_replaces_utipc_by_kernel_tipc() {
        use Transport::{KernelTipc, Tcp, Utipc};
        let all = transports(&[], Name::Latency, Engine::Kernel);
        assert!(all.starts_with(&[KernelTipc, Tcp]) && !all.contains(&Utipc));
        assert_eq!(all.iter().filter(|transport| **transport == KernelTipc).count(), 1);
        assert_eq!(transports(&[Utipc, Tcp], Name::Cpu, Engine::Kernel), [KernelTipc, Tcp]);
        assert_eq!(transports(&[Utipc, KernelTipc], Name::Cpu, Engine::Daemon), [Utipc, KernelTipc]);
    }

    #[test]
    fn cpu_load_is_25_megabits_at_any_size() {
        use clap::Parser;
        #[derive(Parser)]
        struct Run {
            #[command(flatten)]
            traffic: Traffic,
        }
        let traffic = Run::parse_from(["x", "--unpinned"]).traffic;
        let case = traffic.case(Name::Cpu, Variant::TCP, 1000, 1);
        assert_eq!((case.rate, case.pinned), (Some(3125.0), false));
    }
}
