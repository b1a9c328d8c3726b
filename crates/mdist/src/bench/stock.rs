//! The vendor's own performance programs beside ours, where they are at hand.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::chain;
use super::child::Process;
use super::cpu::{Reading, Table};
use super::place::Place;

/// The environment variable that names their folder.
pub(super) const FOLDER: &str = "UTIPC_RTSDK_BIN";
/// Files that they want to find where they are started.
const FILES: [&str; 4] = ["RDMFieldDictionary", "enumtype.def", "MsgData.xml", "350k.xml"];
/// Time that their client has for loading all items; part of what it calls steady.
const LOADING: Duration = Duration::from_secs(3);

/// What their client said, and what was measured meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) rate: u64,
    pub(super) output: f64,
    /// Microseconds from the time when an update was made (not when it was due): mean, deviation, shortest, longest.
    pub(super) latency: [f64; 4],
    pub(super) cpu: Table,
    pub(super) clean: bool,
}

/// Their folder, if it is named and has both programs.
pub(super) fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(FOLDER)?);
    ["ConsPerf", "ProvPerf"].iter().all(|name| folder.join(name).exists()).then_some(folder)
}

/// Runs the pair at a rate for `time`, `through` a server of ours with or without cache, or directly.
pub(super) fn run(
    folder: &std::path::Path,
    place: &Place,
    through: Option<bool>,
    items: usize,
    rate: u64,
    time: Duration,
) -> Result<Run> {
    let work = place.settings("stock", "")?.with_file_name("stock");
    std::fs::create_dir_all(&work).context("make a folder for the vendor's programs")?;
    for name in FILES {
        let link = work.join(name);
        if !link.exists() && folder.join(name).exists() {
            std::os::unix::fs::symlink(folder.join(name), link).context("link the vendor's files")?;
        }
    }
    let port = TcpListener::bind("127.0.0.1:0").context("find a free port")?.local_addr()?.port();
    let mut command = Command::new(folder.join("ProvPerf"));
    command.current_dir(&work).args(["-p", &port.to_string(), "-serviceName", "DIRECT_FEED"]);
    command.args(["-updateRate", &rate.to_string(), "-latencyUpdateRate", "100", "-runTime", "3600"]);
    let publisher = Process::start("ProvPerf", command)?;
    let mut processes = vec![("ProvPerf".to_owned(), publisher.id())];
    wait_for(port)?;

    let mut server = None;
    let mut port = port.to_string();
    if let Some(cache) = through {
        let upstream = format!("kind = \"provider\"\nhosts = [\"127.0.0.1:{port}\"]");
        let (process, address) = chain::serve(place, "p2ps", cache, &upstream, None)?;
        processes.push(("p2ps".to_owned(), process.id()));
        port = address.rsplit_once(':').context("the server's address has no port")?.1.to_owned();
        server = Some(process);
        // Until it has dialled: their client does not wait for a service that comes later.
        std::thread::sleep(Duration::from_secs(1));
    }
    let mut command = Command::new(folder.join("ConsPerf"));
    command.current_dir(&work).args(["-h", "127.0.0.1", "-p", &port, "-serviceName", "DIRECT_FEED"]);
    command.args(["-itemCount", &items.to_string()]);
    command.args(["-steadyStateTime", &(LOADING + time).as_secs().to_string()]);
    let mut client = Process::start("ConsPerf", command)?;
    processes.push(("ConsPerf".to_owned(), client.id()));
    std::thread::sleep(LOADING);
    let before = Reading::take(&processes)?;
    std::thread::sleep(time.saturating_sub(Duration::from_millis(500)));
    let cpu = Reading::take(&processes)?.since(&before);

    let text = client.rest(time + Duration::from_secs(30))?;
    drop((client, server, publisher));
    let steady = text.split("Steady State Statistics").nth(1).unwrap_or_default();
    let steady = steady.split("Overall Statistics").next().unwrap_or_default();
    let loaded =
        figure(text.split("Test Statistics").nth(1).unwrap_or_default(), "Refreshes received").unwrap_or(0.0);
    let output = figure(steady, "Avg update rate").unwrap_or(0.0);
    ensure!(loaded > 0.0, "ConsPerf says: {}", text.lines().last().unwrap_or("nothing"));
    let latency = ["Latency avg", "Latency std dev", "Latency min", "Latency max"]
        .map(|name| figure(steady, &format!("{name} (usec)")).unwrap_or(f64::NAN));
    let clean = loaded as usize == items && output >= 0.99 * rate as f64;
    Ok(Run { rate, output, latency, cpu, clean })
}

fn figure(text: &str, name: &str) -> Option<f64> {
    let (_, rest) = text.split_once(name)?;
    rest.trim_start_matches([':', ' ']).split_whitespace().next()?.parse().ok()
}

fn wait_for(port: u16) -> Result<()> {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    // What a listening socket looks like in the kernel's table: looking does not connect.
    let wanted = format!(":{port:04X} ");
    loop {
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let listens = |line: &str| line.contains(&wanted) && line.contains(" 0A ");
        if tables.iter().any(|table| table.lines().any(listens)) {
            return Ok(());
        }
        ensure!(std::time::Instant::now() < end, "ProvPerf does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The highest clean rate, searched from `guess`, and measured there for `time`.
pub(super) fn highest(
    folder: &std::path::Path,
    place: &Place,
    through: Option<bool>,
    items: usize,
    guess: u64,
    time: Duration,
) -> Result<Run> {
    let short = Duration::from_secs(4);
    let (mut clean, mut unclean) = (0, u64::MAX);
    let mut rate = guess;
    for _ in 0..7 {
        let seen = run(folder, place, through, items, rate, short)?;
        if seen.clean {
            clean = rate
        } else {
            unclean = rate
        }
        if clean > 0 && unclean < u64::MAX && unclean as f64 <= clean as f64 * 1.08 {
            break;
        }
        rate = match (clean, unclean) {
            (0, unclean) => unclean * 2 / 3,
            (clean, u64::MAX) => clean * 4 / 3,
            (clean, unclean) => u64::midpoint(clean, unclean),
        };
    }
    run(folder, place, through, items, clean.max(1_000), time)
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_are_found_in_what_their_client_says() {
        let text = "Steady State Statistics:\n  Latency avg (usec): 64.100\n  Avg update rate: 99624\n";
        assert_eq!(super::figure(text, "Latency avg (usec)"), Some(64.1));
        assert_eq!(super::figure(text, "Avg update rate"), Some(99_624.0));
        assert_eq!(super::figure(text, "Latency max (usec)"), None);
    }
}
