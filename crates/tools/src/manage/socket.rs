//! `socket list`.

use std::collections::BTreeMap;

use nix::unistd::{Uid, User};
use utipc::{NodeAddr, PortId};
use utipc_manage::{Connection, Entry, Process, Request, Socket};

use super::call::{Call, Ended, Failure};
use super::output::Output;

pub(super) fn list(call: &mut Call) -> Ended {
    let mut users = BTreeMap::new();
    let reply = call.ask(&Request::Sockets)?;
    call.begin();
    for entry in reply {
        let Entry::Socket(socket) = entry else { continue };
        let process = socket.process.as_ref().filter(|_| call.options.processes);
        if call.options.processes && process.is_none() {
            call.out.abandon();
            return Err(Failure::Unable(NOT_TOLD.to_owned()));
        }
        call.out.open_object("");
        call.out.any("socket", socket.port, &format!("socket {}\n", socket.port));
        if let Some(process) = process {
            let user = users.entry(process.uid).or_insert_with(|| user_name(process.uid));
            owner(&mut call.out, &socket, process, user);
        }
        if let Some(connection) = &socket.connection {
            connected(&mut call.out, connection);
        } else if socket.bound {
            let reply = call.ask(&Request::Bindings { port: socket.port });
            // If this fails, the socket may have been closed since it was listed.
            call.out.array("bindings", |out| {
                for entry in reply.unwrap_or_default() {
                    if let Entry::Binding(b) = entry {
                        let text = format!("  bound to {{{},{},{}}}\n", b.service, b.lower, b.upper);
                        out.object("", |out| {
                            out.any("type", b.service, &text);
                            out.any("lower", b.lower, "");
                            out.any("upper", b.upper, "");
                        });
                    }
                }
            });
        }
        call.out.close_object();
    }
    call.out.end();
    Ok(())
}

fn connected(out: &mut Output, connection: &Connection) {
    let peer = PortId { node: NodeAddr(connection.node), port: connection.port };
    out.any("peer", peer.to_string().as_str(), &format!("  connected to {peer}"));
    if let Some((service, instance)) = connection.service {
        let via = format!("{{{service},{instance}}}");
        out.any("via", via.as_str(), &format!(" via {via}"));
    }
    out.text("\n");
}

const NOT_TOLD: &str =
    "this node does not report the owners of sockets (for the kernel's use `ss --tipc -p`)";

/// The name of a user, or its number.
pub(super) fn user_name(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

fn owner(out: &mut Output, socket: &Socket, process: &Process, user: &str) {
    let kind = match socket.kind {
        Some(1) => "STREAM",
        Some(2) => "DGRAM",
        Some(4) => "RDM",
        Some(5) => "SEQPACKET",
        _ => "?",
    };
    let Process {
        pid,
        program,
        counters: [sent, sent_bytes, received, received_bytes, returned, refused],
        ..
    } = process;
    let owner = if *pid == 0 { "the node itself".to_owned() } else { format!("process {pid} {program}") };
    let text = format!(
        "  {kind} of {owner}, user {user}\n  sent {sent} messages {sent_bytes} bytes, received {received} messages \
         {received_bytes} bytes, returned {returned}, refused {refused}\n"
    );
    out.any("kind", kind, &text);
    out.any("pid", *pid, "");
    out.any("program", program.as_str(), "");
    out.any("user", user, "");
    for (key, value) in [
        ("sent", sent),
        ("sent bytes", sent_bytes),
        ("received", received),
        ("received bytes", received_bytes),
        ("returned", returned),
        ("refused", refused),
    ] {
        out.any(key, *value, "");
    }
}
