//! One member of an ordered group, compared with Corosync by `cargo xtask cpg --compare`: the counterpart of
//! `bench/corosync/member.c` for the Rust API, with the same commands and lines.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use utipc::bearers::UdpConfig;
use utipc::ordered::{Incoming, MAX_MESSAGE, Order, Ordered, OrderedError, Partition};
use utipc::{Engine, Error, Node};
use utipc_bench_kit::process;

/// Kinds of messages, as in `member.c`.
mod kind {
    pub(super) const WARM_UP: u32 = 0;
    pub(super) const FIRST: u32 = 1;
    pub(super) const COUNTED: u32 = 2;
    pub(super) const LAST: u32 = 3;
    pub(super) const ONE: u32 = 4;
    pub(super) const LOAD: u32 = 5;
    pub(super) const MARK: u32 = 6;
}

/// Bytes of a header: kind, process, number.
const HEADER: usize = 16;
/// Wait for the group between two checks for commands.
const COMMAND_INTERVAL: Duration = Duration::from_millis(5);

/// Arguments of the hidden command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Type of the group.
    service: u32,
    /// Number of members in the view in which the measurement begins.
    members: usize,
    /// Deliver when all members have a message.
    #[arg(long)]
    safe: bool,
    /// Run a node in this process instead of using the daemon: its own address and that of the other node.
    #[arg(long, num_args = 2, value_names = ["LOCAL", "REMOTE"])]
    embedded: Vec<IpAddr>,
}

/// Port of embedded nodes: not that of daemons, so that both can run.
const PORT: u16 = 6119;

enum Command {
    Rate { size: usize, length: Duration },
    Latency { size: usize, messages: usize },
    Load { size: usize, interval: Duration },
    Stop,
    Mark,
}

impl Command {
    fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().context("read a number");
        let size = |word: &str| {
            let size = number(word)?;
            ensure!((HEADER..=MAX_MESSAGE).contains(&size), "a message has {HEADER} to {MAX_MESSAGE} bytes");
            Ok(size)
        };
        Ok(match words.as_slice() {
            ["rate", bytes, length] => {
                Self::Rate { size: size(bytes)?, length: Duration::from_millis(number(length)? as u64) }
            }
            ["latency", bytes, messages] => {
                Self::Latency { size: size(bytes)?, messages: number(messages)?.max(1) }
            }
            ["load", bytes, interval] => {
                Self::Load { size: size(bytes)?, interval: Duration::from_micros(number(interval)? as u64) }
            }
            ["stop"] => Self::Stop,
            ["mark"] => Self::Mark,
            _ => bail!("an unknown command: {line}"),
        })
    }
}

/// Sends numbered messages.
struct Sender {
    member: Arc<Ordered>,
    number: u64,
    payload: Vec<u8>,
}

impl Sender {
    fn send(&mut self, kind: u32, size: usize) -> Result<u64> {
        let number = self.number;
        self.number += 1;
        self.payload.resize(size.max(HEADER), 0);
        let header =
            [&kind.to_ne_bytes()[..], &std::process::id().to_ne_bytes(), &number.to_ne_bytes()].concat();
        self.payload[..HEADER].copy_from_slice(&header);
        self.member.multicast(&self.payload)?;
        Ok(number)
    }

    fn rate(&mut self, size: usize, length: Duration) -> Result<()> {
        let begin = Instant::now();
        let mut next = kind::WARM_UP;
        loop {
            let elapsed = begin.elapsed();
            if elapsed >= length {
                break;
            }
            next = match next {
                kind::WARM_UP if elapsed >= length / 5 => kind::FIRST,
                kind::WARM_UP => kind::WARM_UP,
                _ => kind::COUNTED,
            };
            self.send(next, size)?;
        }
        self.send(kind::LAST, size)?;
        Ok(())
    }

    fn load(&mut self, size: usize, interval: Duration, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.send(kind::LOAD, size)?;
            std::thread::sleep(interval);
        }
        Ok(())
    }
}

/// Counts of what was received since the view with all members.
#[derive(Default)]
struct History {
    members: usize,
    ready: bool,
    messages: u64,
    hash: u64,
    counted: u64,
    first_at: Option<Instant>,
    /// The last own message that was sent alone.
    delivered: u64,
}

impl History {
    /// FNV-1a over words.
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3);
    }

    fn take(&mut self, incoming: Incoming) -> Result<()> {
        match incoming {
            Incoming::Message(message) => self.message(&message.data),
            Incoming::View(view) => self.view(view.members.len()),
            Incoming::Excluded => print("excluded"),
            _ => Ok(()),
        }
    }

    fn message(&mut self, data: &[u8]) -> Result<()> {
        let (kind, pid, number) = parse(data).context("a short message")?;
        self.messages += 1;
        self.mix(u64::from(pid));
        self.mix(number);
        match kind {
            kind::FIRST => (self.first_at, self.counted) = (Some(Instant::now()), 0),
            kind::COUNTED => self.counted += 1,
            kind::LAST => {
                let took = self.first_at.map_or(Duration::ZERO, |at| at.elapsed());
                print(&format!("rate {} {}", self.counted + 1, took.as_nanos()))?;
            }
            kind::ONE if pid == std::process::id() => self.delivered = number,
            kind::MARK => print(&format!("mark {} {:016x}", self.messages, self.hash))?,
            _ => {}
        }
        Ok(())
    }

    fn view(&mut self, members: usize) -> Result<()> {
        if self.ready {
            self.mix(members as u64);
            let at = SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock")?.as_nanos();
            print(&format!("view {members} {at} {} {:016x}", self.messages, self.hash))?;
        } else if members == self.members {
            self.ready = true;
            self.messages = 0;
            self.hash = 0xcbf2_9ce4_8422_2325;
            print("ready")?;
        }
        Ok(())
    }
}

fn parse(data: &[u8]) -> Option<(u32, u32, u64)> {
    let (kind, rest) = data.split_first_chunk()?;
    let (pid, rest) = rest.split_first_chunk()?;
    let number = rest.first_chunk()?;
    Some((u32::from_ne_bytes(*kind), u32::from_ne_bytes(*pid), u64::from_ne_bytes(*number)))
}

fn print(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).context("print a line")
}

/// Joins, and obeys the commands of the standard input until that ends.
pub(crate) fn run(options: &Options) -> Result<()> {
    let node = match options.embedded.as_slice() {
        [local, remote] => {
            let mut udp = UdpConfig::replicast("UDP", *local, vec![SocketAddr::new(*remote, PORT)]);
            udp.local.set_port(PORT);
            Node::builder().engine(Engine::Embedded).udp_with(udp).start()?
        }
        _ => Node::start()?,
    };
    let order = if options.safe { Order::Safe } else { Order::Agreed };
    let builder = Ordered::builder(options.service).instance(std::process::id()).order(order);
    let member = Arc::new(builder.partition(Partition::All).founder().join(&node)?);
    let mut history = History { members: options.members, ..History::default() };
    let commands = process::input();
    let stop = Arc::new(AtomicBool::new(false));
    let mut sender = Some(Sender { member: Arc::clone(&member), number: 1, payload: Vec::new() });
    let mut sending: Option<std::thread::JoinHandle<Result<Sender>>> = None;
    loop {
        let command = match commands.try_recv() {
            Ok(line) => Command::parse(&line)?,
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {
                match member.receive_within(COMMAND_INTERVAL) {
                    Ok(incoming) => history.take(incoming)?,
                    Err(Error::Ordered { why: OrderedError::Waiting { .. }, .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
        };
        if let Command::Stop = command {
            stop.store(true, Ordering::Relaxed);
            continue;
        }
        let mut own = match sending.take() {
            Some(thread) => thread.join().ok().context("the thread that sends panicked")??,
            None => sender.take().context("the sender is in use")?,
        };
        match command {
            Command::Latency { size, messages } => {
                latency(&mut own, &mut history, size, messages)?;
                sender = Some(own);
            }
            Command::Mark => {
                own.send(kind::MARK, HEADER)?;
                sender = Some(own);
            }
            Command::Stop => {}
            Command::Rate { size, length } => {
                sending = Some(std::thread::spawn(move || own.rate(size, length).map(|()| own)));
            }
            Command::Load { size, interval } => {
                stop.store(false, Ordering::Relaxed);
                let stop = Arc::clone(&stop);
                sending = Some(std::thread::spawn(move || own.load(size, interval, &stop).map(|()| own)));
            }
        }
    }
}

/// One message at a time, from the call until its own delivery.
fn latency(sender: &mut Sender, history: &mut History, size: usize, messages: usize) -> Result<()> {
    let warm_up = messages / 10;
    let mut took = Vec::with_capacity(messages + warm_up);
    for _ in 0..messages + warm_up {
        let begin = Instant::now();
        let number = sender.send(kind::ONE, size)?;
        while history.delivered != number {
            history.take(sender.member.receive()?)?;
        }
        took.push(begin.elapsed().as_nanos());
    }
    let measured = took.get_mut(warm_up..).context("no messages")?;
    measured.sort_unstable();
    let at = |part: usize| measured.get(messages * part / 100).copied().unwrap_or_default();
    print(&format!("latency {} {}", at(50), at(99)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_differ_if_the_order_differs() {
        let header = |pid: u32, number: u64| {
            [&kind::LOAD.to_ne_bytes()[..], &pid.to_ne_bytes(), &number.to_ne_bytes()].concat()
        };
        let history = |all: &[(u32, u64)]| {
            let mut history = History::default();
            for (pid, number) in all {
                history.message(&header(*pid, *number)).expect("a message");
            }
            (history.messages, history.hash)
        };
        assert_eq!(history(&[(1, 1), (2, 1)]), history(&[(1, 1), (2, 1)]));
        assert_ne!(history(&[(1, 1), (2, 1)]), history(&[(2, 1), (1, 1)]));
        assert!(History::default().message(&[0; HEADER - 1]).is_err());
    }

    #[test]
    fn sizes_of_commands_are_checked() {
        assert!(Command::parse("rate 64 100").is_ok());
        for line in ["rate 15 100", "rate 60000 100", "rate 64", "go"] {
            assert!(Command::parse(line).is_err(), "{line}");
        }
    }
}
