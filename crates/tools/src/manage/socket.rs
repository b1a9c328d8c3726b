//! `socket list`.

use std::collections::BTreeMap;

use nix::unistd::{Uid, User};
use utipc_manage::{Entry, Process, Request, Socket};

use super::call::{Call, Ended, Failure};

pub(super) fn list(call: &mut Call) -> Ended {
    let mut users = BTreeMap::new();
    for entry in call.ask(&Request::Sockets)? {
        let Entry::Socket(socket) = entry else { continue };
        call.out.raw(&format!("socket {}\n", socket.port));
        if call.options.processes {
            match &socket.process {
                Some(process) => {
                    let user = users.entry(process.uid).or_insert_with(|| user(process.uid));
                    call.out.raw(&whose(&socket, process, user));
                }
                None => return Err(Failure::Words(NOT_TOLD.to_owned())),
            }
        }
        if let Some(c) = &socket.connection {
            call.out.raw(&format!("  connected to {:x}:{}", c.node, c.port));
            if let Some((service, instance)) = c.service {
                call.out.raw(&format!(" via {{{service},{instance}}}"));
            }
            call.out.raw("\n");
        } else if socket.bound {
            let reply = call.ask(&Request::Bindings { port: socket.port });
            // If this fails, the socket may have been closed since it was listed.
            for entry in reply.unwrap_or_default() {
                if let Entry::Binding(b) = entry {
                    call.out.raw(&format!("  bound to {{{},{},{}}}\n", b.service, b.lower, b.upper));
                }
            }
        }
    }
    Ok(())
}

const NOT_TOLD: &str =
    "this node does not report the owners of sockets (for the kernel's use `ss --tipc -p`)";

fn user(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

fn whose(socket: &Socket, process: &Process, user: &str) -> String {
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
    format!(
        "  {kind} of {owner}, user {user}\n  sent {sent} messages {sent_bytes} bytes, received {received} messages \
         {received_bytes} bytes, returned {returned}, refused {refused}\n"
    )
}
