//! The job of a peer process and its answers: JSON, one line each.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::variant::{Engine, Variant};

/// Longest time that one end waits for the other.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The work of a peer process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) test: Test,
    pub(crate) variant: Variant,
    pub(crate) role: Role,
    /// Number of the process among those of its role.
    pub(crate) index: u32,
    /// Number of servers that a driver sends to; more than one means multicast.
    pub(crate) servers: u32,
    /// Connections between a driver and a server, each with a thread at both ends.
    pub(crate) connections: u32,
    /// There are more threads than cores: a spinning thread yields.
    pub(crate) crowded: bool,
    /// Message size, bytes.
    pub(crate) size: u32,
    /// Measured messages on each connection.
    pub(crate) messages: u64,
    /// Number of messages before the measured ones.
    pub(crate) warmup: u64,
    /// Messages per second by schedule; `None`: as many as possible.
    pub(crate) rate: Option<f64>,
    pub(crate) engine: Engine,
    pub(crate) site: Site,
    /// The core to run on; `None`: any.
    pub(crate) core: Option<usize>,
    /// Addresses of the servers, as they reported when they were ready.
    pub(crate) addresses: Vec<ServerAddress>,
}

/// The host or namespace in which a process runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Site {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// Nothing else uses the namespaces, so that the system's packet counters count only our packets.
    pub(crate) private: bool,
    /// Where the embedded nodes of this host find each other; `None`: they are on different hosts.
    pub(crate) directory: Option<PathBuf>,
    /// The file with the key of the cluster, if everything is encrypted.
    pub(crate) key: Option<PathBuf>,
}

/// The task of a peer process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Test {
    /// Round trips one after another, or by schedule if a rate is given.
    Echo,
    /// Messages in one direction, to every server.
    Flow,
    /// The MTU of the link to the other end, and the time from the start of a node to it.
    Link,
    /// Memory of an idle node.
    IdleMemory,
    /// Iterations of an empty loop.
    Spin,
    /// Nothing: switches the offloads of the cable off.
    OffloadsOff,
    /// Time until a client learns that the server of its connection was killed.
    Death,
    /// Time from the start of a client's node until the server has answered it.
    Start,
    /// Time until a client sees the bindings of the server.
    Visible,
    /// Messages of many clients to one server.
    Crowd,
    /// Bursts of multicasts to many servers.
    Burst,
    /// Messages to a service that all servers have bound.
    Anycast,
    /// Lookups of a client among the bindings of many sockets of servers.
    Many,
}

/// An end of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Waits for the driver.
    Serve,
    /// Sends the messages.
    Drive,
}

/// The address of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerAddress {
    /// Ports of its sockets, if they have any.
    pub(crate) ports: Vec<u16>,
    /// Name of its socket, if any.
    pub(crate) name: String,
}

/// The result of one end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EndResult {
    /// Measured messages that arrived (server) or were sent (client).
    pub(crate) messages: u64,
    /// Messages that did not arrive, on transports that may lose some.
    pub(crate) lost: u64,
    /// Begin and end of the measurement, nanoseconds of the monotonic clock.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// CPU time of all threads in between, user and system, seconds.
    pub(crate) cpu_s: f64,
    /// Packets that left this end in between, if they can be counted.
    pub(crate) packets: Option<u64>,
    /// Histogram: (nanoseconds, count).
    pub(crate) times: Vec<(u64, u64)>,
    /// The result of a test with a single number.
    pub(crate) value: Option<f64>,
}

/// A line from a peer process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PeerMessage {
    /// This end is ready.
    Ready(ServerAddress),
    /// The result.
    Done(Box<EndResult>),
    /// An error.
    Failed(String),
}

impl Job {
    /// A job for one process, with one message on one connection; callers change what differs.
    pub(super) fn new(test: Test, variant: Variant, size: u32) -> Self {
        let nowhere = [0, 0, 0, 0].into();
        Self {
            test,
            variant,
            role: Role::Drive,
            index: 0,
            servers: 1,
            connections: 1,
            crowded: false,
            size,
            messages: 1,
            warmup: 1,
            rate: None,
            engine: Engine::Embedded,
            site: Site { local: nowhere, remote: nowhere, private: false, directory: None, key: None },
            core: None,
            addresses: Vec::new(),
        }
    }
}

impl EndResult {
    /// Duration of the measurement, seconds.
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.ended.saturating_sub(self.began) as f64 / 1e9
    }

    /// The value of a result; it is an error if absent.
    pub(crate) fn single_value(&self) -> Result<f64> {
        self.value.context("the result of a peer process has no value")
    }

    /// Combines the results of several processes or threads into one.
    pub(crate) fn merge(results: impl IntoIterator<Item = Self>) -> Self {
        let mut results = results.into_iter();
        let Some(mut all) = results.next() else { return Self::default() };
        for result in results {
            all.messages += result.messages;
            all.lost += result.lost;
            all.began = all.began.min(result.began);
            all.ended = all.ended.max(result.ended);
            all.cpu_s += result.cpu_s;
            all.packets = all.packets.zip(result.packets).map(|(a, b)| a + b);
            all.times.extend(result.times);
            all.value = all.value.or(result.value);
        }
        all
    }
}
