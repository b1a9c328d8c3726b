//! The last chapter: a market-data chain over the two nodes, from a publisher to a consumer.

use std::fmt::Display;

use anyhow::{Context as _, Result, ensure};
use mdist::backbone::tipc::Tipc;
use mdist::config::Config;
use mdist::metrics::Metrics;
use mdist::server::demo::Chain;
use mdist::server::{Backbone, quotes};
use utipc::Node;

use super::host::Host;
use super::narrator::Narrator;

/// The items that the consumer opens.
const ITEMS: [&str; 3] = ["TRI.N", "IBM.N", "VOD.L"];
/// Updates per second, of all items together.
const RATE: u64 = 20;
/// Quotes that are printed.
const SHOWN: usize = 16;

/// Runs publisher and source distributor at red, point-to-point server and consumer at blue. Kernel nodes are in
/// namespaces of their own: there the whole chain is at red.
pub(super) fn run(out: &mut Narrator, red: &Host, blue: &Host) -> Result<()> {
    out.chapter("Market data: publisher -> src_dist on red == backbone == p2ps on blue -> consumer");
    out.line("Publisher and consumer speak RSSL/RWF over TCP, as programs of trading rooms do; between the");
    out.line("distributor and the server updates are multicast to a service address.");
    let below = if blue.has_namespace() { red } else { blue };
    red.at(|node| {
        let mut config = Config::default();
        config.p2ps.listen = vec!["127.0.0.1:0".into()];
        let on = |node: &Node| Backbone::on(Tipc::on_node(node.clone(), &config));
        let (above, below) = (on(node), on(below.node()));
        let chain = Chain::start(&config, &Metrics::new("demo"), &above, &below, RATE)?;
        show(out, &chain)
    })?
}

fn show(out: &Narrator, chain: &Chain) -> Result<()> {
    let server = *chain.server.addresses.first().context("the server has no address")?;
    out.say("p2ps", format_args!("I serve consumers at {server}"));
    out.say("consumer", format_args!("I ask for {}", ITEMS.join(", ")));
    let (mut images, mut updates) = (0, 0);
    quotes::watch(server, &ITEMS, |quote| {
        let name = ITEMS.get(quote.item).copied().unwrap_or_default();
        let price =
            |price: Option<&dyn Display>| price.map_or_else(|| "-".into(), |price| format!("{price}"));
        let bid = price(quote.bid.as_ref().map(|p| p as &dyn Display));
        let ask = price(quote.ask.as_ref().map(|p| p as &dyn Display));
        let what = if quote.image { "image" } else { "quote" };
        out.say("consumer", format_args!("{what} {name:<6} bid {bid:>8}  ask {ask:>8}"));
        images += usize::from(quote.image);
        updates += usize::from(!quote.image);
        images >= ITEMS.len() && updates >= SHOWN
    })?;
    ensure!(chain.published() >= updates as u64, "more quotes arrived than were published");
    Ok(())
}
