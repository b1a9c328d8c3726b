//! The publisher's thread: its sockets, and a timer finer than a millisecond.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};

use super::session::Session;
use super::state::Role;
use super::{Counts, Shared};
use crate::timer::Timer;
use mdist::net::{Connection, Disconnected, Event, Interest, Poller, SocketOptions, accept, connect, now};

const LISTENER: u64 = 0;
const TIMER: u64 = 1;
const FIRST_PEER: u64 = 2;
/// Bytes read at once.
const READ: usize = 64 * 1024;
/// First and longest backoff before a publisher reconnects.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Time by which the thread wakes before a deadline, to spin until then. Sleeping threads wake about this much
/// too late, in particular on virtual machines.
const WAKE_EARLY: Duration = Duration::from_micros(60);
/// Maximum number of reasons of disconnects that are kept.
const MAX_REASONS: usize = 100;

/// The event loop of a publisher.
pub(super) struct EventLoop {
    shared: Arc<Shared>,
    poller: Poller,
    listener: Option<TcpListener>,
    /// Time at which to connect, and the backoff after a failure.
    next_attempt: Option<(Duration, Duration)>,
    options: SocketOptions,
    timer: Timer,
    peers: HashMap<u64, Peer>,
    next: u64,
    /// Counts of sessions that ended.
    past: Counts,
    buffer: Vec<u8>,
}

struct Peer {
    connection: Connection,
    session: Session,
    connecting: bool,
    out: Vec<u8>,
}

impl EventLoop {
    pub(super) fn new(shared: Arc<Shared>, poller: Poller, listener: Option<TcpListener>) -> Result<Self> {
        if let Some(listener) = &listener {
            poller.add(listener, LISTENER, Interest::Read)?;
        }
        let timer = Timer::new()?;
        poller.add(timer.fd(), TIMER, Interest::Read)?;
        Ok(Self {
            poller,
            listener,
            next_attempt: shared.options.publish.map(|_| (Duration::ZERO, BACKOFF.0)),
            options: SocketOptions { no_delay: shared.options.no_delay, ..SocketOptions::default() },
            shared,
            timer,
            peers: HashMap::new(),
            next: FIRST_PEER,
            past: Counts::default(),
            buffer: vec![0; READ],
        })
    }

    pub(super) fn run(mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let at = now();
            self.connect(at)?;
            for event in events.drain(..) {
                match event.token {
                    LISTENER => self.accept()?,
                    TIMER => self.timer.clear(),
                    token => self.serve(token, event),
                }
            }
            self.work(now());
            self.report();
            let timeout = match self.deadline() {
                _ if self.shared.options.busy && !self.peers.is_empty() => Some(Duration::ZERO),
                Some(deadline) if deadline <= now() + WAKE_EARLY => Some(Duration::ZERO),
                deadline => {
                    let period =
                        Duration::from_secs(1) / u32::try_from(self.shared.options.ticks.max(1)).unwrap_or(1);
                    let set = match deadline {
                        Some(deadline) => self.timer.repeat(deadline - WAKE_EARLY, period),
                        None => self.timer.set(None),
                    };
                    set.context("set the timer")?;
                    None
                }
            };
            self.poller.wait(timeout, &mut events)?;
        }
        self.report();
        Ok(())
    }

    fn deadline(&self) -> Option<Duration> {
        let open = self.peers.values().filter(|peer| !peer.connection.is_full() && !peer.connecting);
        open.filter_map(|peer| peer.session.deadline())
            .chain(self.next_attempt.map(|attempt| attempt.0))
            .min()
    }

    fn accept(&mut self) -> Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        while let Some(socket) = accept(listener, self.options)? {
            let session = Session::new(self.shared.clone(), Role::Interactive);
            let connection = Connection::new(socket, self.next, self.poller.registry())?;
            let peer = Peer { connection, session, connecting: false, out: Vec::new() };
            self.peers.insert(self.next, peer);
            self.next += 1;
        }
        Ok(())
    }

    fn connect(&mut self, at: Duration) -> Result<()> {
        let (Some(to), Some((when, pause))) = (self.shared.options.publish, self.next_attempt) else {
            return Ok(());
        };
        if at < when {
            return Ok(());
        }
        self.next_attempt = Some((at + pause, (pause * 2).min(BACKOFF.1)));
        let socket = match connect(to, self.options) {
            Ok(socket) => socket,
            Err(error) => {
                self.record(format!("{to}: {error}"));
                return Ok(());
            }
        };
        let mut session = Session::new(self.shared.clone(), Role::Publisher);
        let mut out = Vec::new();
        session.take_output(&mut out);
        let connection = Connection::new(socket, self.next, self.poller.registry())?;
        self.peers.insert(self.next, Peer { connection, session, connecting: true, out });
        self.next += 1;
        self.next_attempt = None;
        Ok(())
    }

    fn serve(&mut self, token: u64, event: Event) {
        let Some(peer) = self.peers.get_mut(&token) else { return };
        if let Err(error) = peer.serve(event, &mut self.buffer) {
            self.disconnect(token, &format!("{error:#}"));
        }
    }

    fn work(&mut self, at: Duration) {
        let mut failed = Vec::new();
        for (&token, peer) in self.peers.iter_mut().filter(|(_, peer)| !peer.connecting) {
            if let Err(error) = peer.work(at) {
                failed.push((token, format!("{error:#}")));
            }
        }
        for (token, reason) in failed {
            self.disconnect(token, &reason);
        }
    }

    fn disconnect(&mut self, token: u64, reason: &str) {
        let Some(peer) = self.peers.remove(&token) else { return };
        self.past.add(&Counts { items: 0, cut: 1, ..peer.session.counts() });
        self.record(format!("{}: {reason}", peer.connection.peer()));
        if self.shared.options.publish == Some(peer.connection.peer()) {
            let pause = if peer.connecting { BACKOFF.1.min(BACKOFF.0 * 4) } else { BACKOFF.0 };
            self.next_attempt = Some((now() + pause, pause * 2));
        }
    }

    fn record(&self, reason: String) {
        tracing::info!("{reason}");
        let mut report = self.shared.report();
        if report.disconnect_reasons.len() < MAX_REASONS {
            report.disconnect_reasons.push(reason);
        }
    }

    /// Publishes the counts, and those of the items if they are requested.
    fn report(&self) {
        let mut all = self.past;
        for peer in self.peers.values() {
            all.add(&peer.session.counts());
        }
        all.sessions = self.peers.len() as u64;
        let mut report = self.shared.report();
        report.counts = all;
        if self.shared.want_items.swap(false, Ordering::Relaxed) {
            let mut order: Vec<_> = self.peers.iter().collect();
            order.sort_by_key(|(token, _)| **token);
            let mut items = HashMap::new();
            for (name, n) in order.iter().flat_map(|(_, peer)| peer.session.item_counts()) {
                items.insert(String::from_utf8_lossy(name).into_owned(), n);
            }
            report.items = Some(items.into_iter().collect());
            self.shared.reported.notify_all();
        }
    }
}

impl Peer {
    fn serve(&mut self, event: Event, buffer: &mut [u8]) -> Result<()> {
        if self.connecting {
            if !event.writable || !self.connection.open()? {
                return Ok(());
            }
            self.connecting = false;
        }
        self.connection.writable(event)?;
        if !self.connection.has_input(event) {
            return Ok(());
        }
        let Self { connection, session, out, .. } = self;
        let mut taken = Ok(());
        let read = connection.read(buffer, |bytes| {
            taken = session.input(now(), bytes, out);
            taken.is_ok()
        });
        taken?;
        match read {
            Ok(()) => Ok(()),
            Err(Disconnected::Closed) => anyhow::bail!("the peer closed the connection"),
            Err(Disconnected::Broken(why)) => Err(why.into()),
        }
    }

    fn work(&mut self, at: Duration) -> Result<()> {
        while !self.connection.is_full() {
            let more = self.session.work(at, &mut self.out)?;
            if !self.out.is_empty()
                && let Some(count) = self.connection.write(&[IoSlice::new(&self.out)])?
            {
                self.out.drain(..count);
                self.session.sent(at);
            }
            if !more {
                break;
            }
        }
        Ok(())
    }
}
