//! `nametable show`.

use utipc_manage::{Entry, Publication, Request};

use super::call::{Call, Ended, Failure, number};
use super::identity;
use super::words::Key;

/// Scopes by the kernel's number.
const SCOPES: [&str; 4] = ["", "zone", "cluster", "node"];

const KEYS: [Key; 5] = [("type", true), ("instance", true), ("scope", true), ("port", true), ("node", true)];

/// The bindings to show: those that agree with each value that is given.
#[derive(Debug)]
struct Filter {
    service: Option<u32>,
    instance: Option<u32>,
    port: Option<u32>,
    scope: Option<String>,
    /// Identity or address of a node.
    node: Option<String>,
}

impl Filter {
    fn read(call: &mut Call) -> Result<Self, Failure> {
        let keys = call.keys(&KEYS)?;
        let value = |key| keys.get(key).map(number).transpose();
        let scope = keys.get("scope").map(str::to_owned);
        if let Some(scope) = scope.as_deref().filter(|scope| !["cluster", "node"].contains(scope)) {
            return Err(Failure::Words(format!("unknown scope {scope:?} (use cluster or node)")));
        }
        let node = keys.get("node").map(str::to_owned);
        Ok(Self { service: value("type")?, instance: value("instance")?, port: value("port")?, scope, node })
    }

    fn takes(&self, name: &Publication, scope: &str, node: &str) -> bool {
        let is_node = |wanted: &String| {
            wanted == node
                || identity::address(wanted).or(identity::hexadecimal_address(wanted)) == Some(name.node)
        };
        self.service.is_none_or(|service| service == name.service)
            && self.instance.is_none_or(|instance| (name.lower..=name.upper).contains(&instance))
            && self.port.is_none_or(|port| port == name.port)
            && self.scope.as_ref().is_none_or(|wanted| wanted == scope)
            && self.node.as_ref().is_none_or(is_node)
    }
}

pub(super) fn show(call: &mut Call) -> Ended {
    let filter = Filter::read(call)?;
    let reply = call.ask(&Request::Names)?;
    call.begin();
    let names = reply.into_iter().filter_map(|e| if let Entry::Name(name) = e { Some(name) } else { None });
    let mut row = 0;
    for name in names {
        let node = call.identity_of(name.node)?;
        let scope = SCOPES.get(name.scope as usize).copied().unwrap_or("");
        if !filter.takes(&name, scope, &node) {
            continue;
        }
        if row == 0 {
            let title = format!(
                "{:<10} {:<10} {:<10} {:<8} {:<10} {:<33}\n",
                "Type", "Lower", "Upper", "Scope", "Port", "Node"
            );
            call.out.text(&title);
        }
        row += 1;
        call.out.object("", |out| {
            out.any("type", name.service, &format!("{:<10} ", name.service));
            out.any("lower", name.lower, &format!("{:<10} ", name.lower));
            out.any("upper", name.upper, &format!("{:<10} ", name.upper));
            out.any("scope", scope, &format!("{scope:<8} "));
            out.any("port", name.port, &format!("{:<10} ", name.port));
            out.any("node", node.as_str(), &format!("{node}\n"));
        });
    }
    call.out.end();
    Ok(())
}
