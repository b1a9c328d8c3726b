//! Threads by role: a name that tools show, cores, a scheduler.

use std::io;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// What a thread is for; its name is what `top -H` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Accepts, reads requests, dials upstreams and keeps time.
    Main,
    /// Receives the backbone's feeds and passes them on to mounts.
    Feed,
    /// Serves a share of the mounts; the number is in its name.
    Mounts(u16),
    /// Answers those who collect metrics.
    Metrics,
}

impl Role {
    /// At most 15 bytes, the system's limit.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Main => "main".into(),
            Self::Feed => "feed".into(),
            Self::Mounts(number) => format!("mounts-{number}"),
            Self::Metrics => "metrics".into(),
        }
    }
}

/// Who decides when a thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The system's ordinary one.
    #[default]
    Other,
    /// First in, first out, before all ordinary threads; needs CAP_SYS_NICE.
    Fifo,
    /// In turns, before all ordinary threads; needs CAP_SYS_NICE.
    RoundRobin,
}

/// Where and how a thread runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ThreadSettings {
    /// Cores by number; none: any.
    pub cpus: Vec<usize>,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// 1 to 99 for the schedulers that know priorities.
    pub priority: u8,
    /// Looks for work without a pause instead of sleeping: a core of its own for the least latency.
    pub busy_poll: bool,
}

impl ThreadSettings {
    /// Gives the calling thread these settings.
    ///
    /// # Errors
    /// A core that is not there, or no right to the scheduler; which is in the error.
    pub fn apply(&self) -> io::Result<()> {
        if !self.cpus.is_empty() {
            let mut set = CpuSet::new();
            for &cpu in self.cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
                set.set(cpu);
            }
            sched_setaffinity(None, &set)
                .map_err(|why| io::Error::other(format!("cannot run on cores {:?}: {why}", self.cpus)))?;
        }
        let policy = match self.scheduler {
            Scheduler::Other => return Ok(()),
            Scheduler::Fifo => RealtimeThreadSchedulePolicy::Fifo,
            Scheduler::RoundRobin => RealtimeThreadSchedulePolicy::RoundRobin,
        };
        let refused = |why: &dyn std::fmt::Debug| {
            io::Error::other(format!(
                "cannot use the scheduler {:?} with priority {}: {why:?} (give the program CAP_SYS_NICE, and a priority of 1 to 99)",
                self.scheduler, self.priority
            ))
        };
        let value = ThreadPriorityValue::try_from(self.priority.max(1)).map_err(|why| refused(&why))?;
        set_thread_priority_and_policy(
            thread_native_id(),
            ThreadPriority::Crossplatform(value),
            ThreadSchedulePolicy::Realtime(policy),
        )
        .map_err(|why| refused(&why))
    }
}

/// Starts a thread for a role. Settings that the system refuses are logged; the thread runs without them.
///
/// # Errors
/// The system has no room for another thread.
pub fn spawn<T: Send + 'static>(
    role: Role,
    settings: &ThreadSettings,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let settings = settings.clone();
    std::thread::Builder::new().name(role.name()).spawn(move || {
        if let Err(why) = settings.apply() {
            tracing::warn!(thread = role.name(), %why, "the thread runs without its settings");
        }
        body()
    })
}

#[cfg(test)]
mod tests {
    use super::{Role, Scheduler, ThreadSettings, spawn};

    #[test]
    fn a_thread_has_its_name_and_core() {
        let settings = ThreadSettings { cpus: vec![0], ..ThreadSettings::default() };
        let seen = spawn(Role::Mounts(3), &settings, || {
            (std::thread::current().name().map(str::to_owned), rustix::thread::sched_getcpu())
        });
        assert_eq!(seen.unwrap().join().unwrap(), (Some("mounts-3".into()), 0));
    }

    #[test]
    fn a_refusal_names_the_cores() {
        let settings = ThreadSettings { cpus: vec![1023], ..ThreadSettings::default() };
        assert!(settings.apply().unwrap_err().to_string().contains("1023"));
        assert_eq!(ThreadSettings::default().scheduler, Scheduler::Other);
    }
}
