//! A publisher for load tests: answers requests for any item, or publishes to a distributor, and sends updates at a
//! rate.

mod event_loop;
mod items;
mod requests;
mod sending;
mod service_events;
mod session;
mod stamps;
mod state;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use rssl::dictionary::Dictionary;
use rssl::rdm::directory;
use rssl::rwf::{DataType, Domain, Key, Qos, Refresh, RefreshFlags, Request, State, Status, code};
use rssl::transport::MAX_FRAGMENT;
use rssl::wire::to_vec;
use utipc_bench_kit::counts;

pub use self::service_events::ServiceEvent;
use self::service_events::ServiceEvents;
use super::items::Item;
use super::message_set::MessageSet;
use mdist::dictionaries::Dictionaries;
use mdist::net::{Poller, Waker};

/// Options of a [`Provider`].
#[derive(Clone, Debug)]
pub struct ProviderOptions {
    /// Address to listen on for distributors or consumers; `None`: it does not listen.
    pub listen: Option<SocketAddr>,
    /// Distributor to connect and publish to; `None`: it does not publish.
    pub publish: Option<SocketAddr>,
    /// Name of the service.
    pub service: String,
    /// Id of the service.
    pub service_id: u16,
    /// Messages, one set for each domain.
    pub sets: Vec<MessageSet>,
    /// Items that exist; a listening publisher without items accepts every name.
    pub items: Vec<Item>,
    /// Updates per second and session.
    pub rate: u64,
    /// Ticks per second that the updates are divided into.
    pub ticks: u64,
    /// Stamps per second.
    pub stamps: u64,
    /// Stamps hold nanoseconds, not microseconds.
    pub nanoseconds: bool,
    /// Stamps hold the time when the update is made instead of when it was due.
    pub stamp_when_sent: bool,
    /// Spins instead of sleeping.
    pub busy: bool,
    /// Sets `TCP_NODELAY`.
    pub no_delay: bool,
    /// User name of its login when it publishes.
    pub user: String,
    /// Dictionary that it serves.
    pub dictionary: Arc<Dictionary>,
}

impl ProviderOptions {
    /// A publisher on an address of the system's choice, with the defaults of the vendor's performance provider.
    #[must_use]
    pub fn new(sets: Vec<MessageSet>) -> Self {
        Self {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            publish: None,
            service: "DIRECT_FEED".into(),
            service_id: 1,
            sets,
            items: Vec::new(),
            rate: 100_000,
            ticks: 1_000,
            stamps: 10,
            nanoseconds: false,
            stamp_when_sent: false,
            busy: false,
            no_delay: true,
            user: "publisher".into(),
            dictionary: Arc::new(Dictionary::small()),
        }
    }
}

counts! {
    /// Counts of one session or of all sessions.
    pub struct Counts {
        /// Updates sent.
        updates,
        /// Updates that were due and never sent, because the peer did not read in time.
        missed,
        /// Updates with a stamp.
        stamps,
        /// Images sent.
        refreshes,
        /// Item requests.
        requests,
        /// Item streams closed.
        closes,
        /// Posts received.
        posts,
        /// Generic messages received.
        generics,
        /// Logins.
        logins,
        /// Items open now.
        items,
        /// Connections now.
        sessions,
        /// Connections that ended in an error.
        cut,
    }
}

/// State that all sessions share.
struct Shared {
    options: ProviderOptions,
    known: HashSet<Box<[u8]>>,
    /// Updates per second and session now.
    rate: AtomicU64,
    host: String,
    dictionaries: Dictionaries,
    events: ServiceEvents,
    stop: AtomicBool,
    want_items: AtomicBool,
    report: Mutex<Report>,
    /// Signalled after a report with items.
    reported: std::sync::Condvar,
}

/// The last report of the publisher's thread.
#[derive(Default)]
struct Report {
    counts: Counts,
    items: Option<Vec<(String, u32)>>,
    disconnect_reasons: Vec<String>,
}

impl Shared {
    fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    fn knows(&self, name: &[u8]) -> bool {
        self.known.is_empty() || self.known.contains(name)
    }

    fn report(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The one service, as a refresh.
    fn directory(&self, stream: i32, filter: u32, only: Option<u16>, solicited: bool) -> Result<Vec<u8>> {
        let dictionaries = vec!["RWFFld".to_owned(), "RWFEnum".to_owned()];
        let capabilities =
            [Domain::DICTIONARY].into_iter().chain(self.options.sets.iter().map(|set| set.domain));
        let service = directory::Service {
            id: self.options.service_id,
            info: Some(directory::Info {
                name: self.options.service.clone(),
                vendor: "utipc".into(),
                is_source: true,
                capabilities: capabilities.map(|domain| domain.0).collect(),
                dictionaries_provided: dictionaries.clone(),
                dictionaries_used: dictionaries,
                qos: vec![Qos::REALTIME_TICK],
                ..directory::Info::default()
            }),
            state: Some(self.events.state()),
            load: Some(directory::Load::default()),
            ..directory::Service::default()
        };
        let mut services = vec![(directory::Action::Add, service)];
        services.retain(|(_, service)| only.is_none_or(|id| id == service.id));
        let payload = to_vec(|w| directory::encode(w, filter, &services))?;
        let mut flags = RefreshFlags::COMPLETE.with(RefreshFlags::CLEAR_CACHE);
        if solicited {
            flags.insert(RefreshFlags::SOLICITED);
        }
        let refresh = Refresh {
            flags,
            state: State::OK,
            group: &[0, 0],
            key: Some(Key { filter: Some(filter), service: only, ..Key::default() }),
            ..Refresh::new(Domain::DIRECTORY, stream, DataType::MAP, &payload)
        };
        Ok(refresh.to_vec()?)
    }

    /// The parts of a dictionary, or the status that refuses a name that is unknown.
    fn dictionary(&self, request: &Request<'_>) -> Result<Vec<Vec<u8>>> {
        if let Some(parts) = self.dictionaries.answer(request) {
            return Ok(parts);
        }
        let text = b"no dictionary of this name here";
        Ok(vec![
            Status::new(Domain::DICTIONARY, request.stream, State::closed(code::NOT_FOUND, text)).to_vec()?,
        ])
    }
}

/// A running publisher; it stops when this is dropped.
pub struct Provider {
    shared: Arc<Shared>,
    waker: Waker,
    address: Option<SocketAddr>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Provider {
    /// Starts a thread that listens, or connects, and serves.
    ///
    /// # Errors
    /// The address is in use, no thread or descriptor is left, or a text of the dictionary is too long for the wire.
    pub fn start(options: ProviderOptions) -> Result<Self> {
        let listener = options.listen.map(mdist::net::listen).transpose()?;
        let address = listener.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
        let known = options.items.iter().map(|item| item.name.as_bytes().into()).collect();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let dictionaries =
            Dictionaries::of(&options.dictionary, MAX_FRAGMENT.into()).context("encode the dictionary")?;
        let shared = Arc::new(Shared {
            known,
            rate: AtomicU64::new(options.rate),
            host,
            dictionaries,
            events: ServiceEvents::default(),
            stop: AtomicBool::new(false),
            want_items: AtomicBool::new(false),
            report: Mutex::default(),
            reported: std::sync::Condvar::new(),
            options,
        });
        let (send, receive) = std::sync::mpsc::channel();
        let common = shared.clone();
        let body = move || {
            let poller = Poller::new()?;
            let _ = send.send(poller.waker());
            event_loop::EventLoop::new(common, poller, listener)?.run()
        };
        let thread = std::thread::Builder::new().name("publisher".into()).spawn(body);
        let thread = thread.context("start the publisher's thread")?;
        let waker = receive.recv().context("create the poller of the publisher's thread")?;
        Ok(Self { shared, waker, address, thread: Some(thread) })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Changes the rate of every session.
    pub fn set_rate(&self, rate: u64) {
        self.shared.rate.store(rate, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Announces a change of the service to all sessions.
    pub fn announce(&self, event: ServiceEvent) {
        self.shared.events.add(event);
        self.waker.wake();
    }

    /// The counts of all sessions, as of the last turn of the event loop.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.report().counts
    }

    /// Name and number of updates so far of every open item. If several sessions have it open, the number is
    /// that of the last one.
    #[must_use]
    pub fn items(&self) -> Vec<(String, u32)> {
        let mut report = self.shared.report();
        report.items = None;
        self.shared.want_items.store(true, Ordering::Relaxed);
        self.waker.wake();
        loop {
            match report.items.take() {
                Some(items) => return items,
                None if self.thread.as_ref().is_none_or(JoinHandle::is_finished) => return Vec::new(),
                None => {
                    let waited =
                        self.shared.reported.wait_timeout(report, std::time::Duration::from_millis(100));
                    report = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Takes the reasons why connections ended since the last call, oldest first.
    #[must_use]
    pub fn disconnect_reasons(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.report().disconnect_reasons)
    }

    /// Stops the publisher and returns its last counts.
    ///
    /// # Errors
    /// The error that ended its thread before.
    pub fn stop(mut self) -> Result<Counts> {
        self.end()?;
        Ok(self.counts())
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| anyhow::anyhow!("the publisher's thread panicked"))?
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
