//! CPU time of processes and of the whole machine.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// CPU times read from `/proc` at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    processes: Vec<(String, u32, Duration)>,
    /// All processes, the named ones included.
    all: Vec<(u32, Duration)>,
    idle: Duration,
    cores: u32,
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

/// The kernel's unit of CPU time in `/proc`.
fn tick() -> Duration {
    Duration::from_nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// [`of_process`] in seconds; 0 if the process is gone.
#[must_use]
pub fn seconds_of(pid: u32) -> f64 {
    of_process(pid).map_or(0.0, |used| used.as_secs_f64())
}

/// Run time of all living threads of a process, as the scheduler counts it: in nanoseconds, not sampled.
///
/// # Errors
/// The process is gone.
pub fn of_process(pid: u32) -> Result<Duration> {
    let gone = || format!("process {pid} is gone");
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).with_context(gone)?;
    let mut sum = None;
    for thread in threads.flatten() {
        // A thread may have ended since the directory was read.
        let Ok(text) = std::fs::read_to_string(thread.path().join("schedstat")) else { continue };
        let ran = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        *sum.get_or_insert(0) += ran;
    }
    match sum {
        Some(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
        None => sampled(pid).with_context(gone),
    }
}

/// User and system time of a process in ticks, for kernels without `schedstat`.
fn sampled(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may contain anything; only numbers follow it.
    let fields: Vec<u64> = text
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0)).collect())
        .unwrap_or_default();
    // utime and stime are fields 14 and 15 of the line, counted from 1.
    let ticks = fields.get(10).copied().unwrap_or(0) + fields.get(11).copied().unwrap_or(0);
    Ok(tick() * u32::try_from(ticks).unwrap_or(u32::MAX))
}

impl Reading {
    /// Reads the CPU times of the named processes and of the machine.
    ///
    /// # Errors
    /// One of the processes is gone.
    pub fn take(processes: &[(String, u32)]) -> Result<Self> {
        let (idle, cores) = idle()?;
        let named = processes
            .iter()
            .map(|(name, pid)| Ok((name.clone(), *pid, of_process(*pid).with_context(|| name.clone())?)))
            .collect::<Result<_>>()?;
        let all = std::fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .filter_map(|pid| Some((pid, of_process(pid).ok()?)))
            .collect();
        Ok(Self { at: Instant::now(), processes: named, all, idle, cores })
    }

    /// CPU time used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Usage {
        let before = |pid: u32| {
            let found = earlier.all.iter().find(|(other, _)| *other == pid);
            found.map_or(Duration::ZERO, |(_, used)| *used)
        };
        let used: f64 =
            self.all.iter().map(|(pid, now)| now.saturating_sub(before(*pid)).as_secs_f64()).sum();
        let mut rows: Vec<(String, f64)> = self
            .processes
            .iter()
            .map(|(name, pid, now)| {
                let then = earlier
                    .processes
                    .iter()
                    .find(|(_, other, _)| other == pid)
                    .map_or(Duration::ZERO, |p| p.2);
                (name.clone(), now.saturating_sub(then).as_secs_f64())
            })
            .collect();
        let named: f64 = rows.iter().map(|row| row.1).sum();
        let elapsed = self.at.duration_since(earlier.at);
        let idle = self.idle.saturating_sub(earlier.idle);
        let total = (elapsed * self.cores).saturating_sub(idle).as_secs_f64();
        rows.push((OTHERS.into(), (used - named).max(0.0)));
        let counted: f64 = rows.iter().map(|row| row.1).sum();
        rows.push((RESIDUE.into(), total - counted));
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

/// Idle time of all cores since boot, and the number of cores. Busy time is the rest: the kernel's own count of it is
/// sampled a few hundred times a second, and load in step with the samples escapes it.
fn idle() -> Result<(Duration, u32)> {
    let text = std::fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let cores = text.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1);
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // The fields are user, nice, system, idle, iowait; waiting for disks counts as idle.
    let ticks: u64 = fields.skip(3).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok((Duration::from_secs_f64(ticks as f64 * tick().as_secs_f64()), cores as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_sum_to_the_time_of_the_machine() {
        let own = [("own".to_owned(), std::process::id())];
        let before = Reading::take(&own).unwrap();
        let end = of_process(std::process::id()).unwrap() + Duration::from_millis(100);
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
