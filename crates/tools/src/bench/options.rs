//! What the measurements may be told, and what they take without being told.

use std::path::PathBuf;

use clap::Args;

use super::party::{Engine, Kind, Mode, Party, Scope, Transport};
use super::run::{Case, Line, Name};
use super::table::groups;

/// Options of the measurements that compare.
#[derive(Clone, Debug, Args)]
pub(super) struct Traffic {
    /// intra: on this host; inter: between two network namespaces (root, or a user who may make them). Default: intra.
    #[arg(long, value_enum)]
    pub(super) scope: Option<Scope>,
    /// What to compare. Default: all that this machine has.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) transport: Vec<Transport>,
    /// How the ends wait: blocking stands for adaptive with utipc, adaptive and parked for blocking with others.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) mode: Vec<Mode>,
    /// Kinds of utipc's sockets. Default: seqpacket.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) kind: Vec<Kind>,
    /// Bytes of a message. Default: 64 for latency, 64,1024,65536 for rates.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=66000))]
    pub(super) size: Vec<u32>,
    /// Connections between the two processes, each with a thread at either end.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) connections: Vec<u32>,
    /// Receivers of a multicast.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(super) receivers: u32,
    /// Pairs of processes.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) pairs: u32,
    /// Messages per second by schedule. A round trip then counts from when the request was due.
    #[arg(long)]
    pub(super) rate: Option<u32>,
    /// Rounds; the tables show medians.
    #[arg(long, alias = "runs", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Messages of a round, on each connection. Default: as many as fill --seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) messages: Option<u64>,
    /// Seconds of a round.
    #[arg(long, default_value_t = 0.5)]
    pub(super) seconds: f64,
    /// Where the nodes of utipc live. Default: as UTIPC_ENGINE says, else embedded.
    #[arg(long, value_enum)]
    pub(super) engine: Option<Engine>,
    /// Let both ends run where the system likes, instead of each on a core of its own.
    #[arg(long)]
    pub(super) unpinned: bool,
    /// Without segmentation and coalescing by the interfaces (inter alone).
    #[arg(long)]
    pub(super) no_offloads: bool,
    /// Bytes of a message in a fragment, for `sizes`. Default: what the link says.
    #[arg(long)]
    pub(super) fragment: Option<u32>,
    /// Show the distribution of round trips too.
    #[arg(long)]
    pub(super) histogram: bool,
    /// One JSON object a line, for each round.
    #[arg(long)]
    pub(super) json: bool,
    /// Write a plot against message size.
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
}

/// Sizes of TIPC's slides.
pub(super) const SLIDES: [u32; 6] = [64, 256, 1024, 4096, 16_384, 65_536];
/// Header of a message of a connection, bytes. Spec: tipc.md §2
const MESSAGE_HEADER: u32 = 24;
/// Header of a fragment, bytes.
const FRAGMENT_HEADER: u32 = 40;
/// What a fragment's message does not use of the link's MTU: header, and reserve for a tunnel. Spec: tipc.md §5.9
pub(super) const BESIDE_FRAGMENT: u32 = FRAGMENT_HEADER + 40;
/// Largest number of full packets in a write of `sizes`.
pub(super) const FRAGMENTS: u32 = 15;
/// Bits per second of `cpu`, as in the 2011 report.
const CPU_RATE: f64 = 25e6;

/// Sizes of a measurement that was not given any.
pub(super) fn sizes(name: Name) -> &'static [u32] {
    match name {
        Name::Latency => &[64],
        Name::Multicast => &[256],
        Name::Cpu => &[1024],
        Name::Throughput | Name::Pairs | Name::Sizes => &[64, 1024, 65_536],
    }
}

/// The largest write that `packets` packets take, where a fragment carries `fragment` bytes of a message.
pub(super) const fn whole(packets: u32, fragment: u32) -> u32 {
    // What fits into one packet is not cut.
    let message = if packets == 1 { fragment + FRAGMENT_HEADER } else { packets * fragment };
    message.saturating_sub(MESSAGE_HEADER)
}

/// Sizes of writes: the slides' up to 40,000 bytes, and whole packets with and without one byte more.
pub(super) fn write_sizes(fragment: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = [64, 256, 1024, 4096, 16_384, 40_000].to_vec();
    sizes.extend(
        (1..=FRAGMENTS).map(|k| whole(k, fragment)).filter(|size| *size < 66_000).flat_map(|s| [s, s + 1]),
    );
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// How a byte more than whole packets changes the rate of each party.
pub(super) fn print_borders(lines: &[Line]) {
    let groups = groups(lines);
    for group in &groups {
        let Some(line) = group.lines.first() else { continue };
        let after = groups.iter().find(|other| {
            other.lines.first().is_some_and(|other| {
                other.case.size == line.case.size + 1
                    && (other.case.party, other.case.connections) == (line.case.party, line.case.connections)
            })
        });
        if let Some(after) = after {
            let ratio = after.median(Line::mbit_per_s) / group.median(Line::mbit_per_s);
            let (label, mode) = (line.case.party.label(), line.case.party.mode.name());
            println!("{label} {mode}: {} bytes and one more: {ratio:.3} x the rate", line.case.size);
        }
    }
}

/// Who takes part: those `given`, else all. On the kernel's engine utipc is `kernel-tipc`.
pub(super) fn transports(given: &[Transport], name: Name, engine: Engine) -> Vec<Transport> {
    let asked = if given.is_empty() { usual(name) } else { given.to_vec() };
    let mut all = Vec::new();
    for transport in asked {
        let own = transport == Transport::Utipc && engine == Engine::Kernel;
        let transport = if own { Transport::KernelTipc } else { transport };
        if !all.contains(&transport) {
            all.push(transport);
        }
    }
    all
}

/// Who takes part if nobody was named.
fn usual(name: Name) -> Vec<Transport> {
    use Transport::{Iceoryx2, KernelTipc, Sctp, Tcp, TcpNagle, Udp, Uds, UdsStream, Utipc};
    match name {
        Name::Latency => vec![Utipc, Tcp, Uds, UdsStream, Udp, Sctp, KernelTipc, Iceoryx2],
        Name::Throughput => vec![Utipc, Tcp, TcpNagle, Uds, UdsStream, Udp, Sctp, KernelTipc],
        Name::Cpu | Name::Multicast | Name::Pairs => vec![Utipc, Tcp, Uds, Udp],
        Name::Sizes => vec![Utipc, Tcp, TcpNagle],
    }
}

/// Why a transport cannot do this, if so.
pub(super) fn unfit(transport: Transport, name: Name) -> Option<String> {
    match (transport, name) {
        (Transport::Iceoryx2, Name::Latency) => None,
        (Transport::Iceoryx2, _) => Some("only its round trips are measured".to_owned()),
        _ => None,
    }
}

impl Traffic {
    /// The case of one party.
    pub(super) fn case(&self, name: Name, party: Party, size: u32, connections: u32) -> Case {
        let mut case = Case::new(name, party, size);
        case.connections = connections;
        case.servers = if name == Name::Multicast { self.receivers } else { 1 };
        case.pairs = if name == Name::Pairs { self.pairs } else { 1 };
        case.rate = match (self.rate, name) {
            (Some(rate), _) => Some(f64::from(rate.max(1))),
            (None, Name::Cpu) => Some(CPU_RATE / 8.0 / f64::from(size)),
            (None, _) => None,
        };
        (case.messages, case.seconds) = (self.messages, self.seconds);
        if party.transport == Transport::Iceoryx2 {
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
    fn writes_are_measured_on_both_sides_of_a_border() {
        let sizes = write_sizes(1400);
        assert!([1416, 1417, 2776, 2777, 20_977].iter().all(|size| sizes.contains(size)));
        assert!(sizes.is_sorted() && sizes.iter().all(|size| *size <= 66_000));
        assert!(write_sizes(60_000).contains(&60_017));
    }

    #[test]
    fn on_the_kernels_engine_utipc_is_the_kernels() {
        use Transport::{KernelTipc, Tcp, Utipc};
        let all = transports(&[], Name::Latency, Engine::Kernel);
        assert!(all.starts_with(&[KernelTipc, Tcp]) && !all.contains(&Utipc));
        assert_eq!(all.iter().filter(|transport| **transport == KernelTipc).count(), 1);
        assert_eq!(transports(&[Utipc, Tcp], Name::Cpu, Engine::Kernel), [KernelTipc, Tcp]);
        assert_eq!(transports(&[Utipc, KernelTipc], Name::Cpu, Engine::Daemon), [Utipc, KernelTipc]);
    }

    #[test]
    fn the_load_is_25_megabits_whatever_the_size() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            traffic: Traffic,
        }
        let traffic = Line::parse_from(["x", "--unpinned"]).traffic;
        let case = traffic.case(Name::Cpu, Party::TCP, 1000, 1);
        assert_eq!((case.rate, case.pinned), (Some(3125.0), false));
    }
}
