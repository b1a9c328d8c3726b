//! `group list`: the sockets of a daemon that are in groups, and the members that each of them knows.

use std::collections::BTreeMap;

use utipc::{NodeAddr, PortId};
use utipc_manage::{Entry, Errno, Group, GroupMember, Refusal, Request};

use super::call::{Call, Ended, Failure};
use super::output::Output;
use super::socket::user_name;

/// Number of the scope of a group that does not leave its node.
const NODE_SCOPE: u32 = 3;

pub(super) fn list(call: &mut Call) -> Ended {
    let groups = match call.ask(&Request::Groups) {
        Err(Failure::Refused(Refusal { errno: Errno::NOT_SUPPORTED, .. })) => {
            return Err(Failure::Unable(
                "this node does not list groups (only daemons do; use a daemon of this release)".to_owned(),
            ));
        }
        reply => reply?,
    };
    let mut users = BTreeMap::new();
    call.begin();
    for entry in groups {
        let Entry::Group(group) = entry else { continue };
        // If this fails, the socket may have left since it was listed.
        let members = call.ask(&Request::GroupMembers { port: group.port }).unwrap_or_default();
        let user = users.entry(group.uid).or_insert_with(|| user_name(group.uid));
        call.out.object("", |out| {
            print_group(out, &group, user);
            out.array("members", |out| {
                for member in members {
                    if let Entry::GroupMember(member) = member {
                        out.object("", |out| print_member(out, &member));
                    }
                }
            });
        });
    }
    call.out.end();
    Ok(())
}

fn print_group(out: &mut Output, group: &Group, user: &str) {
    let scope = if group.scope == NODE_SCOPE { "node" } else { "cluster" };
    let Group { service, instance, port, members, pid, .. } = group;
    let owner = if *pid == 0 {
        "the node itself".to_owned()
    } else {
        format!("process {pid} {}, user {user}", group.program)
    };
    out.any(
        "group",
        *service,
        &format!("group {service} ({scope}) instance {instance}: socket {port} of {owner}"),
    );
    out.any("scope", scope, "");
    out.any("instance", *instance, "");
    out.any("socket", *port, "");
    out.any("pid", *pid, "");
    out.any("program", group.program.as_str(), "");
    out.any("user", user, "");
    out.any("loopback", u32::from(group.loopback), if group.loopback { ", loopback" } else { "" });
    out.any("events", u32::from(group.events), if group.events { ", events" } else { "" });
    out.any("known", *members, "\n");
    if let Some(policy) = &group.policy {
        out.any("policy", policy.as_str(), &format!("  policy: {policy}\n"));
    }
    if let Some(by) = &group.evicted {
        out.any("evicted", by.as_str(), &format!("  evicted by {by}\n"));
    }
    if let Some(wait) = &group.wait {
        out.any("waits", wait.as_str(), &format!("  sending: {wait}\n"));
    }
}

fn print_member(out: &mut Output, member: &GroupMember) {
    let GroupMember { port, node, instance, state, window, granted, unread, deferred, .. } = member;
    let address = PortId { port: *port, node: NodeAddr(*node) }.to_string();
    let text = format!(
        "  {address} instance {instance} {state}: may be sent {window} blocks, may send {granted}, unread {unread}, \
         deferred {deferred}{}\n",
        slow_counters(member)
    );
    out.any("member", address.as_str(), &text);
    out.any("instance", *instance, "");
    out.any("state", state.as_str(), "");
    out.any("window", *window, "");
    out.any("granted", *granted, "");
    out.any("unread", *unread, "");
    out.any("deferred", *deferred, "");
    if !slow_counters(member).is_empty() {
        out.any("dropped", member.dropped, "");
        out.any("conflated", member.conflated, "");
        out.any("kept", member.kept, "");
    }
}

/// The messages that a slow member has missed, if any.
fn slow_counters(member: &GroupMember) -> String {
    let GroupMember { dropped, conflated, kept, .. } = member;
    if (*dropped, *conflated, *kept) == (0, 0, 0) {
        return String::new();
    }
    format!(", dropped {dropped}, conflated {conflated}, kept {kept}")
}
