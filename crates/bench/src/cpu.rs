//! CPU time of processes and of the whole machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use procfs::process::{Process, all_processes};
use procfs::{CurrentSI as _, KernelStats};
use serde_json::{Value, json};

/// CPU times read from `/proc` at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    components: Vec<(String, u32)>,
    /// Seconds that each process has used.
    used: BTreeMap<u32, f64>,
    /// Seconds in which cores were idle, since boot.
    idle: f64,
    cores: usize,
}

/// CPU time between two readings.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Time between the readings.
    pub elapsed: Duration,
    /// (name, seconds) of the components, of all other processes, and of no process: interrupts, time that the
    /// hypervisor took, and the difference between the kernel's two ways of counting.
    pub rows: Vec<(String, f64)>,
    /// Seconds in which cores were busy; the sum of the rows.
    pub total: f64,
}

/// Name of the row of all processes that are not components.
pub const OTHERS: &str = "other processes";
/// Name of the row of time that belongs to no process.
pub const RESIDUE: &str = "no process";

/// [`of_process`]; 0 if the process is gone.
#[must_use]
pub fn seconds_of(pid: u32) -> f64 {
    of_process(pid).unwrap_or(0.0)
}

/// Run time of all living threads of a process, seconds, as the scheduler counts it: in nanoseconds, not sampled.
///
/// # Errors
/// The process is gone.
pub fn of_process(pid: u32) -> Result<f64> {
    let process = i32::try_from(pid).map(Process::new);
    process.ok().and_then(Result::ok).and_then(|process| run_time(&process)).with_context(|| gone(pid))
}

fn gone(pid: u32) -> String {
    format!("process {pid} is gone")
}

fn run_time(process: &Process) -> Option<f64> {
    // A thread may have ended since the directory was read.
    let threads = process.tasks().ok()?.flatten();
    let ran: Vec<u64> =
        threads.filter_map(|thread| Some(thread.schedstat().ok()?.sum_exec_runtime)).collect();
    if ran.is_empty() {
        // A kernel without `schedstat`.
        let stat = process.stat().ok()?;
        return Some(seconds(stat.utime + stat.stime));
    }
    Some(ran.iter().sum::<u64>() as f64 / 1e9)
}

/// Seconds of a number of ticks, the kernel's unit of CPU time.
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / procfs::ticks_per_second() as f64
}

impl Reading {
    /// Reads the CPU times of the components, (name, process id), and of the machine.
    ///
    /// # Errors
    /// One of the processes is gone.
    pub fn take(components: &[(String, u32)]) -> Result<Self> {
        let kernel = KernelStats::current().context("read /proc/stat")?;
        // Busy time is the rest: the kernel's own count of it is sampled a few hundred times a second, and load in step
        // with the samples escapes it. Waiting for disks counts as idle.
        let idle = seconds(kernel.total.idle + kernel.total.iowait.unwrap_or(0));
        let used: BTreeMap<u32, f64> = all_processes()
            .context("read /proc")?
            .flatten()
            .filter_map(|process| Some((u32::try_from(process.pid()).ok()?, run_time(&process)?)))
            .collect();
        for (name, pid) in components {
            ensure!(used.contains_key(pid), "{name}: {}", gone(*pid));
        }
        let (components, cores) = (components.to_vec(), kernel.cpu_time.len());
        Ok(Self { at: Instant::now(), components, used, idle, cores })
    }

    /// CPU time used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Usage {
        let used = |pid: &u32| {
            let [now, then] = [self, earlier].map(|reading| reading.used.get(pid).copied().unwrap_or(0.0));
            (now - then).max(0.0)
        };
        let elapsed = self.at.duration_since(earlier.at);
        let total = (elapsed.as_secs_f64() * self.cores as f64 - (self.idle - earlier.idle)).max(0.0);
        let mut rows: Vec<_> = self.components.iter().map(|(name, pid)| (name.clone(), used(pid))).collect();
        let counted: f64 = self.used.keys().map(used).sum();
        let named: f64 = rows.iter().map(|row| row.1).sum();
        let others = (counted - named).max(0.0);
        rows.extend([(OTHERS.into(), others), (RESIDUE.into(), total - named - others)]);
        Usage { elapsed, rows, total }
    }
}

impl Usage {
    /// The usage as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({ "elapsed_s": self.elapsed.as_secs_f64(), "total_s": self.total, "s": self.rows })
    }

    /// The rows of the components.
    #[must_use]
    pub fn components(&self) -> &[(String, f64)] {
        self.rows.get(..self.rows.len().saturating_sub(2)).unwrap_or_default()
    }

    /// Seconds of CPU time that a component used.
    #[must_use]
    pub fn of(&self, name: &str) -> f64 {
        self.rows.iter().filter(|row| row.0 == name).map(|row| row.1).sum()
    }

    /// The component that used most CPU time, and its share of a core.
    #[must_use]
    pub fn busiest(&self) -> (String, f64) {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        self.components()
            .iter()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map_or_else(|| ("none".into(), 0.0), |row| (row.0.clone(), row.1 / seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_sum_to_the_time_of_the_machine() {
        let own = [("own".to_owned(), std::process::id())];
        let before = Reading::take(&own).unwrap();
        let end = of_process(std::process::id()).unwrap() + 0.1;
        let mut spin = 0u64;
        while of_process(std::process::id()).unwrap() < end {
            spin = std::hint::black_box(spin.wrapping_mul(3) + 1);
        }
        let usage = Reading::take(&own).unwrap().since(&before);
        assert!(usage.of("own") > 0.05, "{usage:?}");
        assert!((usage.rows.iter().map(|row| row.1).sum::<f64>() - usage.total).abs() < 1e-6);
        assert_eq!(usage.busiest().0, "own");
        assert!(of_process(u32::MAX).is_err());
    }
}
