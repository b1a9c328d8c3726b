//! Starts, kills and replaces the processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::actor::Manner;
use crate::daemon::Watched;
use crate::message::Random;
use crate::tally::Tally;

/// Interval between two checks of all processes.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Interval between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// Time after its planned end after which a process that has not ended counts as stuck.
const OVERDUE: Duration = Duration::from_secs(300);

/// Numbers of started and ended processes.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Deaths {
    pub(crate) started: u64,
    pub(crate) killed: u64,
    pub(crate) exited: u64,
    pub(crate) orderly: u64,
}

/// One process.
struct Member {
    child: Child,
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
    deaths: Deaths,
    sums: Arc<Mutex<Tally>>,
    /// The pipe by which they report.
    line: std::io::PipeWriter,
    begun: Instant,
}

/// The result of a run.
pub(crate) struct Work {
    pub(crate) deaths: Deaths,
    pub(crate) sums: Tally,
    pub(crate) lasted: Duration,
    pub(crate) processes: usize,
}

impl Crew {
    pub(crate) fn new(size: u32, life: f64, seed: u64, keep: bool, socket: &Path) -> Result<Self> {
        let (read, line) = std::io::pipe().context("make a pipe")?;
        let sums = Arc::new(Mutex::new(Tally::default()));
        let adds = Arc::clone(&sums);
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
            sums,
            line,
            begun: Instant::now(),
        })
    }

    fn sums(&self) -> MutexGuard<'_, Tally> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn violation(&self, what: String) {
        eprintln!("violation: {what}");
        self.sums().add(&Tally { violations: vec![what], ..Tally::default() });
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
        let name = manner.to_possible_value().context("a manner without a name")?;
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.arg("actor").arg("--socket").arg(&self.socket).args(["--manner", name.get_name()]);
        for (key, value) in [
            ("--place", place as u64),
            ("--places", self.members.len() as u64),
            ("--number", self.number),
            ("--lasts", lasts.as_millis() as u64),
        ] {
            command.arg(key).arg(value.to_string());
        }
        command.stdin(Stdio::piped()).stdout(self.line.try_clone().context("copy a pipe")?);
        let child = command.spawn().context("start a process")?;
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
        let Some(member) = &mut self.members[place] else { return Ok(true) };
        let late = Instant::now().saturating_duration_since(member.due);
        if let Some(status) = member.child.try_wait().context("check a process")? {
            let (manner, id) = (member.manner, member.child.id());
            self.members[place] = None;
            let expected = manner == Manner::Killed && status.code().is_none() || status.success();
            if !expected || manner == Manner::Killed && late.is_zero() {
                self.violation(format!("process {id} ({manner:?}) ended by itself: {status}"));
            }
            match manner {
                Manner::Orderly => self.deaths.orderly += 1,
                Manner::Exit => self.deaths.exited += 1,
                Manner::Killed => self.deaths.killed += 1,
            }
            return Ok(true);
        }
        if member.manner == Manner::Killed && !late.is_zero() {
            member.child.kill().context("kill a process")?;
        } else if late > OVERDUE {
            let (manner, id) = (member.manner, member.child.id());
            if self.keep {
                bail!(
                    "process {id} does not end; it waits for a debugger until this program is interrupted: {}",
                    wait(id)
                );
            }
            member.child.kill().context("kill a process")?;
            member.manner = Manner::Killed;
            self.violation(format!("process {id} does not end {manner:?}"));
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
        let count = |name: &str| counters.get(name).cloned().unwrap_or_default();
        let (sums, held) = (self.sums().clone(), daemon.held()?);
        eprintln!(
            "{:>5} s: {} processes started ({} killed), {} messages received, {} connections ({} broken), {} events, \
             {} violations; daemon: {} attached, {} sockets, {} lanes, {} pairs, {} descriptors, {} MiB",
            self.begun.elapsed().as_secs(),
            self.deaths.started,
            self.deaths.killed,
            sums.received,
            sums.connections,
            sums.broken,
            sums.events,
            sums.violations.len(),
            count("attached"),
            count("sockets"),
            count("lanes"),
            count("pairs"),
            held.descriptors,
            held.resident_kib / 1024,
        );
        Ok(())
    }

    /// The result.
    pub(crate) fn end(&mut self) -> Work {
        Work {
            deaths: self.deaths.clone(),
            sums: self.sums().clone(),
            lasted: self.begun.elapsed(),
            processes: self.members.len(),
        }
    }
}

/// Waits until the run is interrupted.
fn wait(id: u32) -> String {
    eprintln!("process {id} does not end: attach a debugger now");
    std::thread::sleep(Duration::from_secs(3600));
    "no debugger was attached within an hour".to_owned()
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in self.members.iter_mut().flatten() {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}
