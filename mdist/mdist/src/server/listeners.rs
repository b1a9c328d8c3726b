//! Listening sockets for consumers and publishers.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Result;

use crate::net::{
    Interest, Network, Now, Poller, Registry, Socket, SocketOptions, accept, listen, resolve_local,
};

/// Pause after the system refused a connection: while it is out of descriptors, it would refuse the next one too.
const BACKOFF: Duration = Duration::from_millis(200);

/// Maximum number of connections that one turn accepts at a listener, about 10 µs each: upstreams and mounts are served
/// in between.
pub(super) const ACCEPTS_PER_TURN: usize = 64;

/// All listening sockets of a program; their tokens in the poller are 0, 1, 2 and so on.
pub(super) struct Listeners {
    sockets: Vec<TcpListener>,
    options: SocketOptions,
    /// Networks whose hosts may connect; empty: every host.
    allow: Vec<Network>,
    /// Connections refused because of `allow`.
    denied: u64,
    registry: Registry,
    /// No connection is accepted before then.
    paused_until: Option<Now>,
    /// Refusals in a row; only the first is logged.
    refusals: u64,
}

impl Listeners {
    /// Listens at these addresses; `port` completes those without one, and a number alone is a port of 127.0.0.1.
    ///
    /// # Errors
    /// An address that is taken or not this host's; the error names it.
    pub(super) fn open(at: &[String], port: u16, options: SocketOptions, poller: &Poller) -> Result<Self> {
        let mut sockets = Vec::new();
        for (token, text) in (0..).zip(at) {
            let socket = listen(resolve_local(text, port)?)?;
            poller.add(&socket, token, Interest::Read)?;
            sockets.push(socket);
        }
        let registry = poller.registry().clone();
        Ok(Self { sockets, options, allow: Vec::new(), denied: 0, registry, paused_until: None, refusals: 0 })
    }

    /// Closes connections from hosts outside these networks; empty: from none. Logs which hosts may connect: `setting`
    /// names the networks, and `what` may be done by the hosts that connect.
    pub(super) fn allow(&mut self, networks: Vec<Network>, setting: &str, what: &str) {
        self.allow = networks;
        let open = self.sockets.iter().filter_map(|socket| socket.local_addr().ok());
        for at in open.filter(|at| !at.ip().is_loopback()) {
            if self.allow.is_empty() {
                tracing::warn!(%at, "every host that reaches this address may {what}, without a password: name the networks that may in {setting}");
            } else {
                let networks: Vec<_> = self.allow.iter().map(ToString::to_string).collect();
                tracing::info!(%at, networks = networks.join(", "), "hosts of these networks may {what}");
            }
        }
    }

    /// Connections refused because their host is in no allowed network.
    pub(super) fn denied(&self) -> u64 {
        self.denied
    }

    /// The addresses of the sockets, in the order of the settings.
    ///
    /// # Errors
    /// The system does not tell an address.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        self.sockets.iter().map(|socket| Ok(socket.local_addr()?)).collect()
    }

    /// Accepts the next connection at the listener with this token; closes those of hosts that may not connect, at most
    /// [`ACCEPTS_PER_TURN`].
    pub(super) fn accept(&mut self, token: u64, now: Now) -> Option<Socket> {
        for _ in 0..ACCEPTS_PER_TURN {
            let socket = self.accept_any(token, now)?;
            let peer = socket.peer();
            if self.allow.is_empty() || self.allow.iter().any(|network| network.contains(peer.ip())) {
                return Some(socket);
            }
            self.denied += 1;
            if self.denied == 1 {
                tracing::warn!(%peer, "a connection is closed: its host is in no allowed network; further ones are only counted (hub_connections_denied)");
            }
        }
        None
    }

    fn accept_any(&mut self, token: u64, now: Now) -> Option<Socket> {
        let listener = usize::try_from(token).ok().and_then(|place| self.sockets.get(place))?;
        if self.paused_until.is_some() {
            return None;
        }
        match accept(listener, self.options) {
            Ok(accepted) => {
                if accepted.is_some() && std::mem::take(&mut self.refusals) > 1 {
                    tracing::info!("connections are accepted again");
                }
                accepted
            }
            Err(why) => {
                self.refusals += 1;
                if self.refusals == 1 {
                    tracing::warn!(%why, "cannot accept a connection (raise the limit of open files, `ulimit -n`, if it is reached); retrying every {BACKOFF:?}");
                }
                // The listeners stay readable: without a pause the poller would report nothing else.
                self.watch(Interest::End);
                self.paused_until = Some(now + BACKOFF);
                None
            }
        }
    }

    /// Ends a pause that is over.
    pub(super) fn tick(&mut self, now: Now) {
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
            self.watch(Interest::Read);
        }
    }

    /// Time when [`Listeners::tick`] is due next.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.paused_until
    }

    fn watch(&self, interest: Interest) {
        for (token, socket) in (0..).zip(&self.sockets) {
            if let Err(why) = self.registry.change(socket, token, interest) {
                tracing::error!(%why, "cannot watch a listener: it accepts no more connections");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::{BACKOFF, Listeners};
    use crate::net::{Now, Poller, SocketOptions};

    /// Makes the system refuse a connection, as it does when descriptors run out: an option that cannot be set.
    const REFUSED: SocketOptions =
        SocketOptions { no_delay: true, receive_buffer: Some(usize::MAX), send_buffer: None };

    #[test]
    fn accepting_pauses_after_a_refusal_and_resumes() {
        let poller = Poller::new().unwrap();
        let mut listeners =
            Listeners::open(&["127.0.0.1:0".into()], 0, SocketOptions::default(), &poller).unwrap();
        let at = listeners.addresses().unwrap()[0];
        let mut events = Vec::new();

        let _first = TcpStream::connect(at).unwrap();
        poller.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
        listeners.options = REFUSED;
        assert!(listeners.accept(0, Now::ZERO).is_none());
        assert_eq!(listeners.deadline(), Some(BACKOFF));

        listeners.options = SocketOptions::default();
        let _second = TcpStream::connect(at).unwrap();
        events.clear();
        poller.wait(Some(Duration::from_millis(20)), &mut events).unwrap();
        assert!(events.is_empty(), "a paused listener is reported");
        assert!(listeners.accept(0, Now::ZERO).is_none());

        listeners.tick(BACKOFF);
        poller.wait(Some(Duration::from_secs(5)), &mut events).unwrap();
        assert_eq!(events[0].token, 0);
        assert!(listeners.accept(0, BACKOFF).is_some());
        assert_eq!(listeners.deadline(), None);
    }

    #[test]
    fn unknown_token_accepts_nothing() {
        let poller = Poller::new().unwrap();
        let mut none = Listeners::open(&[], 0, SocketOptions::default(), &poller).unwrap();
        assert!(none.accept(7, Now::ZERO).is_none() && none.addresses().unwrap().is_empty());
    }
}
