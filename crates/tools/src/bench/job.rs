//! What a peer process is told, and what it answers: JSON, one line each.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::party::{Engine, Party};

/// Longest that one end waits for the other, beyond which something is broken.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) test: Test,
    pub(crate) party: Party,
    pub(crate) role: Role,
    /// Which of several processes of this role.
    pub(crate) index: u32,
    /// Servers that one driver sends to: more than one is a multicast.
    pub(crate) servers: u32,
    /// Connections between a driver and a server, each with a thread at either end.
    pub(crate) connections: u32,
    /// More threads than cores: who spins gives way.
    pub(crate) crowded: bool,
    /// Bytes of a message.
    pub(crate) size: u32,
    /// Messages that are measured, on each connection.
    pub(crate) messages: u64,
    /// Messages before those.
    pub(crate) warmup: u64,
    /// Messages per second by schedule; none: as fast as it goes.
    pub(crate) rate: Option<f64>,
    pub(crate) engine: Engine,
    pub(crate) site: Site,
    /// The core to run on; none: where the system likes.
    pub(crate) core: Option<usize>,
    /// Where to find the servers: what they said when they were ready.
    pub(crate) meet: Vec<Meet>,
}

/// Where a process is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Site {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// The namespaces are ours alone, so the system's counters of packets are too.
    pub(crate) private: bool,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    /// Round trips, one at a time; with a rate, by schedule.
    Echo,
    /// One way, to every server.
    Flow,
    /// Time from the start of a node to its first link.
    LinkUp,
    /// Memory of a node that does nothing.
    IdleMemory,
    /// The packet size of the link to the other end.
    LinkMtu,
    /// Counts turns of an empty loop.
    Spin,
    /// Switches the offloads of an interface off.
    OffloadsOff,
    /// A connection (client) whose other end (server) is killed.
    Death,
    /// Bindings that the server makes and the client looks for.
    Visible,
    /// Many clients of one server.
    Crowd,
    /// Many sockets with bindings (servers), and lookups among them (client).
    Many,
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Waits for the other.
    Serve,
    /// Drives the test.
    Drive,
}

/// Where a server can be found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meet {
    /// Ports of its sockets, where they have one.
    pub(crate) ports: Vec<u16>,
    /// A name, where they have one.
    pub(crate) name: String,
}

/// What one process has measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Measured messages that came (server) or went (client).
    pub(crate) messages: u64,
    /// Messages that did not come, on transports that may lose some.
    pub(crate) lost: u64,
    /// First and last moment, nanoseconds of the monotonic clock.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Processor time, user and system, of all threads in between, seconds.
    pub(crate) cpu_s: f64,
    /// Packets that left this end in between, where it can be known.
    pub(crate) packets: Option<u64>,
    /// Histogram: (nanoseconds, how often).
    pub(crate) times: Vec<(u64, u64)>,
    /// The result of tests that have one number.
    pub(crate) value: Option<f64>,
}

/// A line from a peer process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Said {
    /// The other end may start.
    Ready(Meet),
    /// The result.
    Done(Box<Part>),
    /// What went wrong.
    Failed(String),
}

impl Job {
    pub(crate) fn to_argument(&self) -> Result<String> {
        serde_json::to_string(self).context("write down the job of a peer process")
    }
}

impl std::str::FromStr for Job {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

impl Part {
    /// Seconds between the first and the last moment.
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.ended.saturating_sub(self.began) as f64 / 1e9
    }

    /// Parts of one test, as one.
    pub(crate) fn merge(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        let Some(mut all) = parts.next() else { return Self::default() };
        for part in parts {
            all.messages += part.messages;
            all.lost += part.lost;
            all.began = all.began.min(part.began);
            all.ended = all.ended.max(part.ended);
            all.cpu_s += part.cpu_s;
            all.packets = all.packets.zip(part.packets).map(|(a, b)| a + b);
            all.times.extend(part.times);
            all.value = all.value.or(part.value);
        }
        all
    }
}
