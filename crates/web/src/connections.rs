//! The connections of the server: a bounded number, each with one deadline.
//!
//! A new connection replaces an idle one of the address with the most connections. So a host that only connects evicts
//! its own connections, and a host that sends its request at once is always served.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::response::Response;

/// Longest request head, bytes; a client that sends more is disconnected.
pub(crate) const MAX_HEAD: usize = 8 * 1024;
/// Maximum number of header lines of a request.
pub(crate) const MAX_HEADERS: usize = 64;
/// Maximum number of connections.
pub(crate) const MAX_CONNECTIONS: usize = 128;
/// Maximum number of bytes of responses that wait for slow clients; above this the oldest are disconnected.
const MAX_WAITING: usize = 16 << 20;

/// Answers a complete request.
type Respond<'a> = dyn FnMut(&httparse::Request<'_, '_>) -> Response + 'a;

/// All connections, oldest first.
#[derive(Debug)]
pub(crate) struct Connections {
    list: Vec<Exchange>,
    deadline: Duration,
}

impl Connections {
    /// Each connection has `deadline` for its request and its response.
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { list: Vec::new(), deadline }
    }

    /// When the first deadline passes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.list.iter().map(|exchange| exchange.end).min()
    }

    /// The sockets with what each waits for, in the order of [`Connections::serve`].
    pub(crate) fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.list.iter().map(|exchange| {
            let waits_for = if exchange.output.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            PollFd::new(&exchange.stream, waits_for)
        })
    }

    /// Adds a client, and serves it if its request has arrived. If there are too many, another one is closed.
    pub(crate) fn add(&mut self, stream: TcpStream, from: IpAddr, respond: &mut Respond<'_>) {
        let mut exchange = Exchange {
            stream,
            from: network(from),
            end: Instant::now() + self.deadline,
            head: Vec::new(),
            output: Vec::new(),
            written: 0,
        };
        if !exchange.proceed(respond) {
            return;
        }
        if self.list.len() >= MAX_CONNECTIONS
            && let Some(victim) = self.victim()
        {
            self.list.remove(victim);
        }
        self.list.push(exchange);
        self.limit_waiting();
    }

    /// Serves the connections that are ready.
    pub(crate) fn serve(&mut self, ready: &[bool], respond: &mut Respond<'_>) {
        let mut ready = ready.iter();
        self.list
            .retain_mut(|exchange| !ready.next().copied().unwrap_or_default() || exchange.proceed(respond));
        self.limit_waiting();
    }

    /// Closes the connections whose deadline has passed.
    pub(crate) fn close_expired(&mut self, now: Instant) {
        self.list.retain(|exchange| exchange.end > now);
    }

    /// The connection to close for a new one: the oldest with an incomplete request, else the oldest, of the address
    /// with the most connections.
    fn victim(&self) -> Option<usize> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for exchange in &self.list {
            *counts.entry(exchange.from).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let of_heaviest = || {
            let all = self.list.iter().enumerate();
            all.filter(|(_, exchange)| counts.get(&exchange.from) == Some(&most))
        };
        let idle = of_heaviest().find(|(_, exchange)| exchange.output.is_empty());
        idle.or_else(|| of_heaviest().next()).map(|(at, _)| at)
    }

    /// Disconnects the oldest client that does not read, if too many bytes wait for all such clients.
    fn limit_waiting(&mut self) {
        let mut waiting: usize = self.list.iter().map(|exchange| exchange.output.len()).sum();
        let mut left = self.list.len();
        self.list.retain(|exchange| {
            left -= 1;
            let goes = waiting > MAX_WAITING && !exchange.output.is_empty() && left > 0;
            if goes {
                waiting -= exchange.output.len();
            }
            !goes
        });
    }
}

/// One connection: a request, and the response once the request is complete.
#[derive(Debug)]
struct Exchange {
    stream: TcpStream,
    /// Its client's address, or network of IPv6.
    from: IpAddr,
    end: Instant,
    head: Vec<u8>,
    /// The response; empty until the request is complete.
    output: Vec<u8>,
    /// Bytes of the response that are written.
    written: usize,
}

impl Exchange {
    /// Reads and writes as far as the socket allows. Returns whether the connection goes on.
    fn proceed(&mut self, respond: &mut Respond<'_>) -> bool {
        match self.exchange(respond) {
            Ok(goes_on) => goes_on,
            Err(why) if why.kind() == ErrorKind::WouldBlock => true,
            Err(why) => {
                tracing::debug!(%why, "a client of the metrics server was lost");
                false
            }
        }
    }

    fn exchange(&mut self, respond: &mut Respond<'_>) -> io::Result<bool> {
        let mut part = [0; 1024];
        while self.output.is_empty() {
            let count = match self.stream.read(&mut part) {
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            };
            if count == 0 || self.head.len() + count > MAX_HEAD {
                return Ok(false);
            }
            self.head.extend_from_slice(part.get(..count).unwrap_or_default());
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut request = httparse::Request::new(&mut headers);
            let response = match request.parse(&self.head) {
                Ok(httparse::Status::Partial) => continue,
                Ok(httparse::Status::Complete(_)) => respond(&request),
                Err(why) => Response::error("400 Bad Request", format!("the request is invalid: {why}")),
            };
            self.output = response.bytes();
        }
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Ok(false),
                Ok(count) => self.written += count,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(false)
    }
}

/// The part of an address for which connections are counted: an IPv6 host chooses the lower 64 bits freely.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}
