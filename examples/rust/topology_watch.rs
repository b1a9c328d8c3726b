//! Prints events of nodes and links in the cluster.
//!
//! `cargo run -p utipc --example topology_watch [SECONDS]`; start or stop other examples while it runs.

use std::time::Duration;

use utipc::{Change, Node};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(u64::MAX), |text| text.parse())?;
    let node = Node::start()?;
    println!("the view of node {}", node.address());
    let mut topology = node.topology()?;
    topology.nodes()?;
    topology.links()?;

    for event in topology.events(Duration::from_secs(seconds.min(1 << 30))) {
        match event?.change {
            Change::NodeUp(node) => println!("node {node} is up"),
            Change::NodeDown(node) => println!("node {node} is down"),
            Change::LinkUp(node) => println!("link to node {node} is up"),
            Change::LinkDown(node) => println!("link to node {node} is down"),
            other => println!("{other:?}"),
        }
    }
    Ok(())
}
