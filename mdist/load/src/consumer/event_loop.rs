//! One thread of a consumer: the sockets of its mounts, and the messages that they send at a rate.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::mount::Mount;
use super::mount_state::Stamp;
use super::{Counts, Disconnect, OutgoingKind, Shared, Snapshot, ThreadLink};
use crate::pace::Pace;
use crate::timer::Timer;
use mdist::net::{Connection, Disconnected, Event, Interest, Poller, SocketOptions, connect, now};

const TIMER: u64 = u64::MAX - 1;
/// Bytes read at once.
const READ: usize = 256 * 1024;
/// Space before the bytes read, for the front of an incomplete frame.
const UNREAD_SPACE: usize = 64 * 1024 + 16;
/// Maximum number of connections that are being opened at once, because the queue of a listener is short.
const CONNECTING: usize = 64;
/// Pause between two groups of connection attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(1);
/// Bytes of output above which a mount requests and sends nothing more.
const FULL: usize = 256 * 1024;
/// Time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of disconnects that are kept.
const MAX_KEPT: usize = 100;

/// The event loop of one thread.
pub(super) struct EventLoop {
    shared: Arc<Shared>,
    link: Arc<ThreadLink>,
    poller: Poller,
    timer: Timer,
    clients: Vec<Client>,
    requests: Option<Pace>,
    request_rate: u64,
    sending: [Option<Sending>; 2],
    buffer: Vec<u8>,
    /// The client that requests items first next time.
    next_client: usize,
    /// The last mark that was processed.
    marks: u64,
    reported_at: Duration,
    disconnects: u64,
    /// Disconnects since the last report.
    ended: Vec<Disconnect>,
    /// Time until all items were loaded.
    startup: Option<Duration>,
    /// Time at which the next client is to connect.
    connect_at: Duration,
    /// Whether some client may have output.
    dirty: bool,
}

/// Posts or generic messages at a rate.
struct Sending {
    pace: Pace,
    /// Messages for each stamp.
    stamp_every: u64,
    /// Messages until the next stamp.
    until: u64,
}

/// One mount and its connection.
struct Client {
    number: usize,
    mount: Mount,
    connection: Option<Connection>,
    connecting: bool,
    out: Vec<u8>,
    /// Time at which to connect, and the backoff after the next failure; `None` while connected, or if it must
    /// not reconnect.
    next_attempt: Option<(Duration, Duration)>,
    /// Backoff before the connection that is being opened; zero once it is open.
    backoff: Duration,
}

impl EventLoop {
    pub(super) fn new(
        shared: Arc<Shared>,
        link: Arc<ThreadLink>,
        poller: Poller,
        numbers: impl Iterator<Item = usize>,
        request_rate: u64,
    ) -> Result<Self> {
        let timer = Timer::new()?;
        poller.add(timer.fd(), TIMER, Interest::Read)?;
        let first_pause = shared.options.reconnect.map_or(Duration::ZERO, |pause| pause.0);
        let clients = numbers
            .map(|number| Client {
                number,
                mount: Mount::new(shared.clone(), number),
                connection: None,
                connecting: false,
                out: Vec::new(),
                next_attempt: Some((Duration::ZERO, first_pause)),
                backoff: Duration::ZERO,
            })
            .collect();
        Ok(Self {
            shared,
            link,
            poller,
            timer,
            clients,
            requests: None,
            request_rate,
            sending: [None, None],
            buffer: vec![0; UNREAD_SPACE + READ],
            next_client: 0,
            marks: 0,
            reported_at: Duration::ZERO,
            disconnects: 0,
            ended: Vec::new(),
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
            self.report(at);
            let timeout = match self.deadline(at) {
                _ if self.shared.options.busy => Some(Duration::ZERO),
                deadline if deadline <= at => Some(Duration::ZERO),
                deadline => {
                    self.timer.set(Some(deadline)).context("set the timer")?;
                    None
                }
            };
            self.poller.wait(timeout, &mut events)?;
        }
        self.reported_at = Duration::ZERO;
        self.report(now());
        Ok(())
    }

    /// Time when something is due next if nothing arrives.
    fn deadline(&self, at: Duration) -> Duration {
        let mut first = self.reported_at
            + if at.saturating_sub(self.reported_at) < REPORT_INTERVAL {
                REPORT_INTERVAL
            } else {
                REPORT_INTERVAL * 2
            };
        if self.link.marks.load(Ordering::Relaxed) != self.marks {
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
        let mut free =
            CONNECTING.saturating_sub(self.clients.iter().filter(|client| client.connecting).count());
        for place in 0..self.clients.len() {
            let Some(client) = self.clients.get_mut(place) else { continue };
            let Some((when, pause)) = client.next_attempt else { continue };
            if when > at || free == 0 {
                continue;
            }
            free -= 1;
            let longest = self.shared.options.reconnect.map_or(Duration::ZERO, |pause| pause.1);
            client.next_attempt = Some((at + pause, (pause * 2).min(longest)));
            let connection = connect(self.shared.options.to, SocketOptions::default())
                .and_then(|socket| Connection::new(socket, place as u64, self.poller.registry()));
            match connection {
                Ok(connection) => {
                    client.connection = Some(connection);
                    client.connecting = true;
                    client.next_attempt = None;
                    client.out.clear();
                    client.mount.restart(&mut client.out);
                    self.dirty = true;
                    client.backoff = pause;
                }
                Err(error) => self.disconnect(place, &error.into()),
            }
        }
        let next =
            self.clients.iter().filter_map(|client| client.next_attempt).map(|attempt| attempt.0).min();
        self.connect_at = next.map_or(Duration::MAX, |next| next.max(at + CONNECT_PAUSE));
    }

    fn serve(&mut self, place: usize, event: Event) {
        let shared = self.shared.clone();
        let Some(client) = self.clients.get_mut(place) else { return };
        if let Err(error) = client.serve(&shared, event, &mut self.buffer) {
            self.disconnect(place, &error);
        } else {
            self.dirty |= self.clients.get(place).is_some_and(|client| !client.out.is_empty());
        }
    }

    fn disconnect(&mut self, place: usize, reason: &anyhow::Error) {
        self.disconnects += 1;
        self.startup = None;
        let Some(client) = self.clients.get_mut(place) else { return };
        if self.ended.len() < MAX_KEPT {
            let ended = client.connection.as_ref();
            let local = ended.and_then(|ended| rustix::net::getsockname(ended).ok()?.try_into().ok());
            let arrived = ended.and_then(|ended| rustix::io::ioctl_fionread(ended).ok()).unwrap_or(0);
            self.ended.push(Disconnect {
                mount: client.number,
                local,
                server: self.shared.options.to,
                at: now().saturating_sub(self.shared.start),
                reason: format!("{reason:#}"),
                unread: arrived + client.mount.unread().len() as u64,
            });
        }
        client.connection = None;
        let was_open = !std::mem::take(&mut client.connecting);
        client.mount.state.streams.reset();
        let Some((first, longest)) = self.shared.options.reconnect else {
            client.next_attempt = None;
            return;
        };
        // After a connection that was open the backoff starts from the beginning, else it grows.
        let pause = if was_open { first } else { (client.backoff * 2).clamp(first, longest) };
        client.next_attempt = Some((now() + pause, pause));
        self.connect_at = Duration::ZERO;
    }

    /// Requests the items that are due.
    fn request(&mut self, at: Duration) {
        // Finding the clients that may request items takes a pass over all: not after every read.
        let due = self.requests.as_ref().map_or(self.reported_at + REPORT_INTERVAL, Pace::next);
        if at < due {
            return;
        }
        self.dirty = true;
        if !self
            .clients
            .iter()
            .any(|client| client.connection.is_some() && client.mount.has_items_to_request())
        {
            self.requests = None;
            return;
        }
        let (rate, ticks) = (self.request_rate, self.shared.options.ticks);
        let pace = self.requests.get_or_insert_with(|| Pace::new(rate, ticks, at));
        let mut left: u64 = std::iter::from_fn(|| pace.due(at)).map(|burst| burst.count).sum();
        let count = self.clients.len();
        for step in 0..count {
            if left == 0 {
                break;
            }
            let place = (self.next_client + step) % count;
            let Some(client) = self.clients.get_mut(place) else { continue };
            if client.connection.is_none() || client.out.len() >= FULL {
                continue;
            }
            match client.mount.request(left, &mut client.out) {
                Ok(requested) => left -= requested.min(left),
                Err(error) => self.disconnect(place, &error),
            }
        }
        self.next_client = (self.next_client + 1) % count.max(1);
    }

    /// Sends the posts and generic messages that are due, once everything is loaded.
    fn send(&mut self, at: Duration) {
        let nothing = self.shared.options.posts.0 == 0 && self.shared.options.generics.0 == 0;
        if self.startup.is_none() || nothing {
            return;
        }
        self.dirty = true;
        for kind in [OutgoingKind::Post, OutgoingKind::Generic] {
            let (rate, stamps) = if kind == OutgoingKind::Post {
                self.shared.options.posts
            } else {
                self.shared.options.generics
            };
            let ticks = self.shared.options.ticks;
            let Some(sending) = self.sending.get_mut(kind as usize).filter(|_| rate > 0) else { continue };
            let sending = sending.get_or_insert_with(|| Sending {
                pace: Pace::new(rate, ticks, at),
                stamp_every: rate.checked_div(stamps).map_or(u64::MAX, |every| every.max(1)),
                until: 0,
            });
            let mut failed = Vec::new();
            while let Some(burst) = sending.pace.due(at) {
                let stamped =
                    burst.count > 0 && sending.until < burst.count && sending.stamp_every != u64::MAX;
                sending.until = if stamped {
                    sending.until + sending.stamp_every - burst.count
                } else {
                    sending.until.saturating_sub(burst.count)
                };
                let stamp = stamped.then_some(burst.scheduled);
                for (place, client) in self.clients.iter_mut().enumerate() {
                    if client.connection.is_none() || client.out.len() >= FULL {
                        continue;
                    }
                    if let Err(error) = client.mount.send(kind, burst.count, stamp, &mut client.out) {
                        failed.push((place, error));
                    }
                }
            }
            for (place, error) in failed {
                self.disconnect(place, &error);
            }
        }
    }

    fn flush(&mut self, at: Duration) {
        let pings = at.saturating_sub(self.reported_at) >= REPORT_INTERVAL;
        if !pings && !std::mem::take(&mut self.dirty) {
            return;
        }
        for place in 0..self.clients.len() {
            let Some(client) = self.clients.get_mut(place) else { continue };
            if client.out.is_empty() && !pings || client.connecting || client.connection.is_none() {
                continue;
            }
            if let Err(error) = client.flush(at) {
                self.disconnect(place, &error);
            }
        }
    }

    fn report(&mut self, at: Duration) {
        let mark = self.link.marks.load(Ordering::Relaxed);
        let want_images = self.link.want_images.swap(false, Ordering::Relaxed);
        if at.saturating_sub(self.reported_at) < REPORT_INTERVAL && mark == self.marks && !want_images {
            return;
        }
        self.reported_at = at;
        if mark != self.marks {
            self.marks = mark;
        }
        let mut report = self.link.report();
        let mut all = std::mem::take(&mut report.snapshot);
        if report.marks != self.marks {
            report.marks = self.marks;
            all = Snapshot::default();
        }
        (all.counts, all.wanted, all.loaded) = (Counts::default(), 0, 0);
        all.mounts.clear();
        for client in &mut self.clients {
            let state = &mut client.mount.state;
            for (carrier, sent, received) in state.stamps.drain(..) {
                match carrier {
                    Stamp::Update => &mut all.latency,
                    Stamp::Post => &mut all.post_latency,
                    Stamp::Generic => &mut all.generic_latency,
                }
                .record(sent, received);
            }
            all.counts.add(&state.counts);
            all.mounts.push(state.counts.updates);
            all.wanted += state.streams.len() as u64;
            all.loaded += state.streams.loaded();
        }
        all.counts.add(&Counts { cuts: self.disconnects, ..Counts::default() });
        if all.loaded == all.wanted {
            self.startup.get_or_insert(at.saturating_sub(self.shared.start));
        }
        all.startup = self.startup;
        report.snapshot = all;
        report.services_instead =
            self.clients.iter().find_map(|client| client.mount.state.services_instead());
        report.disconnects.append(&mut self.ended);
        report.disconnects.truncate(MAX_KEPT);
        if want_images {
            let images = self.clients.iter().flat_map(|client| client.mount.state.streams.images());
            report.images = Some(images.map(|(item, loaded, image)| (item, loaded, image.clone())).collect());
        }
        self.link.reported.notify_all();
    }
}

impl Client {
    fn serve(&mut self, shared: &Shared, event: Event, buffer: &mut [u8]) -> Result<()> {
        let Self { mount, connection: Some(connection), out, .. } = self else { return Ok(()) };
        if self.connecting {
            if !event.writable || !connection.open()? {
                return Ok(());
            }
            self.connecting = false;
            self.backoff = Duration::ZERO;
        }
        connection.writable(event)?;
        if !connection.has_input(event) {
            return Ok(());
        }
        let end = match shared.options.slow {
            Some(rate) => {
                std::thread::sleep(Duration::from_millis(10));
                buffer.len().min(UNREAD_SPACE + (rate / 100).max(1) as usize)
            }
            None => buffer.len(),
        };
        let mut taken = Ok(());
        let read = connection.read_behind(UNREAD_SPACE, buffer.get_mut(..end).unwrap_or_default(), |bytes| {
            taken = mount.read(bytes, UNREAD_SPACE, out);
            taken.is_ok()
        });
        taken?;
        match read {
            Ok(()) => Ok(()),
            Err(Disconnected::Closed) => bail!("the server closed the connection"),
            Err(Disconnected::Broken(why)) => Err(why.into()),
        }
    }

    fn flush(&mut self, at: Duration) -> Result<()> {
        self.mount.tick(at, &mut self.out)?;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        if !self.out.is_empty()
            && let Some(count) = connection.write(&[IoSlice::new(&self.out)])?
        {
            self.out.drain(..count);
            self.mount.sent(at);
        }
        Ok(())
    }
}
