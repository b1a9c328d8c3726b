//! Detects livelocks: activity that does not end while virtual time stands still.

use std::collections::BTreeMap;
use std::fmt;

use utipc_core::Time;

use crate::check::Broken;

/// Maximum number of activities at one instant. 8 nodes without faults reach 1,000.
const MAX_PER_INSTANT: u64 = 20_000;
/// Maximum number of frames in one virtual millisecond, per ordered pair of nodes. 8 nodes without faults reach 2,000
/// for all their 56 pairs.
const MAX_FRAMES_PER_PAIR: u64 = 500;
/// Number of most frequent activities named in the report.
const NAMED: usize = 4;

/// An activity of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// A frame is sent.
    Frame { plane: u8, from: usize, to: usize },
    /// A node handles a timeout.
    Timeout { node: usize },
    /// A node reports an event.
    Event { node: usize },
    /// A node reports that a socket may have changed.
    Ready { node: usize, port: u32 },
    /// The simulator performs an action.
    Action,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { plane, from, to } => {
                write!(f, "frames from node {from} to node {to} on network {plane}")
            }
            Self::Timeout { node } => write!(f, "timeouts of node {node}"),
            Self::Event { node } => write!(f, "events of node {node}"),
            Self::Ready { node, port } => write!(f, "reports of socket {port} of node {node}"),
            Self::Action => f.write_str("actions of applications and faults"),
        }
    }
}

/// Counts activities in a span of time; keeps a breakdown of the second half of the allowed number.
#[derive(Debug, Default)]
struct Count {
    span: u64,
    steps: u64,
    breakdown: BTreeMap<Activity, u64>,
}

impl Count {
    fn add(&mut self, span: u64, activity: Activity, most: u64) -> Option<String> {
        if self.span != span {
            *self = Self { span, ..Self::default() };
        }
        self.steps += 1;
        if self.steps > most / 2 {
            *self.breakdown.entry(activity).or_default() += 1;
        }
        (self.steps > most).then(|| self.most_frequent())
    }

    fn most_frequent(&self) -> String {
        let mut counts: Vec<(&Activity, &u64)> = self.breakdown.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named: Vec<String> =
            counts.iter().take(NAMED).map(|(activity, count)| format!("{count} {activity}")).collect();
        format!("of the last {}: {}", self.breakdown.values().sum::<u64>(), named.join(", "))
    }
}

/// Counts the activities of an instant, and the frames of a millisecond.
#[derive(Debug)]
pub(crate) struct Livelock {
    most_frames: u64,
    instant: Count,
    millisecond: Count,
}

impl Livelock {
    pub(crate) fn new(nodes: usize) -> Self {
        let most_frames = MAX_FRAMES_PER_PAIR * (nodes * (nodes - 1)) as u64;
        Self { most_frames, instant: Count::default(), millisecond: Count::default() }
    }

    /// Counts an activity; more than the limit is an error.
    pub(crate) fn count(&mut self, now: Time, activity: Activity) -> Result<(), Broken> {
        if let Some(summary) = self.instant.add(now.as_nanos(), activity, MAX_PER_INSTANT) {
            return Err(Broken::Livelock(format!("{MAX_PER_INSTANT} activities at one instant, {summary}")));
        }
        if matches!(activity, Activity::Frame { .. })
            && let Some(summary) = self.millisecond.add(now.as_millis(), activity, self.most_frames)
        {
            return Err(Broken::Livelock(format!("{} frames in a millisecond, {summary}", self.most_frames)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Activity = Activity::Frame { plane: 0, from: 0, to: 1 };

    #[test]
    fn activity_is_unlimited_while_time_advances() {
        let mut livelock = Livelock::new(2);
        for at in 0..2 * MAX_PER_INSTANT {
            livelock.count(Time::from_millis(at), FRAME).unwrap();
        }
    }

    #[test]
    fn livelock_report_names_the_most_frequent_activities() {
        let mut livelock = Livelock::new(2);
        let ready = Activity::Ready { node: 1, port: 7 };
        let mut activities = (0..).map(|n| if n % 4 == 0 { Activity::Event { node: 0 } } else { ready });
        let broken =
            activities.find_map(|activity| livelock.count(Time::ZERO, activity).err()).unwrap().to_string();
        assert!(broken.contains("7500 reports of socket 7 of node 1, 2501 events of node 0"), "{broken}");
    }

    #[test]
    fn frames_are_counted_per_millisecond() {
        let mut livelock = Livelock::new(2);
        let mut at = (0..).map(Time::from_nanos);
        let broken = at.find_map(|at| livelock.count(at, FRAME).err()).unwrap().to_string();
        assert!(broken.contains("1000 frames in a millisecond"), "{broken}");
        assert!(broken.contains("frames from node 0 to node 1 on network 0"), "{broken}");
    }
}
