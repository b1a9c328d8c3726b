//! A publisher of invented prices: an interactive provider that accepts every item name.
//!
//! It is only for the demo. Load and comparison tests use the publisher of `mdist-load`.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rssl::rdm::{directory, login};
use rssl::rwf::{
    Class, DataState, DataType, Domain, FieldListWriter, Key, Qos, Real, Refresh, RefreshFlags, Request,
    RequestFlags, State, Status, StreamState, Update, code, peek,
};
use rssl::transport::{Channel, InputBuffer, Pulled, Received, ServerOptions, Tick};
use rssl::wire::to_vec;

use crate::net::now;

/// The service.
pub(super) const SERVICE: &str = "DIRECT_FEED";
const SERVICE_ID: u16 = 1;
/// Field ids of the vendor's dictionary.
const PRICE: i16 = 6;
const BID: i16 = 22;
const ASK: i16 = 25;
const BID_SIZE: i16 = 30;
const ASK_SIZE: i16 = 31;
/// Exponent hint of a price with two decimals.
const CENTS: u8 = 12;
/// Exponent hint of a whole number.
const WHOLE: u8 = 14;
/// Time between two groups of updates.
const TICK: Duration = Duration::from_millis(10);
/// Maximum number of items of one connection; further requests are refused.
const MAX_ITEMS: usize = 100_000;
/// Time after which an unread connection is closed.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// A listening publisher; it stops when dropped.
pub(super) struct Publisher {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    published: AtomicU64,
}

impl Publisher {
    /// Listens on a free port of 127.0.0.1; each connection gets `rate` updates a second, spread over its open items.
    pub(super) fn start(rate: u64) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let thread = std::thread::spawn(move || accept(&listener, &accepting, rate));
        Ok(Self { address, shared, thread: Some(thread) })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Updates published so far.
    pub(super) fn published(&self) -> u64 {
        self.shared.published.load(Ordering::Relaxed)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Ends the wait for a connection.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, rate: u64) {
    let mut connections = Vec::new();
    for socket in listener.incoming().flatten() {
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        let shared = Arc::clone(shared);
        connections.push(std::thread::spawn(move || {
            if let Err(error) = Connection::new(socket, &shared, rate).and_then(Connection::serve) {
                tracing::debug!("the demo's publisher lost a connection: {error:#}");
            }
        }));
    }
    for connection in connections {
        let _ = connection.join();
    }
}

/// An open item: its stream and the price it has reached, in cents.
struct Item {
    stream: i32,
    price: i64,
    updates: u64,
}

struct Connection<'a> {
    socket: TcpStream,
    channel: Channel,
    shared: &'a Shared,
    rate: u64,
    /// By stream.
    items: BTreeMap<i32, Item>,
    /// The stream that was updated last.
    last: i32,
    out: Vec<u8>,
}

impl<'a> Connection<'a> {
    fn new(socket: TcpStream, shared: &'a Shared, rate: u64) -> Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TICK))?;
        socket.set_write_timeout(Some(WRITE_LIMIT))?;
        let channel = Channel::server(ServerOptions::default());
        Ok(Self { socket, channel, shared, rate, items: BTreeMap::new(), last: 0, out: Vec::new() })
    }

    fn serve(mut self) -> Result<()> {
        let (mut buffer, mut input) = (vec![0; 64 * 1024], InputBuffer::default());
        let (start, mut sent) = (Instant::now(), 0);
        while !self.shared.stop.load(Ordering::Relaxed) {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.channel.received(now());
                    let bytes = buffer.get(..count).unwrap_or_default();
                    input.receive(bytes, |received| self.answer(received))?;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
            let due = (start.elapsed().as_secs_f64() * self.rate as f64) as u64;
            self.update(due - sent)?;
            sent = due;
            match self.channel.tick(now()) {
                Tick::None => {}
                Tick::SendPing => self.channel.ping(&mut self.out),
                Tick::PeerSilent => bail!("the peer was silent for its ping timeout"),
            }
            if !self.out.is_empty() {
                self.socket.write_all(&self.out)?;
                self.out.clear();
                self.channel.sent(now());
            }
        }
        Ok(())
    }

    /// Answers every whole message in `received`.
    fn answer(&mut self, received: &mut Received<'_>) -> Result<()> {
        loop {
            let replies = match received.pull(&mut self.channel)? {
                Pulled::NeedMore => return Ok(()),
                Pulled::Opened(_) | Pulled::Handshake => {
                    self.channel.take_output(&mut self.out);
                    continue;
                }
                Pulled::Ping => continue,
                Pulled::Refused { text } => bail!("refused: {text}"),
                Pulled::Message(message) => reply(&mut self.items, message)?,
            };
            if let Some(reply) = replies {
                self.channel.write(&reply, &mut self.out)?;
            }
        }
    }

    /// Sends `count` updates, to the open items in turn.
    fn update(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let next = self.items.range(self.last.saturating_add(1)..).next().map(|(stream, _)| *stream);
            let Some(stream) = next.or_else(|| self.items.keys().next().copied()) else { return Ok(()) };
            let Some(item) = self.items.get_mut(&stream) else { return Ok(()) };
            item.updates += 1;
            // A walk of at most two cents a step that stays above one unit.
            item.price = (item.price + (item.updates * 7 % 5) as i64 - 2).max(100);
            let payload = item.payload()?;
            self.channel.write(
                &Update::new(Domain::MARKET_PRICE, stream, DataType::FIELD_LIST, &payload).to_vec()?,
                &mut self.out,
            )?;
            self.last = stream;
            self.shared.published.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Item {
    /// The first price depends on the name alone, so that every start shows the same one.
    fn new(stream: i32, name: &[u8]) -> Self {
        let seed = name.iter().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
        Self { stream, price: i64::from(seed % 40_000) + 1_000, updates: 0 }
    }

    fn payload(&self) -> rssl::Result<Vec<u8>> {
        let size =
            |side: u64| (1 + (self.updates * side + self.stream.unsigned_abs() as u64) % 20) as i64 * 100;
        to_vec(|w| {
            let mut list = FieldListWriter::new(w)?;
            list.real(PRICE, Real::new(self.price, CENTS))?;
            list.real(BID, Real::new(self.price - 1, CENTS))?;
            list.real(ASK, Real::new(self.price + 1, CENTS))?;
            list.real(BID_SIZE, Real::new(size(3), WHOLE))?;
            list.real(ASK_SIZE, Real::new(size(7), WHOLE))?;
            list.finish()
        })
    }
}

/// The reply to one message, if it needs one.
fn reply(items: &mut BTreeMap<i32, Item>, message: &[u8]) -> Result<Option<Vec<u8>>> {
    let head = peek(message)?;
    Ok(match (head.class, head.domain) {
        (Class::Request, Domain::LOGIN) => {
            let request = Request::decode(message)?;
            let asked = login::Request::decode(&request)?;
            let answer = login::Reply {
                user: asked.user,
                name_type: asked.name_type,
                attributes: login::Attributes { single_open: false, ..asked.attributes },
                ..login::Reply::default()
            };
            Some(to_vec(|w| answer.encode(request.stream, w))?)
        }
        (Class::Request, Domain::DIRECTORY) => Some(directory(&Request::decode(message)?)?),
        (Class::Request, _) => open(items, &Request::decode(message)?)?,
        (Class::Close, Domain::LOGIN) => bail!("the peer logged out"),
        (Class::Close, _) => {
            items.remove(&head.stream);
            None
        }
        _ => None,
    })
}

/// The refresh that answers a request for the directory.
fn directory(request: &Request<'_>) -> Result<Vec<u8>> {
    let filter = request.key.filter.unwrap_or(directory::filter::ALL);
    let service = directory::Service {
        id: SERVICE_ID,
        info: Some(directory::Info {
            name: SERVICE.into(),
            vendor: "utipc".into(),
            is_source: true,
            capabilities: vec![Domain::MARKET_PRICE.0],
            dictionaries_used: vec!["RWFFld".into(), "RWFEnum".into()],
            qos: vec![Qos::REALTIME_TICK],
            ..directory::Info::default()
        }),
        state: Some(directory::ServiceState { up: true, accepting: true, status: None }),
        load: Some(directory::Load::default()),
        ..directory::Service::default()
    };
    let wanted = request.key.service.is_none_or(|id| id == SERVICE_ID);
    let services: Vec<_> = wanted.then_some((directory::Action::Add, service)).into_iter().collect();
    let payload = to_vec(|w| directory::encode(w, filter, &services))?;
    let refresh = Refresh {
        flags: RefreshFlags::REPLY,
        state: State::OK,
        group: &[0, 0],
        key: Some(Key { filter: Some(filter), service: request.key.service, ..Key::default() }),
        ..Refresh::new(Domain::DIRECTORY, request.stream, DataType::MAP, &payload)
    };
    Ok(refresh.to_vec()?)
}

/// The image of an item that was asked for, or the status that refuses it.
fn open(items: &mut BTreeMap<i32, Item>, request: &Request<'_>) -> Result<Option<Vec<u8>>> {
    let refused = match request.key.name {
        _ if request.domain != Domain::MARKET_PRICE => Some("only market prices here"),
        None => Some("a request needs a name"),
        Some(_) if items.len() >= MAX_ITEMS => Some("too many items"),
        Some(_) => None,
    };
    if let Some(text) = refused {
        return Ok(Some(
            Status::new(request.domain, request.stream, State::closed(code::USAGE_ERROR, text.as_bytes()))
                .to_vec()?,
        ));
    }
    let name = request.key.name.unwrap_or_default();
    let streaming = request.flags.contains(RequestFlags::STREAMING);
    let fresh = Item::new(request.stream, name);
    let payload = items.get(&request.stream).unwrap_or(&fresh).payload()?;
    if streaming {
        items.entry(request.stream).or_insert(fresh);
    }
    let stream_state = if streaming { StreamState::Open } else { StreamState::NonStreaming };
    let refresh = Refresh {
        flags: RefreshFlags::REPLY,
        state: State::new(stream_state, DataState::Ok, 0, b""),
        group: &[0, 1],
        qos: Some(Qos::REALTIME_TICK),
        key: Some(Key {
            service: request.key.service,
            name: Some(name),
            name_type: request.key.name_type,
            ..Key::default()
        }),
        ..Refresh::new(request.domain, request.stream, DataType::FIELD_LIST, &payload)
    };
    Ok(Some(refresh.to_vec()?))
}

#[cfg(test)]
mod tests {
    use rssl::rwf::Message;

    use super::*;

    #[test]
    fn only_market_prices_with_a_name_are_opened() {
        let mut items = BTreeMap::new();
        let named = Key::item(SERVICE_ID, b"ITEM");
        for (domain, key) in [(Domain(7), named), (Domain::MARKET_PRICE, Key::default())] {
            let request = Request::new(domain, 5, RequestFlags::NONE, key);
            let reply = open(&mut items, &request).unwrap().unwrap();
            let Message::Status(status) = Message::decode(&reply).unwrap() else { panic!("not a status") };
            assert_eq!(status.state.unwrap().stream, StreamState::Closed);
        }
        let request = Request::new(Domain::MARKET_PRICE, 5, RequestFlags::NONE, named);
        let reply = open(&mut items, &request).unwrap().unwrap();
        let Message::Refresh(refresh) = Message::decode(&reply).unwrap() else { panic!("not an image") };
        assert_eq!((refresh.stream, refresh.state.stream), (5, StreamState::NonStreaming));
        assert!(items.is_empty(), "a snapshot request leaves a stream open");
    }
}
