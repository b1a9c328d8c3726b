//! A client for load: many mounts, each with its own connection, that ask for items and count what comes.

mod drive;
mod mount;
mod streams;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rssl::rwf::{FieldList, Map, PostUser, Update};
use rssl::wire::Reader;
use serde::Serialize;

use super::items::{Item, Shares};
use super::message_set::{Image, MessageSet, TIM_TRK_1};
use super::stats::Latency;
use super::values;
use crate::net::{Poller, Waker};

/// What clients are to do.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// The server.
    pub to: SocketAddr,
    /// All items that there are.
    pub items: Arc<Vec<Item>>,
    /// Which mounts there are, and which items each asks for.
    pub shares: Shares,
    /// How many mounts.
    pub mounts: usize,
    /// The mounts are spread over so many threads.
    pub threads: usize,
    /// The service's name.
    pub service: String,
    /// Item requests a second, over all mounts.
    pub request_rate: u64,
    /// Ticks a second that requests, contributions and generic messages are cut into.
    pub ticks: u64,
    /// All items are asked for once, without updates.
    pub snapshot: bool,
    /// Dictionaries are loaded from the server before items are asked for.
    pub download: bool,
    /// Contributions a second for each mount, and how many of them have stamps.
    pub posts: (u64, u64),
    /// The same of generic messages.
    pub generics: (u64, u64),
    /// What publishers send: for contributions, and to check and compare what comes.
    pub sets: Arc<Vec<MessageSet>>,
    /// Every update's count is looked at: gaps and losses are seen. The publisher is ours.
    pub check: bool,
    /// Every field of every update is looked at, as an application would.
    pub decode: bool,
    /// All items' fields are kept, so that they can be compared with the publisher's.
    pub compare: bool,
    /// Stamps hold nanoseconds, not microseconds.
    pub nanoseconds: bool,
    /// A mount that was cut connects again after this time, doubled up to the second; `None`: it stays away.
    pub reconnect: Option<(Duration, Duration)>,
    /// Looks for work without a pause.
    pub busy: bool,
    /// Who they say they are.
    pub user: String,
    /// Most bytes that are taken in one second by each mount; `None`: all there is. For tests of slow consumers.
    pub slow: Option<u64>,
}

impl ConsumerOptions {
    /// One mount for `items` items, with the defaults of the vendor's performance consumer.
    #[must_use]
    pub fn new(to: SocketAddr, items: usize, sets: Arc<Vec<MessageSet>>) -> Self {
        Self {
            to,
            items: Arc::new(super::items::generated(items)),
            shares: Shares::one(items),
            mounts: 1,
            threads: 1,
            service: "DIRECT_FEED".into(),
            request_rate: 500_000,
            ticks: 1_000,
            snapshot: false,
            download: false,
            posts: (0, 0),
            generics: (0, 0),
            sets,
            check: true,
            decode: false,
            compare: false,
            nanoseconds: false,
            reconnect: Some((Duration::from_millis(100), Duration::from_secs(5))),
            busy: false,
            user: "client".into(),
            slow: None,
        }
    }
}

/// What a mount sends besides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Post = 0,
    Generic = 1,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened so far, at one mount or at all.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counts {
            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// What happened since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }
        }
    };
}

counts! {
    /// Updates.
    updates,
    /// Images and parts of images.
    refreshes,
    /// Statuses of items.
    statuses,
    /// Bytes read.
    bytes,
    /// Of the updates, those with a stamp.
    stamps,
    /// Places where an item's updates are not one after the other.
    gaps,
    /// Updates missing there.
    lost,
    /// Updates that came again, or late.
    backwards,
    /// Updates before the image.
    early,
    /// Messages for streams that nobody opened.
    unknown,
    /// Data that could not be read.
    undecodable,
    /// Fields looked at.
    fields,
    /// Times that an item became suspect.
    suspect,
    /// Items refused or closed for good.
    closed,
    /// Items closed that may be asked for again.
    closed_recover,
    /// Times that the service was reported down or gone.
    service_downs,
    /// Item requests.
    requests,
    /// Logins accepted.
    logins,
    /// Bytes of dictionaries.
    dictionary_bytes,
    /// Contributions sent.
    posts,
    /// Contributions that came back as updates.
    posts_back,
    /// Contributions acknowledged.
    acks,
    /// Contributions refused.
    naks,
    /// Generic messages sent.
    generics_sent,
    /// Generic messages received.
    generics,
    /// Connections that ended or failed.
    cuts,
}

impl Counts {
    /// Whether nothing is missing and nobody was cut.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.gaps
            + self.backwards
            + self.early
            + self.unknown
            + self.undecodable
            + self.suspect
            + self.closed
            + self.closed_recover
            + self.cuts
            == 0
    }
}

/// All that is known at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Over all mounts.
    pub counts: Counts,
    /// Updates of each mount.
    pub mounts: Vec<u64>,
    /// Item streams that all mounts are to have.
    pub wanted: u64,
    /// Item streams whose image has come and is not in doubt.
    pub loaded: u64,
    /// When the last of them was loaded, since the start; `None`: some are not.
    pub startup: Option<Duration>,
    /// Of updates, since the last [`Consumer::mark`].
    pub latency: Latency,
    /// Of contributions, there and back.
    pub post_latency: Latency,
    /// Of generic messages, there and back.
    pub generic_latency: Latency,
}

/// How what clients hold and what was published differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Item streams compared.
    pub items: u64,
    /// Their fields.
    pub fields: u64,
    /// Item streams whose fields are all equal.
    pub equal: u64,
    /// Item streams without an image, or suspect.
    pub missing: u64,
    /// Item streams that hold an older state than the publisher's last.
    pub behind: u64,
    /// The first differences in words.
    pub differences: Vec<String>,
}

/// Differences that are told.
const DIFFERENCES: usize = 10;

impl Comparison {
    /// Whether everything is there and equal.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.items > 0 && self.equal == self.items && self.missing == 0 && self.behind == 0
    }
}

/// What all threads share.
struct Shared {
    to: SocketAddr,
    items: Arc<Vec<Item>>,
    shares: Shares,
    service: String,
    snapshot: bool,
    download: bool,
    posts: (u64, u64),
    generics: (u64, u64),
    sets: Arc<Vec<MessageSet>>,
    check: bool,
    decode: bool,
    compare: bool,
    nanoseconds: bool,
    reconnect: Option<(Duration, Duration)>,
    busy: bool,
    ticks: u64,
    slow: Option<u64>,
    user: String,
    host: String,
    post_user: PostUser,
    /// Bytes of an update without a stamp; 0: they differ.
    plain_len: usize,
    sequence_field: Option<i16>,
    /// Where the value of that field lies in an update of the usual kind.
    sequence_at: usize,
    sequence_mark: [u8; 3],
    start: Duration,
    stop: AtomicBool,
}

impl Shared {
    /// The count of updates in an update, as on the wire.
    #[inline]
    fn sequence_of(&self, message: &[u8]) -> Option<u32> {
        let at = self.sequence_at;
        if let Some(&[a, b, c, v0, v1, v2, v3]) = message.get(at.wrapping_sub(3)..at + 4)
            && [a, b, c] == self.sequence_mark
        {
            return Some(u32::from_be_bytes([v0, v1, v2, v3]));
        }
        self.sequence_elsewhere(message)
    }

    #[cold]
    fn sequence_elsewhere(&self, message: &[u8]) -> Option<u32> {
        let update = Update::decode(message).ok()?;
        streams::last_count(self, update.container, update.payload).ok()?
    }

    /// When an update was sent, if it says so: the stamp is its last field.
    fn stamp_of(&self, message: &[u8]) -> Option<Duration> {
        let id = TIM_TRK_1.to_be_bytes();
        for len in 1..=8usize {
            let at = message.len().checked_sub(len + 3)?;
            if message.get(at..at + 3) == Some(&[id[0], id[1], len as u8]) {
                // It looks like one; only a walk over all fields can tell.
                return self.stamp_in(Update::decode(message).ok()?.payload, TIM_TRK_1);
            }
        }
        None
    }

    /// The value of a stamp in some data.
    fn stamp_in(&self, payload: &[u8], field: i16) -> Option<Duration> {
        let in_list = |list: &[u8]| -> Option<u64> {
            let list = FieldList::decode(list, None).ok()?;
            let entry = list.entries().filter_map(rssl::Result::ok).find(|entry| entry.id == field)?;
            (!entry.data.is_empty() && entry.data.len() <= 8)
                .then(|| entry.data.iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte)))
        };
        let found = in_list(payload).or_else(|| {
            let map = Map::decode(payload).ok()?;
            map.entries().filter_map(rssl::Result::ok).find_map(|entry| in_list(entry.data))
        })?;
        Some(if self.nanoseconds { Duration::from_nanos(found) } else { Duration::from_micros(found) })
    }

    fn stamp(&self, at: Duration) -> u64 {
        (if self.nanoseconds { at.as_nanos() } else { at.as_micros() }) as u64
    }

    /// Looks at every field; returns how many there are.
    fn decode(&self, message: &[u8]) -> u64 {
        let Ok(update) = Update::decode(message) else { return 0 };
        let Ok(list) = FieldList::decode(update.payload, None) else { return 0 };
        let mut fields = 0;
        for entry in list.entries().flatten() {
            let mut value = Reader::new(entry.data);
            let _ = std::hint::black_box(value.u8());
            fields += 1;
        }
        fields
    }
}

/// What one thread tells those who ask.
#[derive(Default)]
struct Told {
    snapshot: Snapshot,
    /// Answers to the last question; `None`: it was not answered yet.
    images: Option<Vec<Held>>,
    marks: u64,
    why_cut: Vec<String>,
}

/// One item stream: whose, whether it is loaded, and what it holds.
type Held = (usize, bool, Image);

/// The line to one thread.
struct Desk {
    told: Mutex<Told>,
    answered: Condvar,
    want_images: AtomicBool,
    marks: AtomicU64,
    waker: Waker,
}

impl Desk {
    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Running clients. Dropped: they stop.
pub struct Consumer {
    shared: Arc<Shared>,
    desks: Vec<Arc<Desk>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Consumer {
    /// Connects and serves on threads of its own.
    ///
    /// # Errors
    /// There is nothing to do it with, or nothing to check by.
    pub fn start(options: ConsumerOptions) -> Result<Self> {
        ensure!(options.mounts > 0, "no mounts");
        ensure!(
            options.items.len() >= options.shares.distinct(),
            "{} items are wanted, the list has {}",
            options.shares.distinct(),
            options.items.len()
        );
        let first = options.sets.first();
        let template = first.and_then(|set| set.updates.first());
        let sequence_field = first.and_then(|set| set.sequence);
        ensure!(
            !options.check || sequence_field.is_some(),
            "the updates have no unsigned field of four bytes that could count them: nothing can be checked"
        );
        let plain_len = match (options.check || options.compare, first) {
            (true, Some(set)) if options.sets.len() == 1 => {
                let mut lens =
                    set.updates.iter().map(|update| update.frame_len() - rssl::transport::FRAME_HEADER);
                let len = lens.next().unwrap_or(0);
                if lens.all(|other| other == len) { len } else { 0 }
            }
            _ => 0,
        };
        let [hi, lo] = sequence_field.unwrap_or(0).to_be_bytes();
        let threads = options.threads.clamp(1, options.mounts);
        let shared = Arc::new(Shared {
            to: options.to,
            items: options.items,
            shares: options.shares,
            service: options.service,
            snapshot: options.snapshot,
            download: options.download,
            posts: options.posts,
            generics: options.generics,
            sets: options.sets.clone(),
            check: options.check,
            decode: options.decode,
            compare: options.compare,
            nanoseconds: options.nanoseconds,
            reconnect: options.reconnect,
            busy: options.busy,
            ticks: options.ticks,
            slow: options.slow,
            user: options.user,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            post_user: PostUser { addr: u32::from(std::net::Ipv4Addr::LOCALHOST), id: std::process::id() },
            plain_len,
            sequence_field,
            sequence_at: template.and_then(super::message_set::Template::sequence_at).unwrap_or(3),
            sequence_mark: [hi, lo, 4],
            start: crate::net::now(),
            stop: AtomicBool::new(false),
        });
        let mut all = Self { shared: shared.clone(), desks: Vec::new(), threads: Vec::new() };
        for number in 0..threads {
            let mine = (number..options.mounts).step_by(threads);
            let rate = (options.request_rate / threads as u64).max(1);
            let (tell, told) = std::sync::mpsc::channel();
            let common = shared.clone();
            let body = move || {
                let poller = Poller::new()?;
                let desk = Arc::new(Desk {
                    told: Mutex::default(),
                    answered: Condvar::new(),
                    want_images: AtomicBool::new(false),
                    marks: AtomicU64::new(0),
                    waker: poller.waker(),
                });
                let _ = tell.send(desk.clone());
                drive::Drive::new(common, desk, poller, mine, rate)?.run()
            };
            let thread = std::thread::Builder::new().name(format!("client-{number}")).spawn(body);
            all.threads.push(thread.context("start a client's thread")?);
            all.desks.push(told.recv().context("a client's thread has no descriptors")?);
        }
        Ok(all)
    }

    /// What is known until a moment ago.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot { startup: Some(Duration::ZERO), ..Snapshot::default() };
        let count = self.desks.len();
        let mut mounts = Vec::new();
        for (number, desk) in self.desks.iter().enumerate() {
            let told = desk.told();
            all.counts.add(&told.snapshot.counts);
            all.wanted += told.snapshot.wanted;
            all.loaded += told.snapshot.loaded;
            all.latency.add(&told.snapshot.latency);
            all.post_latency.add(&told.snapshot.post_latency);
            all.generic_latency.add(&told.snapshot.generic_latency);
            all.startup = all.startup.zip(told.snapshot.startup).map(|(a, b)| a.max(b));
            mounts.extend(
                told.snapshot.mounts.iter().enumerate().map(|(place, n)| (place * count + number, *n)),
            );
        }
        mounts.sort_unstable();
        all.mounts = mounts.into_iter().map(|(_, updates)| updates).collect();
        all
    }

    /// Waits until all items are loaded.
    ///
    /// # Errors
    /// They are not within `timeout`; what is missing, and why mounts were cut.
    pub fn loaded(&self, timeout: Duration) -> Result<Snapshot> {
        let end = crate::net::now() + timeout;
        loop {
            let seen = self.snapshot();
            if seen.wanted > 0 && seen.loaded == seen.wanted {
                return Ok(seen);
            }
            ensure!(
                crate::net::now() < end && !self.threads.iter().all(JoinHandle::is_finished),
                "{} of {} item streams are loaded after {timeout:?}; {:?}; cut: {:?}",
                seen.loaded,
                seen.wanted,
                seen.counts,
                self.why_cut()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Forgets latencies: they are measured from here on.
    pub fn mark(&self) {
        for desk in &self.desks {
            let mark = desk.marks.fetch_add(1, Ordering::Relaxed) + 1;
            desk.waker.wake();
            let mut told = desk.told();
            while told.marks < mark && !self.threads.iter().all(JoinHandle::is_finished) {
                let waited = desk.answered.wait_timeout(told, Duration::from_millis(100));
                told = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
        }
    }

    /// Compares every field of every item stream with what the publisher's messages make of it, and with how many it
    /// sent (name → updates), where that is known. The publisher should rest and its messages should have arrived.
    #[must_use]
    pub fn compare(&self, published: Option<&HashMap<String, u32>>) -> Comparison {
        let mut all = Comparison::default();
        for desk in &self.desks {
            for (place, loaded, image) in self.images(desk) {
                self.compare_one(place, loaded, &image, published, &mut all);
            }
        }
        all
    }

    fn compare_one(
        &self,
        place: usize,
        loaded: bool,
        image: &Image,
        published: Option<&HashMap<String, u32>>,
        all: &mut Comparison,
    ) {
        let Some(item) = self.shared.items.get(place) else { return };
        all.items += 1;
        let mut differs = |why: String| {
            if all.differences.len() < DIFFERENCES {
                all.differences.push(format!("{}: {why}", item.name));
            }
        };
        if !loaded {
            all.missing += 1;
            differs("has no image, or is suspect".into());
            return;
        }
        let set = self.shared.sets.iter().find(|set| set.domain == item.domain);
        let Some((set, n)) = set.and_then(|set| Some((set, image.count(set.sequence?)?))) else {
            differs("does not say how many updates it has seen".into());
            return;
        };
        if let Some(last) = published.and_then(|all| all.get(&item.name))
            && *last != n
        {
            all.behind += 1;
            differs(format!("is at update {n}, the publisher at {last}"));
            return;
        }
        let wanted = set.image(values::seed(item.name.as_bytes()), n);
        all.fields += wanted.fields() as u64;
        match image.difference(&wanted) {
            None => all.equal += 1,
            Some(why) => differs(why),
        }
    }

    fn images(&self, desk: &Desk) -> Vec<Held> {
        let mut told = desk.told();
        told.images = None;
        desk.want_images.store(true, Ordering::Relaxed);
        desk.waker.wake();
        loop {
            match told.images.take() {
                Some(images) => return images,
                None if self.threads.iter().all(JoinHandle::is_finished) => return Vec::new(),
                None => {
                    let waited = desk.answered.wait_timeout(told, Duration::from_millis(100));
                    told = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Why connections ended, in no order; emptied by this.
    #[must_use]
    pub fn why_cut(&self) -> Vec<String> {
        self.desks.iter().flat_map(|desk| std::mem::take(&mut desk.told().why_cut)).collect()
    }

    /// Logs out, ends and says what happened.
    ///
    /// # Errors
    /// What ended a thread before.
    pub fn stop(mut self) -> Result<Snapshot> {
        self.end()?;
        Ok(self.snapshot())
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.desks.iter().for_each(|desk| desk.waker.wake());
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow::anyhow!("a client's thread panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
