//! `rmdsview`: shows items and their fields as they change.

mod catalogue;
mod fields;
mod report;
mod viewer;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use mdist::net;
use rssl::rwf::Domain;
use utipc_cli::{output, usage};

use viewer::Viewer;

/// Port of a server without one.
const PORT: u16 = 14_002;

/// Shows items of a market-data server: the image of each with all of its fields, then every update, until Ctrl-C.
///
/// Any server that speaks RSSL/RWF will do, such as p2ps. Names and types of fields come from the dictionary of the
/// server.
///
/// Exit codes: 0 after --snapshot, --count or Ctrl-C; 1 if the server cannot be reached, has no such service, or has
/// closed every item; 2 for usage.
#[derive(Debug, Parser)]
#[command(name = "rmdsview", version)]
struct Cli {
    /// Names of items, such as TRI.N
    #[arg(required_unless_present = "services", value_name = "ITEM")]
    items: Vec<String>,
    /// Server; a port alone is one of this host
    #[arg(short, long, default_value = "127.0.0.1:14002", value_name = "HOST[:PORT]")]
    server: String,
    /// Name of the service [default: the first one of the server that is up]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Domain of the items, by name or number
    #[arg(long, default_value = "MarketPrice", value_parser = domain)]
    domain: Domain,
    /// Show these fields only, by name or id
    #[arg(short, long, value_delimiter = ',', value_name = "FIELD,…")]
    fields: Vec<String>,
    /// Show one image of each item and end
    #[arg(long)]
    snapshot: bool,
    /// End after this many images and updates
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// List the services of the server and end
    #[arg(long, conflicts_with_all = ["items", "snapshot", "count"])]
    services: bool,
    /// Print one line of JSON for each message
    #[arg(long)]
    json: bool,
    /// User name of the login [default: the name of the system's user]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// Reads a domain.
fn domain(text: &str) -> Result<Domain, String> {
    let named = (0..=u8::MAX).map(Domain).find(|domain| {
        !domain.is_administrative() && domain.name().is_some_and(|name| name.eq_ignore_ascii_case(text))
    });
    named.or_else(|| text.parse().ok().map(Domain)).ok_or_else(|| {
        "unknown domain (use MarketPrice, MarketByOrder, MarketByPrice, MarketMaker, SymbolList or a number)"
            .into()
    })
}

fn run(cli: &Cli) -> Result<()> {
    let to: SocketAddr = net::resolve_local(&cli.server, PORT).context("--server")?;
    let mut viewer = Viewer::new(cli);
    loop {
        match viewer.watch(to) {
            Ok(()) => return Ok(()),
            // Only a server that was there before comes back by itself.
            Err(why) if viewer.may_reconnect(&why) => {
                eprintln!("rmdsview: {to}: {why:#}; connecting again");
                std::thread::sleep(viewer::RECONNECT_PAUSE);
            }
            Err(why) if why.downcast_ref::<output::OutputError>().is_some() => return Err(why),
            Err(why) => bail!("{to}: {why:#}"),
        }
    }
}

fn main() -> ExitCode {
    match run(&usage::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => output::failed("rmdsview", &why),
    }
}
