//! `utipc bench`: measurements of utipc and of TCP and others, in turn and in one run, so that ratios hold on a noisy
//! machine.

mod channel;
mod chart;
#[cfg(feature = "iceoryx2")]
mod iceoryx;
mod job;
mod library;
mod loops;
mod member;
mod node;
mod offload;
mod options;
mod parent;
mod peer;
mod place;
mod plot;
mod report;
mod run;
mod sockets;
mod table;
mod targets;
mod traffic;
mod transports;
mod variant;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};

use options::Traffic;
use place::Place;
use run::{Case, Name, Run};
use utipc_bench_kit::Named as _;
use variant::{Engine, Kind, Mode, Scope, Transport, Variant};

/// Options of `bench`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Round-trip time of one message at a time; with --rate, of requests by schedule.
    Latency(Traffic),
    /// Messages and bits per second in one direction, counted at the receiver.
    Throughput(Traffic),
    /// CPU time of 25 Mbit/s of 1 KB messages.
    Cpu(Traffic),
    /// One sender, several receivers.
    Multicast(Traffic),
    /// Several pairs of processes at once.
    Pairs(Traffic),
    /// Throughput against write size, below and above multiples of a packet.
    Sizes(Traffic),
    /// Latency and throughput at the message sizes of TIPC's slides.
    All(Traffic),
    /// One node: time to a link, idle memory, lookup among 100,000 bindings.
    Node(node::Options),
    /// The performance targets of utipc, measured, as a Markdown table.
    Targets(targets::Options),
    /// Bar chart of round-trip time and message rate from JSON lines of earlier measurements.
    Chart(chart::Options),
    /// One end of a measurement; the other commands start it.
    #[command(hide = true)]
    Peer(peer::Options),
    /// One end with an event loop; `targets` starts it.
    #[command(hide = true)]
    LoopEnd(loops::End),
    /// One member of an ordered group; `cargo xtask cpg --compare` starts it.
    #[command(hide = true)]
    Member(member::Options),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.command {
        Command::Latency(traffic) => compare(traffic, &[Name::Latency]),
        Command::Throughput(traffic) => compare(traffic, &[Name::Throughput]),
        Command::Cpu(traffic) => compare(traffic, &[Name::Cpu]),
        Command::Multicast(traffic) => compare(traffic, &[Name::Multicast]),
        Command::Pairs(traffic) => compare(traffic, &[Name::Pairs]),
        Command::Sizes(traffic) => compare(traffic, &[Name::Sizes]),
        Command::All(traffic) => {
            let mut traffic = traffic.clone();
            if traffic.size.is_empty() {
                traffic.size = options::SLIDES.to_vec();
            }
            if traffic.mode.is_empty() {
                traffic.mode = vec![Mode::Busy, Mode::Adaptive, Mode::Parked];
            }
            compare(&traffic, &[Name::Latency, Name::Throughput])
        }
        Command::Node(options) => node::run(options),
        Command::Targets(options) => targets::run(options),
        Command::Chart(options) => chart::run(options),
        Command::Peer(options) => peer::run(options),
        Command::LoopEnd(end) => loops::run(end),
        Command::Member(options) => member::run(options),
    }
}

/// Measures and prints what `options` select: one table for each engine and each of `names`.
fn compare(options: &Traffic, names: &[Name]) -> Result<()> {
    let mut all = Vec::new();
    let engines = options.engines()?;
    for (number, &engine) in engines.iter().enumerate() {
        match Place::new(options.scope, engine) {
            Ok(place) => all.extend(measure_at(&place, &options.of_engine(number), names)?),
            // It was not asked for.
            Err(why) if number > 0 => eprintln!("engine {}: unavailable: {why:#}", engine.name()),
            Err(why) => return Err(why),
        }
    }
    if !options.json && engines.len() > 1 {
        table::print_faster_engine(&all);
    }
    match &options.plot {
        Some(path) => plot::write(path, &all),
        None => Ok(()),
    }
}

/// Measures and prints what `options` select, one table for each of `names`.
fn measure_at(place: &Place, options: &Traffic, names: &[Name]) -> Result<Vec<Run>> {
    if options.no_offloads {
        place.offloads_off()?;
    }
    let mut all = Vec::new();
    for &name in names {
        let groups = groups(options, name, place)?;
        let runs = run::compare(place, &groups, options.rounds, |run: &Run| {
            if options.json {
                println!("{}", run.to_json());
            }
        })?;
        if !options.json {
            table::print(&runs);
            if options.histogram {
                table::print_histograms(&runs);
            }
            if name == Name::Sizes {
                options::print_packet_borders(&runs);
            }
        }
        all.extend(runs);
    }
    Ok(all)
}

/// The cases of a table; the cases of one group are compared with each other.
fn groups(options: &Traffic, name: Name, place: &Place) -> Result<Vec<Vec<Case>>> {
    let variants = variants(options, name, place)?;
    let sizes = match (name, options.size.as_slice()) {
        (Name::Sizes, []) => options::write_sizes(fragment(options, place)?),
        (_, []) => options::sizes(name).to_vec(),
        (_, given) => given.to_vec(),
    };
    let connections = if options.connections.is_empty() { vec![1] } else { options.connections.clone() };
    let mut groups = Vec::new();
    for &size in &sizes {
        for &connections in &connections {
            let fits = |variant: &&Variant| size <= variant.largest();
            let case = |variant: &Variant| options.case(name, *variant, size, connections);
            groups.push(variants.iter().filter(fits).map(case).collect());
        }
    }
    Ok(groups)
}

/// The variants to compare. Unavailable transports are listed on standard error, one per line.
fn variants(options: &Traffic, name: Name, place: &Place) -> Result<Vec<Variant>> {
    let transports = options::transports(&options.transport, name, place.engine());
    let mut present = Vec::new();
    for transport in transports {
        let kernel = transport == Transport::KernelTipc;
        let obstacle = match (transport, name) {
            (Transport::Iceoryx2, Name::Latency) => None,
            (Transport::Iceoryx2, _) => Some("only its round-trip time is measured".to_owned()),
            _ => None,
        };
        let obstacle = transports::obstacle(transport, place.scope(), place.engine()).or(obstacle);
        match obstacle.or_else(|| if kernel { place.kernel_obstacle() } else { None }) {
            None => present.push(transport),
            // On the kernel's engine nothing else was requested.
            Some(why) if kernel && place.engine() == Engine::Kernel => bail!("kernel-tipc: {why}"),
            Some(why) => eprintln!("{}: unavailable: {why}", transport.name()),
        }
    }
    ensure!(!present.is_empty(), "none of the chosen transports is available (add --transport tcp)");
    let modes = if options.mode.is_empty() { vec![Mode::Adaptive] } else { options.mode.clone() };
    let kinds = match (name, options.kind.as_slice()) {
        (Name::Multicast, []) => vec![Kind::Rdm],
        (Name::Multicast, given) => {
            let multicast = |kind: &Kind| *kind == Kind::Rdm || kind.is_of_members();
            let remedy = "multicasts have --kind rdm, group, ordered or safe, not connections";
            ensure!(given.iter().all(multicast), remedy);
            given.to_vec()
        }
        (_, given) if given.iter().any(|kind| kind.is_of_members()) => {
            bail!("only multicasts are measured with --kind group, ordered and safe")
        }
        (Name::Sizes, []) => vec![Kind::Stream],
        (_, []) => vec![Kind::Seqpacket],
        (_, given) => given.to_vec(),
    };
    Ok(Variant::all(&present, &modes, &kinds))
}

/// Bytes of a message in a fragment.
fn fragment(options: &Traffic, place: &Place) -> Result<u32> {
    if let Some(bytes) = options.fragment {
        return Ok(bytes);
    }
    ensure!(
        place.engine() != Engine::Kernel || place.scope() == Scope::Inter,
        "the kernel's node has no link to itself, so no packets (use --scope inter or --fragment)"
    );
    targets::fragment(place)
}
