//! Requests of subscriptions.

use std::sync::{Arc, Mutex};

use serde_json::json;
use utipc::{Change, Filter, NodeAddr, ServiceRange};

use crate::args::{Args, Refusal};
use crate::node::{Peer, Thing, port};
use crate::{Answer, lock};

impl Peer {
    pub(crate) fn subscribe(&self, args: &Args) -> Answer {
        let node = self.node()?;
        let mut topology = match args.u32_or("node", Some(0))? {
            0 => node.topology()?,
            other => node.topology_of(NodeAddr(other))?,
        };
        let filter =
            if args.maybe_text("filter") == Some("service") { Filter::SERVICE } else { Filter::PORTS };
        let limit = match args.get("timeout_ms") {
            Some(_) => Some(args.milliseconds("timeout_ms", 0)?),
            None => None,
        };
        topology.subscribe(args.range()?, filter, limit)?;
        Ok(json!({"s": self.keep(Thing::Subscriber(Arc::new(Mutex::new(topology))))}))
    }

    pub(crate) fn event(&self, args: &Args) -> Answer {
        let topology = self.subscriber(args)?;
        let limit = args.milliseconds("timeout_ms", 10_000)?;
        let event = lock(&topology).next(limit)?.ok_or(Refusal::Errno(11))?;
        let what = match event.change {
            Change::Expired => "timeout",
            _ if event.is_up() => "published",
            _ => "withdrawn",
        };
        let ServiceRange { service, lower, upper } = event.found;
        Ok(json!({"event": what, "type": service, "lower": lower, "upper": upper, "port": port(event.port)}))
    }
}
