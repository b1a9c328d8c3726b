//! `utipc capture`: frames of bearers and messages of lanes, for Wireshark or as lines.
//!
//! The daemon copies them (decision 28): no privileges beyond `policy.manage` are needed.

mod filter;
mod header;
mod pcapng;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use signal_hook::consts::{SIGINT, SIGTERM};
use utipc_manage::capture::{CaptureRequest, MAX_RECORD, Origin, Record};

use super::node::{Target, entries};
use super::snapshot::Snapshot;
use filter::Filter;
use header::Header;

/// Longest wait before the end conditions are checked again.
const TICK: Duration = Duration::from_millis(100);

/// Options of `utipc capture`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  utipc capture -w - | wireshark -k -i -\n  utipc capture --lanes --service 1000 --seconds 10 -w out.pcapng"
)]
pub(crate) struct Options {
    /// File to write, in the format pcapng; `-` for standard output. Without it, a line for each frame
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Capture messages between programs of this host too
    #[arg(short, long)]
    lanes: bool,
    /// Capture no frames of bearers
    #[arg(long, requires = "lanes", conflicts_with_all = ["bearer", "link"])]
    no_bearers: bool,
    /// Only frames of this bearer, as in udp:U
    #[arg(short, long, value_name = "BEARER")]
    bearer: Option<String>,
    /// Only frames of this link
    #[arg(long, value_name = "LINK")]
    link: Option<String>,
    /// Only messages from or to the socket with this port; may be given more than once
    #[arg(long, value_name = "PORT")]
    port: Vec<u32>,
    /// Only messages to this service type; may be given more than once
    #[arg(long, value_name = "TYPE")]
    service: Vec<u32>,
    /// End after this many frames
    #[arg(short, long, value_name = "FRAMES")]
    count: Option<u64>,
    /// End after this time
    #[arg(short, long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Maximum number of bytes of each frame
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    snap: Option<u32>,
}

/// Counts of what has been captured.
#[derive(Debug, Default)]
struct Tally {
    frames: u64,
    dropped: u64,
    missed: u64,
}

/// Captures until an end condition or a signal.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let node = Target { engine: Some("daemon".to_owned()) }.open()?;
    let mut filter =
        Filter { ports: options.port.clone(), services: options.service.clone(), ..Filter::default() };
    if let Some(link) = &options.link {
        filter.set_link(link, &Snapshot::take(&node, false)?)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle signals")?;
    }
    let mut out = Output::open(options)?;
    let request = CaptureRequest {
        bearer: options.bearer.clone(),
        no_bearers: options.no_bearers,
        lanes: options.lanes,
        snap: options.snap,
    };
    let (answer, socket) = node.0.capture(&request)?;
    entries(&answer)?;
    let Some(socket) = socket else {
        bail!("the daemon does not capture (use a daemon of this release)");
    };
    eprintln!("utipc: capturing; end with Ctrl-C");
    let mut tally = Tally::default();
    match pump(options, &filter, &socket, &mut out, &stop, &mut tally) {
        Err(error) if is_closed(&error) => {}
        result => result?,
    }
    eprintln!("utipc: {}", summary(&tally));
    Ok(ExitCode::SUCCESS)
}

/// The reader of the output has ended, as in `utipc capture -w - | head`.
fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn summary(tally: &Tally) -> String {
    let mut text = format!("{} frames captured", tally.frames);
    if tally.dropped > 0 {
        text.push_str(&format!(", {} dropped because the output is too slow", tally.dropped));
    }
    if tally.missed > 0 {
        text.push_str(&format!(", {} bytes of lanes overwritten before they were copied", tally.missed));
    }
    text
}

/// Where records go.
enum Output {
    File(pcapng::Writer<Box<dyn Write>>),
    Lines(BufWriter<io::Stdout>),
}

impl Output {
    fn open(options: &Options) -> Result<Self> {
        let Some(path) = &options.write else { return Ok(Self::Lines(BufWriter::new(io::stdout()))) };
        let to: Box<dyn Write> = if path.as_os_str() == "-" {
            Box::new(BufWriter::new(io::stdout()))
        } else {
            let file = File::create(path)
                .with_context(|| format!("cannot write {} (choose a writable place)", path.display()))?;
            Box::new(BufWriter::new(file))
        };
        let mut writer = pcapng::Writer::new(to)?;
        writer.flush()?;
        Ok(Self::File(writer))
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        match self {
            // A gap is not a packet.
            Self::File(_) if record.missed > 0 => Ok(()),
            Self::File(writer) => writer.record(record),
            Self::Lines(out) => out.write_all(line(record).as_bytes()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(writer) => writer.flush(),
            Self::Lines(out) => out.flush(),
        }
    }
}

/// Hands records on until the end.
fn pump(
    options: &Options,
    filter: &Filter,
    socket: &OwnedFd,
    out: &mut Output,
    stop: &AtomicBool,
    tally: &mut Tally,
) -> Result<()> {
    let end = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut buffer = vec![0; MAX_RECORD];
    while options.count.is_none_or(|count| tally.frames < count) {
        let len = match recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                out.flush()?;
                bail!("the daemon has ended the capture (it stopped, or this user may no longer manage it)");
            }
            Ok((len, _)) => len,
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => {
                out.flush()?;
                let now = Instant::now();
                if stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end) {
                    break;
                }
                let tick = end.map_or(TICK, |end| TICK.min(end - now));
                wait(socket, tick)?;
                continue;
            }
            Err(error) => return Err(error).context("cannot read the capture"),
        };
        let packet = buffer.get(..len).unwrap_or_default();
        let record = Record::from_bytes(packet)
            .ok()
            .context("a record of the capture is malformed (use the same release for both)")?;
        tally.dropped += record.dropped;
        tally.missed += record.missed;
        if filter.takes(&record) {
            out.record(&record)?;
            tally.frames += u64::from(record.missed == 0);
        }
        if stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    out.flush()?;
    Ok(())
}

fn wait(socket: &OwnedFd, tick: Duration) -> Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    let time = Timespec::try_from(tick).unwrap_or_default();
    match poll(&mut fds, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for the capture"),
    }
}

/// A record as a line.
fn line(record: &Record) -> String {
    let (seconds, nanos) = (record.time / 1_000_000_000, record.time % 1_000_000_000);
    let time = format!(
        "{:02}:{:02}:{:02}.{:06}",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        nanos / 1000
    );
    let place = match &record.origin {
        Origin::Bearer { name, sent, path } => {
            let [from, to] = path.map(|place| filter::text(&place));
            format!("{name} {} {from} > {to}", if *sent { "out" } else { "in" })
        }
        Origin::Lane([from, to]) => format!("lane {from} > {to}"),
    };
    if record.missed > 0 {
        return format!("{time} {place} {} bytes were overwritten before they were copied\n", record.missed);
    }
    let what = match Header::read(&record.frame) {
        None => "not TIPC".to_owned(),
        Some(header) => {
            let ports = header.ports.map(|[from, to]| format!(", port {from} > {to}")).unwrap_or_default();
            let service = header.service.map(|service| format!(", service {service}")).unwrap_or_default();
            format!("{}{ports}{service}", header.name())
        }
    };
    format!("{time} {place} {} bytes: {what}\n", record.len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_sender_receiver_and_service() {
        let frame = header::tests::to_service(7, 1000, b"hello");
        let mut record = Record {
            time: 1_795_324_623_250_000_000,
            origin: Origin::Lane([7, 9]),
            len: frame.len() as u32,
            frame,
            dropped: 0,
            missed: 0,
        };
        assert_eq!(
            line(&record),
            "05:17:03.250000 lane 7 > 9 45 bytes: to service, port 7 > 0, service 1000\n"
        );
        record.missed = 640;
        assert!(line(&record).ends_with("lane 7 > 9 640 bytes were overwritten before they were copied\n"));
        let tally = Tally { frames: 3, dropped: 2, missed: 1 };
        assert!(summary(&tally).starts_with("3 frames captured, 2 dropped"));
    }
}
