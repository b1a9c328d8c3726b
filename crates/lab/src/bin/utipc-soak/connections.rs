//! Connections that are opened, used and closed as fast as possible. The daemon must not hold more of them than are
//! open at a time.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde_json::{Value, json};
use utipc::{Connection, Engine, Listener, Node, ServiceAddress, SocketKind};

use crate::daemon::Watched;

/// Type of the services; each process has its own instance.
const SERVICE: u32 = 9401;

/// Descriptors that the daemon may hold for a process: its connection, pidfd, memory and doorbells, its listener, and
/// both ends of the few connections that its two threads have open.
const DESCRIPTORS_PER_PROCESS: usize = 16;

/// Pause between two checks of the daemon.
const INTERVAL: Duration = Duration::from_millis(50);

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

/// One of the processes.
#[derive(Debug, Args)]
pub(crate) struct Caller {
    /// Its instance of the service
    #[arg(long)]
    number: u32,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    socket: PathBuf,
}

/// Connects, sends a message and closes until the time is over; prints how often.
pub(crate) fn call(caller: &Caller) -> Result<()> {
    let node = Node::builder().engine(Engine::Daemon).daemon_at(&caller.socket).start();
    let node = node.context("attach to the daemon")?;
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
    let own = std::env::current_exe().context("find this program")?;
    let (number, seconds) = (number.to_string(), options.seconds.to_string());
    if options.shim {
        let mut command = Command::new(own.with_file_name("utipc"));
        command.args(["run", "--", "python3", "-c", PROGRAM, &number, &seconds]).env("UTIPC_SOCKET", socket);
        Ok(command)
    } else {
        let mut command = Command::new(own);
        command.args(["caller", "--number", &number, "--seconds", &seconds, "--socket"]).arg(socket);
        Ok(command)
    }
}

/// Runs the processes; false if the daemon held more than it may.
pub(crate) fn run(options: &Options, program: &Path, as_json: bool) -> Result<bool> {
    ensure!(options.seconds > 0.0 && options.processes > 0, "nothing to do (give seconds and processes)");
    let mut daemon = Watched::start(program)?;
    let fresh = daemon.held()?;
    let limit = fresh.descriptors + options.processes as usize * DESCRIPTORS_PER_PROCESS;
    let start = |number| {
        let mut command = command(options, daemon.socket(), number)?;
        command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().context("start a process")
    };
    let mut children: Vec<Child> = (1..=options.processes).map(start).collect::<Result<_>>()?;
    let mut most = fresh.descriptors;
    while children.iter_mut().any(|child| child.try_wait().is_ok_and(|status| status.is_none())) {
        daemon.check_alive()?;
        most = most.max(daemon.held()?.descriptors);
        std::thread::sleep(INTERVAL);
    }
    let mut connections = 0;
    for mut child in children {
        let mut text = String::new();
        child.stdout.take().context("it has no output")?.read_to_string(&mut text)?;
        ensure!(child.wait()?.success(), "a process failed; its error is above");
        connections += text.trim().parse::<u64>().context("read a count")?;
    }
    let left = daemon.counters()?.get("sockets").and_then(Value::as_u64);
    let ok = most <= limit && left == Some(0) && daemon.end()?;
    let rate = (connections as f64 / options.seconds).round();
    if as_json {
        let verdict = json!({ "ok": ok, "connections": connections, "per_second": rate, "sockets_left": left,
            "descriptors": { "fresh": fresh.descriptors, "most": most, "limit": limit } });
        println!("{verdict}");
    } else {
        println!("{connections} connections, {rate} per second");
        let fresh = fresh.descriptors;
        println!("descriptors of the daemon: {fresh} fresh, {most} at most, {limit} allowed");
        println!("sockets left: {}", left.unwrap_or(u64::MAX));
    }
    Ok(ok)
}
