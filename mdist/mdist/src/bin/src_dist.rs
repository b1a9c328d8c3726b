//! `src_dist`: the source distributor.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use mdist::config::{Args, Provider, check_hosts};
use mdist::server::{Backbone, program, src_dist};

/// Connects to publishers of market data and puts their data on the backbone.
#[derive(Debug, Parser)]
#[command(name = "src_dist", version)]
struct Cli {
    #[command(flatten)]
    args: Args,
    /// Address for non-interactive publishers; replaces the configured ones. A port alone is one of 127.0.0.1.
    #[arg(long, value_name = "[HOST:]PORT")]
    listen: Vec<String>,
    /// Interactive provider to get data from; replaces the configured ones.
    #[arg(long, value_name = "HOST:PORT")]
    provider: Vec<String>,
    /// Cache last values and serve images from the cache.
    #[arg(long, value_name = "true|false")]
    cache: Option<bool>,
    /// Address of the HTTP server for metrics: /metrics, /disconnects.
    #[arg(long, value_name = "[HOST:]PORT")]
    metrics: Option<String>,
}

fn run(cli: Cli) -> Result<()> {
    let mut config = program::settings(cli.args.load()?);
    check_hosts("--provider", &cli.provider)?;
    if !cli.listen.is_empty() {
        config.src_dist.listen = cli.listen;
    }
    if !cli.provider.is_empty() {
        config.src_dist.provider = cli
            .provider
            .into_iter()
            .map(|host| Provider { hosts: vec![host], services: Vec::new() })
            .collect();
    }
    config.src_dist.defaults.cache = cli.cache.unwrap_or(config.src_dist.defaults.cache);
    config.metrics.listen = cli.metrics.or(config.metrics.listen);
    if cli.args.print_config {
        utipc_cli::say!("{}", config.print().trim_end())?;
        return Ok(());
    }
    program::serve("src_dist", &config, |config, metrics| {
        src_dist::start(config, metrics, &Backbone::from_config(config))
    })
}

fn main() -> ExitCode {
    let cli = utipc_cli::usage::parse();
    program::main("src_dist", || run(cli))
}
