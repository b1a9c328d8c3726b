//! Starts, kills and replaces the processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use utipc_bench_kit::counts;
use utipc_bench_kit::numbered::Random;
use utipc_bench_kit::process::Killed;

use crate::Part;
use crate::actor::{Life, Manner};
use crate::daemon::Watched;
use crate::tally::Tally;

/// Interval between two checks of all processes.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Interval between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// Time after its planned end after which a process that has not ended counts as stuck.
const OVERDUE: Duration = Duration::from_secs(300);

counts! {
    /// Numbers of started and ended processes.
    pub(crate) struct Deaths {
        started,
        killed,
        exited,
        orderly,
    }
}

/// One process.
struct Member {
    child: Killed,
    manner: Manner,
    due: Instant,
}

/// All processes.
pub(crate) struct Crew {
    socket: PathBuf,
    members: Vec<Option<Member>>,
    life: f64,
    keep: bool,
    random: Random,
    number: u64,
    pub(crate) deaths: Deaths,
    tally: Arc<Mutex<Tally>>,
    /// The pipe by which they report.
    line: std::io::PipeWriter,
    pub(crate) begun: Instant,
}

impl Crew {
    pub(crate) fn new(size: u32, life: f64, seed: u64, keep: bool, socket: &Path) -> Result<Self> {
        let (read, line) = std::io::pipe().context("make a pipe")?;
        let tally = Arc::new(Mutex::new(Tally::default()));
        let adds = Arc::clone(&tally);
        std::thread::spawn(move || {
            for text in BufReader::new(read).lines().map_while(std::result::Result::ok) {
                // The last report of a killed process may be incomplete.
                let Ok(tally) = serde_json::from_str::<Tally>(&text) else { continue };
                for violation in &tally.violations {
                    eprintln!("violation: {violation}");
                }
                adds.lock().unwrap_or_else(PoisonError::into_inner).add(&tally);
            }
        });
        Ok(Self {
            socket: socket.to_owned(),
            members: (0..size).map(|_| None).collect(),
            life,
            keep,
            random: Random(seed),
            number: 0,
            deaths: Deaths::default(),
            tally,
            line,
            begun: Instant::now(),
        })
    }

    /// What the processes have reported so far.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn violation(&self, what: String) {
        eprintln!("violation: {what}");
        self.tally().add(&Tally { violations: vec![what], ..Tally::default() });
    }

    fn start(&mut self, place: usize) -> Result<()> {
        self.number += 1;
        // Half of them die by kill -9. Lives last from an eighth of the average to nearly twice the average.
        let manner = match self.random.below(4) {
            0 => Manner::Orderly,
            1 => Manner::Exit,
            _ => Manner::Killed,
        };
        let part = 0.125 + self.random.below(1000) as f64 / 1000.0 * 1.75;
        let lasts = Duration::from_secs_f64(self.life * part);
        let (socket, places) = (self.socket.clone(), self.members.len() as u32);
        let life = Life { socket, place: place as u32, places, number: self.number, lasts, manner };
        let mut command = Part::Actor(life).command()?;
        command.stdin(Stdio::piped()).stdout(self.line.try_clone().context("copy a pipe")?);
        let child = Killed(command.spawn().context("start a process")?);
        self.deaths.started += 1;
        self.members[place] = Some(Member { child, manner, due: Instant::now() + lasts });
        Ok(())
    }

    /// Keeps all processes running for some time.
    pub(crate) fn work(&mut self, time: Duration, daemon: &mut Watched) -> Result<()> {
        let end = Instant::now() + time;
        let mut next = Instant::now() + PROGRESS;
        while Instant::now() < end {
            daemon.check_alive()?;
            // Start a few at a time: 200 programs that start together only wait for each other.
            let mut starts = 0;
            for place in 0..self.members.len() {
                if self.end_if_due(place)? && starts < 4 {
                    starts += 1;
                    self.start(place)?;
                }
            }
            if Instant::now() >= next {
                next += PROGRESS;
                self.progress(daemon)?;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    /// Ends the process at a place if its time is over. Returns whether the place is empty.
    fn end_if_due(&mut self, place: usize) -> Result<bool> {
        let Some(Member { child: Killed(child), manner, due }) = &mut self.members[place] else {
            return Ok(true);
        };
        let (late, id, own) = (Instant::now().saturating_duration_since(*due), child.id(), *manner);
        if let Some(status) = child.try_wait().context("check a process")? {
            self.members[place] = None;
            let expected = own == Manner::Killed && status.code().is_none() || status.success();
            if !expected || own == Manner::Killed && late.is_zero() {
                self.violation(format!("process {id} ({own:?}) ended by itself: {status}"));
            }
            match own {
                Manner::Orderly => self.deaths.orderly += 1,
                Manner::Exit => self.deaths.exited += 1,
                Manner::Killed => self.deaths.killed += 1,
            }
            return Ok(true);
        }
        if own == Manner::Killed && !late.is_zero() {
            child.kill().context("kill a process")?;
        } else if late > OVERDUE {
            if self.keep {
                eprintln!("process {id} does not end: attach a debugger now");
                std::thread::sleep(Duration::from_secs(3600));
                bail!("process {id} does not end, and no debugger was attached within an hour");
            }
            child.kill().context("kill a process")?;
            *manner = Manner::Killed;
            self.violation(format!("process {id} does not end {own:?}"));
        }
        Ok(false)
    }

    /// Waits until all processes have ended in their manner, without replacing any.
    pub(crate) fn end_all(&mut self) -> Result<()> {
        for member in self.members.iter_mut().flatten() {
            if member.manner != Manner::Orderly {
                member.due = Instant::now();
                member.manner = Manner::Killed;
            }
        }
        while self.members.iter().any(Option::is_some) {
            for place in 0..self.members.len() {
                self.end_if_due(place)?;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    fn progress(&self, daemon: &mut Watched) -> Result<()> {
        let counters = daemon.counters()?;
        let of_daemon = ["attached", "sockets", "lanes", "pairs"]
            .map(|name| format!("{} {name}", counters.get(name).cloned().unwrap_or_default()));
        let (Tally { sums, violations }, held) = (self.tally().clone(), daemon.held()?);
        eprintln!(
            "{:>5} s: {} processes started ({} killed), {} messages received, {} connections ({} broken), {} events, \
             {} violations; daemon: {}, {} descriptors, {} MiB",
            self.begun.elapsed().as_secs(),
            self.deaths.started,
            self.deaths.killed,
            sums.received,
            sums.connections,
            sums.broken,
            sums.events,
            violations.len(),
            of_daemon.join(", "),
            held.descriptors,
            held.resident_kib / 1024,
        );
        Ok(())
    }
}
