//! Honest processes of another user, during an attack: a server, and clients that exchange messages with it all the
//! time and measure how long that takes.

use std::io::BufRead;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use utipc::{Connection, Node, Scope, ServiceAddress, SocketKind};
use utipc_bench_kit::process::{self, Process};

use crate::Part;
use crate::daemon::attach;

/// Service of the connections, and of datagrams that the server reads and discards: hostile processes find both.
pub(crate) const ECHO: ServiceAddress = ServiceAddress::new(9501, 1);
pub(crate) const TARGET: ServiceAddress = ServiceAddress::new(9502, 1);

/// Longest wait for a message or a connection.
const LIMIT: Duration = Duration::from_secs(60);

/// Pause between two exchanges, so that the measurement leaves the processors to the rest.
const PAUSE: Duration = Duration::from_millis(1);

/// Bytes of a message, which begins with its number.
const SIZE: usize = 64;

/// The user number of honest processes. The user need not exist.
const HONEST_USER: u32 = 64_100;

/// Makes a command run as another user, if this process may.
pub(crate) fn as_user(command: &mut Command, user: u32) {
    if rustix::process::geteuid().is_root() {
        command.uid(user).gid(user);
    }
}

/// What an honest process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Answers.
    Server,
    /// Asks, and prints a [`Window`] for each line of its input.
    Client,
    /// Opens and closes sockets, each time by requests to the daemon, and prints the same.
    Caller,
}

/// The task of an honest process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bystander {
    socket: PathBuf,
    role: Role,
}

/// Exchanges of one period.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) trips: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) longest_us: u64,
}

impl Window {
    fn of(times: &mut Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or(0);
        let (trips, longest_us) = (times.len() as u64, times.last().copied().unwrap_or(0));
        let window = Self { trips, p50_us: at(50), p99_us: at(99), longest_us };
        times.clear();
        window
    }
}

/// An honest process, seen from the run that starts it.
pub(crate) struct Honest(Process);

impl Honest {
    pub(crate) fn start(socket: &Path, role: Role) -> Result<Self> {
        let mut command = Part::Bystander(Bystander { socket: socket.to_owned(), role }).command()?;
        as_user(&mut command, HONEST_USER);
        let mut process = Process::start_patiently("an honest process", command)?;
        let ready = process.line()?;
        ensure!(ready == "ready", "an honest process says {ready}");
        Ok(Self(process))
    }

    /// The times measured since the last call.
    pub(crate) fn window(&mut self) -> Result<Window> {
        self.0.send("")?;
        serde_json::from_str(&self.0.line()?).context("read what a process has measured")
    }
}

/// Serves or asks until its input ends. Fails if a message is lost, late or wrong.
pub(crate) fn live(bystander: &Bystander) -> Result<()> {
    let node = attach(&bystander.socket)?;
    match bystander.role {
        Role::Server => serve(&node),
        Role::Client => ask(&node),
        Role::Caller => call(&node),
    }
}

fn serve(node: &Node) -> Result<()> {
    let listener = node.listen(SocketKind::SeqPacket, ECHO)?;
    let target = node.rdm()?;
    target.bind(TARGET, Scope::Cluster)?;
    std::thread::spawn(move || {
        // Hostile processes send to it and damage the lanes to it: that ends only these lanes.
        let mut buffer = vec![0; 66_000];
        loop {
            let _ = target.receive_into(&mut buffer);
        }
    });
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || answer(&connection));
        }
    });
    println!("ready");
    // Until the run ends.
    let _ = std::io::stdin().lock().lines().next();
    std::process::exit(0);
}

fn answer(connection: &Connection) {
    let mut buffer = vec![0; 66_000];
    // Hostile processes connect too, and end their connections in every way.
    while let Ok(got) = connection.receive_into(&mut buffer)
        && got.len > 0
        && buffer.get(..got.len).is_some_and(|bytes| connection.send(bytes).is_ok())
    {}
}

fn ask(node: &Node) -> Result<()> {
    let begun = Instant::now();
    let connection = loop {
        match Connection::open(node.seqpacket()?, ECHO) {
            Ok(connection) => break connection,
            // The link to the other node may not be up yet.
            Err(error) => ensure!(begun.elapsed() < LIMIT, "cannot connect: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    connection.socket().set_receive_timeout(Some(LIMIT));
    let mut buffer = vec![0; SIZE + 1];
    repeat(|number| {
        let mut message = [0; SIZE];
        message[..8].copy_from_slice(&number.to_le_bytes());
        connection.send(&message).with_context(|| format!("send number {number}"))?;
        let got =
            connection.receive_into(&mut buffer).with_context(|| format!("answer to number {number}"))?;
        if buffer.get(..got.len) != Some(&message[..]) {
            bail!("wrong answer to number {number}: {} bytes", got.len);
        }
        Ok(())
    })
}

fn call(node: &Node) -> Result<()> {
    repeat(|number| node.rdm().map(drop).with_context(|| format!("open socket number {number}")))
}

/// Repeats an action until the input ends, and prints the times since the last line of the input for each line.
fn repeat(mut action: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let orders = process::input();
    println!("ready");
    let (mut times, mut number) = (Vec::new(), 0_u64);
    loop {
        match orders.try_recv() {
            Ok(_) => println!("{}", serde_json::to_string(&Window::of(&mut times))?),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        let begun = Instant::now();
        action(number)?;
        times.push(begun.elapsed().as_micros() as u64);
        number += 1;
        std::thread::sleep(PAUSE);
    }
}
