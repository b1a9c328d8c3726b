//! utipc's end of the interop matrix: a node that a line protocol on standard input controls.
//!
//! One JSON object per line: `{"id":7,"op":"send","s":3,"length":1400,"to":{"name":[18888,17]}}` is answered by
//! `{"id":7,"ok":{…}}` or `{"id":7,"error":"EHOSTUNREACH"}`. Every request runs on a separate thread, so that a waiting
//! request does not delay others. `interop/matrix/kernel_peer.py` answers the same requests by the kernel's AF_TIPC.

mod args;
mod groups;
mod kernel;
mod node;
mod pattern;
mod settings;
mod sockets;
mod streams;
mod subscriptions;
mod supervision;
mod tally;
mod watch;

use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use utipc_cli::log;

use args::{Args, Refusal};
use node::Peer;

fn main() -> anyhow::Result<()> {
    log::start_of_command("info").map_err(anyhow::Error::msg)?;
    let peer = Arc::new(Peer::default());
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let peer = Arc::clone(&peer);
        std::thread::spawn(move || {
            let id = request.get("id").cloned().unwrap_or_default();
            let reply = match perform(&peer, &Args::new(&request)) {
                Ok(value) => json!({"id": id, "ok": value}),
                Err(refusal) => json!({"id": id, "error": refusal.to_string()}),
            };
            let mut out = std::io::stdout().lock();
            // If the driver is gone, an error has no reader.
            let _ = writeln!(out, "{reply}").and_then(|()| out.flush());
        });
    }
    // Waiting requests are dropped: the driver has ended, and the node has to end.
    std::process::exit(0)
}

/// The answer to a request.
type Answer = Result<Value, Refusal>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock is used: the test notices a request that panicked by its missing answer, and others continue.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn perform(peer: &Peer, args: &Args) -> Answer {
    match args.text("op")? {
        "start" => peer.start(args),
        "enable" => peer.enable(args),
        "address" => peer.address(),
        "problems" => peer.problems(),
        "names" => peer.names(),
        "watch" => peer.watch(),
        "counts" => peer.watched.counts(),
        "supervision" => peer.supervision(),
        "monitor" => peer.monitor(),
        "threshold" => peer.threshold(args),
        "wait_up" => peer.watched.wait_up(args),
        "socket" => peer.socket(args),
        "option" => peer.option(args),
        "bind" => peer.bind(args),
        "unbind" => peer.unbind(args),
        "bind_many" => peer.bind_many(args),
        "unbind_many" => peer.unbind_many(args),
        "send" => peer.send(args),
        "send_many" => peer.send_many(args),
        "recv" => peer.receive(args),
        "recv_many" => peer.receive_many(args),
        "join" => peer.join(args),
        "member_event" => peer.member_event(args),
        "recv_group" => peer.receive_in_group(args),
        "listen" => peer.listen(args),
        "accept" => peer.accept(args),
        "connect" => peer.connect(args),
        "write" => peer.write(args),
        "read" => peer.read(args),
        "shutdown" => peer.shutdown(args),
        "close" => peer.close(args),
        "subscribe" => peer.subscribe(args),
        "event" => peer.event(args),
        other => Err(Refusal::Request(format!("unknown operation {other}"))),
    }
}
