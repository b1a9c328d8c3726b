//! Whether virtual time goes on: a cluster that does ever more without it would never end.

use std::collections::BTreeMap;
use std::fmt;

use utipc_core::Time;

use crate::check::Broken;

/// Most things that may happen at one instant. 8 nodes in good health reach 1,000.
const MOST_AT_ONCE: u64 = 20_000;
/// Most frames that may be sent in one virtual millisecond, for each ordered pair of nodes. 8 nodes in good health reach
/// 2,000 for all their 56 pairs.
const MOST_FRAMES_A_PAIR: u64 = 500;
/// Offenders that are named.
const NAMED: usize = 4;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Activity {
    /// A frame is sent.
    Frame { plane: u8, from: usize, to: usize },
    /// A node does what was due.
    Timeout { node: usize },
    /// A node reports something.
    Event { node: usize },
    /// A node says that something may have happened to a socket.
    Ready { node: usize, port: u32 },
    /// The simulator does something.
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
            Self::Ready { node, port } => write!(f, "news of socket {port} of node {node}"),
            Self::Action => f.write_str("actions of applications and faults"),
        }
    }
}

/// A count that starts anew when its span of time is over, and who is to blame for its second half.
#[derive(Debug, Default)]
struct Count {
    span: u64,
    steps: u64,
    blame: BTreeMap<Activity, u64>,
}

impl Count {
    fn add(&mut self, span: u64, activity: Activity, most: u64) -> Option<String> {
        if self.span != span {
            *self = Self { span, ..Self::default() };
        }
        self.steps += 1;
        if self.steps > most / 2 {
            *self.blame.entry(activity).or_default() += 1;
        }
        (self.steps > most).then(|| self.offenders())
    }

    fn offenders(&self) -> String {
        let mut worst: Vec<(&Activity, &u64)> = self.blame.iter().collect();
        worst.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named: Vec<String> =
            worst.iter().take(NAMED).map(|(activity, count)| format!("{count} {activity}")).collect();
        format!("of the last {}: {}", self.blame.values().sum::<u64>(), named.join(", "))
    }
}

/// Counts what happens at one instant, and the frames of one millisecond.
#[derive(Debug)]
pub(crate) struct Livelock {
    most_frames: u64,
    instant: Count,
    millisecond: Count,
}

impl Livelock {
    pub(crate) fn new(nodes: usize) -> Self {
        let most_frames = MOST_FRAMES_A_PAIR * (nodes * (nodes - 1)) as u64;
        Self { most_frames, instant: Count::default(), millisecond: Count::default() }
    }

    /// Counts an activity; more than the limit is an error.
    pub(crate) fn count(&mut self, now: Time, activity: Activity) -> Result<(), Broken> {
        if let Some(who) = self.instant.add(now.as_nanos(), activity, MOST_AT_ONCE) {
            return Err(Broken::Livelock(format!("{MOST_AT_ONCE} things at one instant, {who}")));
        }
        if matches!(activity, Activity::Frame { .. })
            && let Some(who) = self.millisecond.add(now.as_millis(), activity, self.most_frames)
        {
            return Err(Broken::Livelock(format!("{} frames in a millisecond, {who}", self.most_frames)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Activity = Activity::Frame { plane: 0, from: 0, to: 1 };

    #[test]
    fn much_may_happen_as_long_as_time_goes_on() {
        let mut livelock = Livelock::new(2);
        for at in 0..2 * MOST_AT_ONCE {
            livelock.count(Time::from_millis(at), FRAME).unwrap();
        }
    }

    #[test]
    fn who_stops_time_is_named() {
        let mut livelock = Livelock::new(2);
        let ready = Activity::Ready { node: 1, port: 7 };
        let mut activities = (0..).map(|n| if n % 4 == 0 { Activity::Event { node: 0 } } else { ready });
        let broken =
            activities.find_map(|activity| livelock.count(Time::ZERO, activity).err()).unwrap().to_string();
        assert!(broken.contains("7500 news of socket 7 of node 1, 2501 events of node 0"), "{broken}");
    }

    #[test]
    fn frames_are_counted_by_the_millisecond() {
        let mut livelock = Livelock::new(2);
        let mut at = (0..).map(Time::from_nanos);
        let broken = at.find_map(|at| livelock.count(at, FRAME).err()).unwrap().to_string();
        assert!(broken.contains("1000 frames in a millisecond"), "{broken}");
        assert!(broken.contains("frames from node 0 to node 1 on network 0"), "{broken}");
    }
}
