//! `p2ps`: the point-to-point server.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use mdist::backbone::memory::Memory;
use mdist::config::{Args, Upstream, UpstreamKind, check_hosts};
use mdist::server::demo::Chain;
use mdist::server::{Backbone, p2ps, program};

/// Serves market data to consumers that speak RSSL/RWF.
#[derive(Debug, Parser)]
#[command(name = "p2ps", version)]
struct Cli {
    #[command(flatten)]
    args: Args,
    /// Address for consumers; replaces the configured ones. A port alone is one of 127.0.0.1.
    #[arg(long, value_name = "[HOST:]PORT")]
    listen: Vec<String>,
    /// Interactive provider to get data from; replaces the configured upstreams.
    #[arg(long, value_name = "HOST:PORT")]
    provider: Vec<String>,
    /// Point-to-point server to get data from; replaces the configured upstreams.
    #[arg(long, value_name = "HOST:PORT")]
    p2ps: Vec<String>,
    /// Cache last values and serve images from the cache.
    #[arg(long, value_name = "true|false")]
    cache: Option<bool>,
    /// Start a publisher and a distributor in this process too; every item name exists and gets updates. Listens on
    /// 127.0.0.1:14002 unless --listen names another address.
    #[arg(long)]
    demo: bool,
    /// Updates per second that the demo's publisher sends.
    #[arg(long, default_value_t = 100, requires = "demo", value_name = "UPDATES")]
    demo_rate: u64,
    /// Address of the HTTP server for metrics: /metrics, /mounts, /disconnects.
    #[arg(long, value_name = "[HOST:]PORT")]
    metrics: Option<String>,
}

fn run(cli: Cli) -> Result<()> {
    let mut config = program::settings(cli.args.load()?);
    check_hosts("--provider", &cli.provider)?;
    check_hosts("--p2ps", &cli.p2ps)?;
    if !cli.listen.is_empty() {
        config.p2ps.listen = cli.listen;
    }
    let upstreams = |kind, hosts: Vec<String>| {
        hosts.into_iter().map(move |host| Upstream { kind, hosts: vec![host], services: Vec::new() })
    };
    let upstream: Vec<_> = upstreams(UpstreamKind::Provider, cli.provider)
        .chain(upstreams(UpstreamKind::P2ps, cli.p2ps))
        .collect();
    if !upstream.is_empty() {
        config.p2ps.upstream = upstream;
    }
    config.p2ps.cache = cli.cache.unwrap_or(config.p2ps.cache);
    config.metrics.listen = cli.metrics.or(config.metrics.listen);
    if cli.args.print_config {
        utipc_cli::say!("{}", config.print().trim_end())?;
        return Ok(());
    }
    if cli.demo {
        let bus = Backbone::on(Memory::new());
        return program::serve("p2ps", &config, |config, metrics| {
            Chain::start(config, metrics, &bus, &bus, cli.demo_rate)
        });
    }
    program::serve("p2ps", &config, |config, metrics| {
        p2ps::start(config, metrics, &Backbone::from_config(config))
    })
}

fn main() -> ExitCode {
    let cli = utipc_cli::usage::parse();
    program::main("p2ps", || run(cli))
}
