//! Connections that are opened, used and closed as fast as possible. The daemon must not hold more of them than are
//! open at a time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utipc::{Connection, Listener, ServiceAddress, SocketKind};

use crate::daemon::{Watched, attach};
use crate::report::verdict;
use crate::{Part, count};

/// Type of the services; each process has its own instance.
const SERVICE: u32 = 9401;

/// Descriptors that the daemon may hold for a process: its connection, pidfd, memory and doorbells, its listener, and
/// both ends of the few connections that its two threads have open.
const DESCRIPTORS_PER_PROCESS: u64 = 16;

/// Time that a process may take beyond its duration.
const LONGER: Duration = Duration::from_secs(120);

/// The message of the last connection.
const END: &[u8] = b"the end";

/// A process without the library: two threads that connect and accept.
const PROGRAM: &str = include_str!("connections.py");

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration, seconds
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Processes, each of which connects to itself
    #[arg(long, default_value_t = 2)]
    processes: u32,
    /// Programs written for the kernel's TIPC, under the shim
    #[arg(long)]
    shim: bool,
}

/// The task of one of the processes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Caller {
    /// Its instance of the service.
    number: u32,
    seconds: f64,
    socket: PathBuf,
}

/// Connects, sends a message and closes until the time is over; prints how often.
pub(crate) fn call(caller: &Caller) -> Result<()> {
    let node = attach(&caller.socket)?;
    let service = ServiceAddress::new(SERVICE, caller.number);
    let listener = node.listen(SocketKind::SeqPacket, service)?;
    let server = std::thread::spawn(move || accept(&listener));
    let connect = |message: &[u8]| -> Result<Connection> {
        let connection = Connection::open(node.seqpacket()?, service)?;
        connection.send(message)?;
        Ok(connection)
    };
    let end = Instant::now() + Duration::from_secs_f64(caller.seconds);
    let mut count = 0_u64;
    while Instant::now() < end {
        let connection = connect(b"a message")?;
        // Both ways to connect.
        if count.is_multiple_of(2) {
            // The peer may have been faster.
            let _ = connection.shutdown();
        }
        count += 1;
    }
    drop(connect(END)?);
    server.join().map_err(|_| anyhow!("the accepting thread panicked"))??;
    println!("{count}");
    Ok(())
}

fn accept(listener: &Listener) -> Result<()> {
    loop {
        let connection = listener.accept()?;
        if connection.receive()?.data == END {
            return Ok(());
        }
        // Ends the connection, in one of several ways.
        let _ = connection.receive();
    }
}

fn command(options: &Options, socket: &Path, number: u32) -> Result<Command> {
    if !options.shim {
        let socket = socket.to_owned();
        return Part::Caller(Caller { number, seconds: options.seconds, socket }).command();
    }
    let own = std::env::current_exe().context("find this program")?;
    let (number, seconds) = (number.to_string(), options.seconds.to_string());
    let mut command = Command::new(own.with_file_name("utipc"));
    command.args(["run", "--", "python3", "-c", PROGRAM, &number, &seconds]).env("UTIPC_SOCKET", socket);
    Ok(command)
}

/// Runs the processes; false if the daemon held more than it may.
pub(crate) fn run(options: &Options, program: &Path, as_json: bool) -> Result<bool> {
    ensure!(options.seconds > 0.0 && options.processes > 0, "nothing to do (give seconds and processes)");
    let mut daemon = Watched::start(program)?;
    let fresh = daemon.held()?.descriptors;
    let limit = fresh + u64::from(options.processes) * DESCRIPTORS_PER_PROCESS;
    let all = (1..=options.processes).map(|number| command(options, daemon.socket(), number));
    let all = all.collect::<Result<Vec<_>>>()?;
    let (mut most, mut wrong) = (fresh, Vec::new());
    let longest = Duration::from_secs_f64(options.seconds) + LONGER;
    let connections = count(all, longest, &mut wrong, || {
        daemon.check_alive()?;
        most = most.max(daemon.held()?.descriptors);
        Ok(())
    })?;
    if most > limit {
        wrong.push(format!("{most} descriptors of the daemon at most, {limit} are allowed"));
    }
    let left = daemon.counters()?.get("sockets").and_then(Value::as_u64);
    if left != Some(0) {
        wrong.push(format!("{left:?} sockets are left"));
    }
    daemon.end(&mut wrong)?;
    let rate = (connections as f64 / options.seconds).round();
    let facts = json!({ "connections": connections, "per_second": rate, "sockets_left": left,
        "descriptors": { "fresh": fresh, "most": most, "limit": limit } });
    let lines = [
        format!("{connections} connections, {rate} per second"),
        format!("descriptors of the daemon: {fresh} fresh, {most} at most, {limit} allowed"),
    ];
    Ok(verdict("connections", as_json, &wrong, facts, &lines))
}
