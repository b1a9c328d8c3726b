//! The side to which the proxy connects, and its health.
//!
//! The health of a service comes from topology events. The health of a TCP or Unix server comes from connections: one
//! that fails marks it as down, and a probe each second then looks for its return.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use utipc::tokio::{Connection, Topology};
use utipc::{Node, ServiceAddress, SocketKind};

use super::address::Address;

/// Pause between two probes of a server, and between two attempts to reach the topology server.
const PROBE: Duration = Duration::from_secs(1);
/// Longest wait for one TCP connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// First pause before a connection is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// An established connection to the backend.
#[derive(Debug)]
pub(super) enum Server {
    Tcp(TcpStream),
    Unix(UnixStream),
    Service(Box<Connection>),
}

#[derive(Debug)]
pub(super) struct Back {
    address: Address,
    node: Node,
    kind: SocketKind,
    /// Limit of the wait for a backend that is down.
    wait: Option<Duration>,
    health: watch::Sender<bool>,
}

impl Back {
    /// A backend of unknown health; [`Back::supervise`] finds it out.
    pub(super) fn new(address: Address, node: Node, kind: SocketKind, wait: Option<Duration>) -> Self {
        let is_up = address.instance().is_some_and(|service| node.lookup(service).is_some());
        Self { address, node, kind, wait, health: watch::Sender::new(is_up) }
    }

    pub(super) fn health(&self) -> watch::Receiver<bool> {
        self.health.subscribe()
    }

    /// Connects to the backend. With a limit, tries again until that has passed.
    pub(super) async fn connect(&self) -> Result<Server> {
        let end = Instant::now() + self.wait.unwrap_or_default();
        let mut pause = FIRST_PAUSE;
        loop {
            let failed = match self.attempt().await {
                Ok(server) => return Ok(server),
                Err(error) => error,
            };
            if Instant::now() + pause >= end {
                return Err(failed);
            }
            self.pause(pause).await;
            pause = (pause * 2).min(PROBE);
        }
    }

    /// Waits for a time, or until the backend is up again.
    async fn pause(&self, time: Duration) {
        let mut health = self.health();
        let up = health.wait_for(|is_up| *is_up);
        if *self.health.borrow() {
            sleep(time).await;
        } else {
            let _ = timeout(time, up).await;
        }
    }

    async fn attempt(&self) -> Result<Server> {
        let connected = self.open().await;
        if let Err(error) = &connected
            && !self.address.is_service()
        {
            self.set(false, &format!(": {}", utipc_cli::one_line(error)));
        }
        connected
    }

    async fn open(&self) -> Result<Server> {
        let failed = || format!("cannot connect to {}", self.address);
        let late = "no answer (check the host, and firewalls in between)";
        match &self.address {
            Address::Tcp(to) => {
                let stream = timeout(CONNECT_LIMIT, TcpStream::connect(to)).await;
                let stream = stream.map_err(|_| anyhow::anyhow!(late)).with_context(failed)?;
                Ok(Server::Tcp(stream.with_context(failed)?))
            }
            Address::Unix(path) => Ok(Server::Unix(UnixStream::connect(path).await.with_context(failed)?)),
            Address::Service(range) => {
                let to = ServiceAddress::new(range.service, range.lower);
                let socket = self.node.socket(self.kind).with_context(failed)?;
                Ok(Server::Service(Box::new(Connection::open(socket, to).await.with_context(failed)?)))
            }
        }
    }

    /// Notes the health, and logs a change.
    fn set(&self, is_up: bool, why: &str) {
        let changed = self.health.send_if_modified(|known| std::mem::replace(known, is_up) != is_up);
        match (changed, is_up) {
            (true, true) => info!("{} is up", self.address),
            (true, false) => warn!("{} is down{why}", self.address),
            (false, _) => {}
        }
    }

    /// Follows the health of the backend until the program ends.
    pub(super) async fn supervise(&self) {
        match self.address.instance() {
            Some(service) => self.follow(service).await,
            None => self.probe().await,
        }
    }

    async fn follow(&self, service: ServiceAddress) {
        let mut is_known = true;
        loop {
            let Err(error) = self.follow_once(service).await;
            self.set(false, "");
            if std::mem::take(&mut is_known) {
                warn!("topology events are missing: {error}");
            }
            sleep(PROBE).await;
        }
    }

    async fn follow_once(&self, service: ServiceAddress) -> utipc::Result<std::convert::Infallible> {
        let mut topology = self.node.topology()?;
        topology.availability(service)?;
        let mut topology = Topology::new(topology)?;
        loop {
            let is_up = topology.next().await?.is_up();
            self.set(is_up, " (no socket is bound to it)");
        }
    }

    /// Probes a server at the start and while it is down.
    async fn probe(&self) {
        let mut health = self.health();
        loop {
            if health.wait_for(|is_up| !*is_up).await.is_err() {
                return;
            }
            if self.open().await.is_ok() {
                self.set(true, "");
            } else {
                sleep(PROBE).await;
            }
        }
    }
}
