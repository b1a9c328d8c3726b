//! `nametable show`.

use utipc_manage::{Entry, Request};

use super::call::{Call, Ended};

/// Scopes by the kernel's number.
const SCOPES: [&str; 4] = ["", "zone", "cluster", "node"];

pub(super) fn show(call: &mut Call) -> Ended {
    let reply = call.ask(&Request::Names)?;
    call.begin();
    let names = reply.into_iter().filter_map(|e| if let Entry::Name(name) = e { Some(name) } else { None });
    for (row, name) in names.enumerate() {
        if row == 0 {
            let title = format!(
                "{:<10} {:<10} {:<10} {:<8} {:<10} {:<33}\n",
                "Type", "Lower", "Upper", "Scope", "Port", "Node"
            );
            call.out.text(&title);
        }
        let node = call.identity_of(name.node)?;
        let scope = SCOPES.get(name.scope as usize).copied().unwrap_or("");
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
