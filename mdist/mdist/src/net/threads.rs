//! Threads by role, each with a name, cores and a scheduler.

use std::io;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// The role of a thread; `top -H` shows its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Accepts connections, reads requests, connects to upstreams and runs timers.
    Main,
    /// Receives the backbone's feeds and passes them to the mounts.
    Feed,
    /// Serves a share of the mounts; the number is in its name.
    Mounts(u16),
}

impl Role {
    /// The thread's name: at most 15 bytes, the system's limit.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Main => "main".into(),
            Self::Feed => "feed".into(),
            Self::Mounts(number) => format!("mounts-{number}"),
        }
    }
}

/// The scheduler of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// `SCHED_OTHER`, the system's default.
    #[default]
    Other,
    /// `SCHED_FIFO`: real time, before all ordinary threads; needs CAP_SYS_NICE.
    Fifo,
    /// `SCHED_RR`: real time in time slices, before all ordinary threads; needs CAP_SYS_NICE.
    RoundRobin,
}

/// Cores and scheduler of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ThreadSettings {
    /// Cores by number; empty: any.
    pub cpus: Vec<usize>,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Priority for the real-time schedulers: 1 to 99.
    pub priority: u8,
    /// Polls for work without sleeping: a core of its own for the least latency.
    pub busy_poll: bool,
}

impl ThreadSettings {
    /// Applies the settings to the calling thread.
    ///
    /// # Errors
    /// A core does not exist, or the scheduler is not permitted; the error names it.
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

/// Starts a thread for a role. If the system refuses its settings, the thread logs that and runs without them.
///
/// # Errors
/// The system refuses the thread.
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
    fn thread_has_its_name_and_core() {
        let settings = ThreadSettings { cpus: vec![0], ..ThreadSettings::default() };
        let seen = spawn(Role::Mounts(3), &settings, || {
            (std::thread::current().name().map(str::to_owned), rustix::thread::sched_getcpu())
        });
        assert_eq!(seen.unwrap().join().unwrap(), (Some("mounts-3".into()), 0));
    }

    #[test]
    fn error_names_the_refused_cores() {
        let settings = ThreadSettings { cpus: vec![1023], ..ThreadSettings::default() };
        assert!(settings.apply().unwrap_err().to_string().contains("1023"));
        assert_eq!(ThreadSettings::default().scheduler, Scheduler::Other);
    }
}
