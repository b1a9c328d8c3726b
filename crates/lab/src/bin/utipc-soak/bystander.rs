//! Honest processes of another user: a server, and clients that exchange messages with it all the time and measure
//! how long that takes.

use std::io::BufRead;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use utipc::{Connection, Engine, Node, Scope, ServiceAddress, SocketKind};

/// Service of the connections, and of datagrams that the server reads and discards: hostile processes find both.
pub(crate) const ECHO: ServiceAddress = ServiceAddress::new(9501, 1);
pub(crate) const TARGET: ServiceAddress = ServiceAddress::new(9502, 1);

/// Longest wait for a message or a connection.
const LIMIT: Duration = Duration::from_secs(60);

/// Pause between two exchanges, so that the measurement leaves the processors to the rest.
const PAUSE: Duration = Duration::from_millis(1);

/// Bytes of a message, which begins with its number.
const SIZE: usize = 64;

/// The role of a bystander.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Answers.
    Server,
    /// Asks, and prints a [`Window`] for each line of its input.
    Client,
    /// Opens and closes sockets, each time by requests to the daemon, and prints the same.
    Caller,
}

/// An honest process; the run itself starts them.
#[derive(Debug, Args)]
pub(crate) struct Bystander {
    /// Its daemon's socket
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
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
        let window = Self {
            trips: times.len() as u64,
            p50_us: at(50),
            p99_us: at(99),
            longest_us: times.last().copied().unwrap_or(0),
        };
        times.clear();
        window
    }
}

/// Serves or asks until its input ends. Fails if a message is lost, late or wrong.
pub(crate) fn live(bystander: &Bystander) -> Result<()> {
    let node = Node::builder().engine(Engine::Daemon).daemon_at(&bystander.socket).start();
    let node = node.context("attach to the daemon")?;
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
    let (orders, ordered) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(std::result::Result::ok).for_each(|_| {
            let _ = orders.send(());
        });
    });
    println!("ready");
    let (mut times, mut number) = (Vec::new(), 0_u64);
    loop {
        match ordered.try_recv() {
            Ok(()) => println!("{}", serde_json::to_string(&Window::of(&mut times))?),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
        }
        let begun = Instant::now();
        action(number)?;
        times.push(begun.elapsed().as_micros() as u64);
        number += 1;
        std::thread::sleep(PAUSE);
    }
}
