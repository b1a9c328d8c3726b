//! One thread of clients: the sockets of its mounts, and what is to be sent at a rate.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::mount::{Mount, Stamp};
use super::{Counts, Desk, Sent, Shared, Snapshot};
use crate::pace::Pace;
use crate::timer::Timer;
use mdist::net::{Event, Interest, Poller, Socket, SocketOptions, connect, now};

const TIMER: u64 = u64::MAX - 1;
/// How much is read at once, bytes.
const READ: usize = 256 * 1024;
/// Room before what is read, for the front of a frame that came with the read before.
const HELD: usize = 64 * 1024 + 16;
/// Connections that are begun and not yet open, at most: a listener's queue is short.
const CONNECTING: usize = 64;
/// Time for connections that were begun to open before more are.
const CONNECT_PAUSE: Duration = Duration::from_millis(1);
/// Output of a mount beyond which no more is asked for.
const FULL: usize = 256 * 1024;
/// How often others are told what was counted, unless they ask.
const TELL: Duration = Duration::from_millis(5);
/// Reasons for ended connections that are kept.
const REASONS: usize = 100;

pub(super) struct Drive {
    shared: Arc<Shared>,
    desk: Arc<Desk>,
    poller: Poller,
    timer: Timer,
    mounts: Vec<Client>,
    requests: Option<Pace>,
    request_rate: u64,
    sending: [Option<Sending>; 2],
    buffer: Vec<u8>,
    /// Which mount asks next.
    turn: usize,
    marks: u64,
    told: Duration,
    cuts: u64,
    reasons: Vec<String>,
    startup: Option<Duration>,
    /// When the next mount is to connect.
    connect_at: Duration,
    /// Some mount may have output.
    dirty: bool,
}

/// Contributions or generic messages at a rate.
struct Sending {
    pace: Pace,
    /// One in so many has a stamp.
    stamp_every: u64,
    until: u64,
}

struct Client {
    mount: Mount,
    socket: Option<Socket>,
    connecting: bool,
    out: Vec<u8>,
    blocked: bool,
    /// When to connect, and how long to wait after the next failure.
    again: Option<(Duration, Duration)>,
    /// A slow consumer does not read before this.
    rests: Duration,
}

impl Drive {
    pub(super) fn new(
        shared: Arc<Shared>,
        desk: Arc<Desk>,
        poller: Poller,
        numbers: impl Iterator<Item = usize>,
        request_rate: u64,
    ) -> Result<Self> {
        let timer = Timer::new()?;
        poller.add(timer.fd(), TIMER, Interest::Read)?;
        let first_pause = shared.reconnect.map_or(Duration::ZERO, |pause| pause.0);
        let mounts = numbers
            .map(|number| Client {
                mount: Mount::new(shared.clone(), number),
                socket: None,
                connecting: false,
                out: Vec::new(),
                blocked: false,
                again: Some((Duration::ZERO, first_pause)),
                rests: Duration::ZERO,
            })
            .collect();
        Ok(Self {
            shared,
            desk,
            poller,
            timer,
            mounts,
            requests: None,
            request_rate,
            sending: [None, None],
            buffer: vec![0; HELD + READ],
            turn: 0,
            marks: 0,
            told: Duration::ZERO,
            cuts: 0,
            reasons: Vec::new(),
            startup: None,
            connect_at: Duration::ZERO,
            dirty: false,
        })
    }

    pub(super) fn run(mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            for event in events.drain(..) {
                if event.token != TIMER {
                    self.serve(event.token as usize, event);
                }
            }
            let at = now();
            self.connect(at);
            self.request(at);
            self.send(at);
            self.flush(at);
            self.tell(at);
            let timeout = match self.deadline(at) {
                _ if self.shared.busy => Some(Duration::ZERO),
                deadline if deadline <= at => Some(Duration::ZERO),
                deadline => {
                    self.timer.set(Some(deadline)).context("set the timer")?;
                    None
                }
            };
            self.poller.wait(timeout, &mut events)?;
        }
        self.told = Duration::ZERO;
        self.tell(now());
        Ok(())
    }

    /// When something is to be done though nothing arrives.
    fn deadline(&self, at: Duration) -> Duration {
        let mut first = self.told + if at.saturating_sub(self.told) < TELL { TELL } else { TELL * 2 };
        if self.desk.marks.load(Ordering::Relaxed) != self.marks {
            return at;
        }
        let mut earlier = |when: Duration| first = first.min(when);
        if let Some(pace) = &self.requests {
            earlier(pace.next());
        }
        self.sending.iter().flatten().for_each(|sending| earlier(sending.pace.next()));
        earlier(self.connect_at);
        first
    }

    fn connect(&mut self, at: Duration) {
        if at < self.connect_at {
            return;
        }
        let mut room =
            CONNECTING.saturating_sub(self.mounts.iter().filter(|client| client.connecting).count());
        for place in 0..self.mounts.len() {
            let Some(client) = self.mounts.get_mut(place) else { continue };
            let Some((when, pause)) = client.again else { continue };
            if when > at || room == 0 {
                continue;
            }
            room -= 1;
            let longest = self.shared.reconnect.map_or(Duration::ZERO, |pause| pause.1);
            client.again = Some((at + pause, (pause * 2).min(longest)));
            let dialled = connect(self.shared.to, SocketOptions::default()).and_then(|socket| {
                self.poller.add(&socket, place as u64, Interest::Write)?;
                Ok(socket)
            });
            match dialled {
                Ok(socket) => {
                    client.socket = Some(socket);
                    client.connecting = true;
                    client.again = None;
                    client.out.clear();
                    client.blocked = false;
                    client.mount.restart(&mut client.out);
                    self.dirty = true;
                    client.rests = pause;
                }
                Err(why) => self.cut(place, &why.into()),
            }
        }
        let next = self.mounts.iter().filter_map(|client| client.again).map(|again| again.0).min();
        self.connect_at = next.map_or(Duration::MAX, |next| next.max(at + CONNECT_PAUSE));
    }

    fn serve(&mut self, place: usize, event: Event) {
        let shared = self.shared.clone();
        let Some(client) = self.mounts.get_mut(place) else { return };
        if let Err(why) = client.serve(&shared, place as u64, event, &self.poller, &mut self.buffer) {
            self.cut(place, &why);
        } else {
            self.dirty |= self.mounts.get(place).is_some_and(|client| !client.out.is_empty());
        }
    }

    fn cut(&mut self, place: usize, why: &anyhow::Error) {
        self.cuts += 1;
        self.startup = None;
        if self.reasons.len() < REASONS {
            self.reasons.push(format!("{why:#}"));
        }
        let Some(client) = self.mounts.get_mut(place) else { return };
        client.socket = None;
        let was_open = !std::mem::take(&mut client.connecting);
        client.mount.desk.streams.reset();
        let Some((first, longest)) = self.shared.reconnect else {
            client.again = None;
            return;
        };
        // A connection that was open starts the back-off afresh; one that never opened goes on with it.
        let pause = if was_open { first } else { (client.rests * 2).clamp(first, longest) };
        client.again = Some((now() + pause, pause));
        self.connect_at = Duration::ZERO;
    }

    fn request(&mut self, at: Duration) {
        // Whether a mount may ask has to be looked for, so it is not after every read.
        let due = self.requests.as_ref().map_or(self.told + TELL, Pace::next);
        if at < due {
            return;
        }
        self.dirty = true;
        if !self.mounts.iter().any(|client| client.socket.is_some() && client.mount.wants_items()) {
            self.requests = None;
            return;
        }
        let (rate, ticks) = (self.request_rate, self.shared.ticks);
        let pace = self.requests.get_or_insert_with(|| Pace::new(rate, ticks, at));
        let mut left: u64 = std::iter::from_fn(|| pace.due(at)).map(|burst| burst.count).sum();
        let count = self.mounts.len();
        for step in 0..count {
            if left == 0 {
                break;
            }
            let place = (self.turn + step) % count;
            let Some(client) = self.mounts.get_mut(place) else { continue };
            if client.socket.is_none() || client.out.len() >= FULL {
                continue;
            }
            match client.mount.request(left, &mut client.out) {
                Ok(asked) => left -= asked.min(left),
                Err(why) => self.cut(place, &why),
            }
        }
        self.turn = (self.turn + 1) % count.max(1);
    }

    /// Contributions and generic messages, once everything is loaded.
    fn send(&mut self, at: Duration) {
        let nothing = self.shared.posts.0 == 0 && self.shared.generics.0 == 0;
        if self.startup.is_none() || nothing {
            return;
        }
        self.dirty = true;
        for kind in [Sent::Post, Sent::Generic] {
            let (rate, stamps) = if kind == Sent::Post { self.shared.posts } else { self.shared.generics };
            let ticks = self.shared.ticks;
            let Some(sending) = self.sending.get_mut(kind as usize).filter(|_| rate > 0) else { continue };
            let sending = sending.get_or_insert_with(|| Sending {
                pace: Pace::new(rate, ticks, at),
                stamp_every: rate.checked_div(stamps).map_or(u64::MAX, |every| every.max(1)),
                until: 0,
            });
            let mut broken = Vec::new();
            while let Some(burst) = sending.pace.due(at) {
                let stamped =
                    burst.count > 0 && sending.until < burst.count && sending.stamp_every != u64::MAX;
                sending.until = if stamped {
                    sending.until + sending.stamp_every - burst.count
                } else {
                    sending.until.saturating_sub(burst.count)
                };
                let stamp = stamped.then_some(burst.scheduled);
                for (place, client) in self.mounts.iter_mut().enumerate() {
                    if client.socket.is_none() || client.out.len() >= FULL {
                        continue;
                    }
                    if let Err(why) = client.mount.send(kind, burst.count, stamp, &mut client.out) {
                        broken.push((place, why));
                    }
                }
            }
            for (place, why) in broken {
                self.cut(place, &why);
            }
        }
    }

    fn flush(&mut self, at: Duration) {
        let pings = at.saturating_sub(self.told) >= TELL;
        if !pings && !std::mem::take(&mut self.dirty) {
            return;
        }
        for place in 0..self.mounts.len() {
            let Some(client) = self.mounts.get_mut(place) else { continue };
            if client.out.is_empty() && !pings || client.connecting || client.socket.is_none() {
                continue;
            }
            if let Err(why) = client.flush(place as u64, at, &self.poller) {
                self.cut(place, &why);
            }
        }
    }

    fn tell(&mut self, at: Duration) {
        let mark = self.desk.marks.load(Ordering::Relaxed);
        let images = self.desk.want_images.swap(false, Ordering::Relaxed);
        if at.saturating_sub(self.told) < TELL && mark == self.marks && !images {
            return;
        }
        self.told = at;
        if mark != self.marks {
            self.marks = mark;
        }
        let mut told = self.desk.told();
        let mut all = std::mem::take(&mut told.snapshot);
        if told.marks != self.marks {
            told.marks = self.marks;
            all = Snapshot::default();
        }
        (all.counts, all.wanted, all.loaded) = (Counts::default(), 0, 0);
        all.mounts.clear();
        for client in &mut self.mounts {
            let desk = &mut client.mount.desk;
            for (what, sent, received) in desk.stamps.drain(..) {
                match what {
                    Stamp::Update => &mut all.latency,
                    Stamp::Post => &mut all.post_latency,
                    Stamp::Generic => &mut all.generic_latency,
                }
                .record(sent, received);
            }
            all.counts.add(&desk.counts);
            all.mounts.push(desk.counts.updates);
            all.wanted += desk.streams.len() as u64;
            all.loaded += desk.streams.loaded();
        }
        all.counts.add(&Counts { cuts: self.cuts, ..Counts::default() });
        if all.loaded == all.wanted {
            self.startup.get_or_insert(at.saturating_sub(self.shared.start));
        }
        all.startup = self.startup;
        told.snapshot = all;
        told.why_cut.append(&mut self.reasons);
        told.why_cut.truncate(REASONS);
        if images {
            let held = self.mounts.iter().flat_map(|client| client.mount.desk.streams.images());
            told.images = Some(held.map(|(item, loaded, image)| (item, loaded, image.clone())).collect());
        }
        self.desk.answered.notify_all();
    }
}

impl Client {
    fn serve(
        &mut self,
        shared: &Shared,
        token: u64,
        event: Event,
        poller: &Poller,
        buffer: &mut [u8],
    ) -> Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        if event.writable && (self.connecting || self.blocked) {
            if self.connecting {
                socket.connected()?;
                self.connecting = false;
                self.rests = Duration::ZERO;
            }
            self.blocked = false;
            poller.change(&*socket, token, Interest::Read)?;
        }
        if !event.readable || self.connecting {
            return Ok(());
        }
        let unread = self.mount.unread();
        let from = HELD.checked_sub(unread.len()).context("a frame that is too long")?;
        buffer.get_mut(from..HELD).context("a frame that is too long")?.copy_from_slice(unread);
        let into = buffer.get_mut(HELD..).unwrap_or_default();
        let into = match shared.slow {
            Some(rate) => {
                let most = into.len().min((rate / 100).max(1) as usize);
                std::thread::sleep(Duration::from_millis(10));
                into.get_mut(..most).unwrap_or_default()
            }
            None => into,
        };
        match socket.read(into)? {
            Some(0) => bail!("the server closed the connection"),
            Some(count) => {
                self.mount.desk.counts.bytes += count as u64;
                let bytes = buffer.get(from..HELD + count).unwrap_or_default();
                self.mount.input(now(), bytes, &mut self.out)
            }
            None => Ok(()),
        }
    }

    fn flush(&mut self, token: u64, at: Duration, poller: &Poller) -> Result<()> {
        self.mount.tick(at, &mut self.out)?;
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let mut sent = 0;
        while sent < self.out.len() && !self.blocked {
            match socket.write(self.out.get(sent..).unwrap_or_default())? {
                Some(count) => {
                    sent += count;
                    self.mount.sent(at);
                }
                None => {
                    self.blocked = true;
                    poller.change(&*socket, token, Interest::Both)?;
                }
            }
        }
        self.out.drain(..sent);
        Ok(())
    }
}
