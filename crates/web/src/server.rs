//! The server. It supports only GET, and one request per connection.
//!
//! `httparse` decodes the request head. One thread polls all connections, so that slow and silent clients cannot block
//! others. Each connection has one deadline for the whole exchange, and their number and memory are bounded: see
//! `connections.rs`.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::connections::{Connections, MAX_CONNECTIONS};
use crate::guard::{self, Hosts};
use crate::page;
use crate::response::{Request, Response};

/// Longest exchange: after this time the client is disconnected.
const DEADLINE: Duration = Duration::from_secs(2);
/// Pause after the system refused a connection, as without free descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
/// Longest sleep, after which the thread checks whether to stop even if nothing wakes it.
const MAX_SLEEP: Duration = Duration::from_millis(500);

/// What a program serves in addition to the page. It is called on the server's thread and must not block.
pub trait Site: Send + 'static {
    /// The response to a request; `None` if its path does not exist.
    fn respond(&self, request: &Request<'_>) -> Option<Response>;

    /// The paths of the site, for the error that names them.
    fn paths(&self) -> &'static str;
}

/// An address on which the server will listen: clients already queue.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    deadline: Duration,
}

impl Bound {
    /// Listens on `address` ("127.0.0.1:9464"; port 0 chooses a free one).
    ///
    /// # Errors
    /// The address is invalid or taken; the error names it.
    pub fn new(address: &str) -> io::Result<Self> {
        let why =
            |why: io::Error| io::Error::new(why.kind(), format!("cannot serve metrics on {address}: {why}"));
        let resolved = address.to_socket_addrs().map_err(why)?.collect::<Vec<_>>();
        let listener = TcpListener::bind(resolved.as_slice()).map_err(why)?;
        Ok(Self { listener, deadline: DEADLINE })
    }

    /// The address of the listener.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Serves a site and the page, until dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `site` to clients that name the server by one of `hosts`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(bound: Bound, hosts: Hosts, site: impl Site) -> io::Result<Self> {
        let Bound { listener, deadline } = bound;
        listener.set_nonblocking(true)?;
        let (address, stop) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let connections = Connections::new(deadline);
        let event_loop = EventLoop { listener, connections, accept_at: None, place: Place { hosts, site } };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(move || event_loop.run(&stopped))?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// The address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let mut to = self.address;
        if to.ip().is_unspecified() {
            to.set_ip(match to {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        // A connection wakes the thread; otherwise it wakes by itself.
        let _ = TcpStream::connect_timeout(&to, MAX_SLEEP);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The handler of requests.
struct Place<S> {
    hosts: Hosts,
    site: S,
}

impl<S: Site> Place<S> {
    fn respond(&self, request: &httparse::Request<'_, '_>) -> Response {
        if request.method != Some("GET") {
            return Response::error("405 Method Not Allowed", "use GET");
        }
        let asked = Request::new(request.path.unwrap_or_default());
        if let Some(refusal) = guard::refusal(&self.hosts, request.headers) {
            return refusal;
        }
        let found = self.site.respond(&asked).or_else(|| page::file(asked.path));
        found.unwrap_or_else(|| Response::error("404 Not Found", format!("use {}", self.site.paths())))
    }
}

/// The server's thread.
struct EventLoop<S> {
    listener: TcpListener,
    connections: Connections,
    /// When connections are accepted again; `None`: now.
    accept_at: Option<Instant>,
    place: Place<S>,
}

impl<S: Site> EventLoop<S> {
    fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            match self.wait() {
                Ok((acceptable, ready)) => {
                    let place = &self.place;
                    self.connections.serve(&ready, &mut |request| place.respond(request));
                    if acceptable {
                        self.accept();
                    }
                }
                Err(why) => {
                    tracing::warn!(%why, "the metrics server cannot wait for its clients");
                    std::thread::sleep(REFUSED_PAUSE);
                }
            }
            self.connections.close_expired(Instant::now());
        }
    }

    /// Waits for clients. Returns whether one connects, and for each connection whether it is ready.
    fn wait(&self) -> io::Result<(bool, Vec<bool>)> {
        let now = Instant::now();
        let may_accept = self.accept_at.is_none_or(|at| at <= now);
        let due = [self.connections.deadline(), self.accept_at.filter(|_| !may_accept)];
        let due = due.into_iter().flatten().min().map_or(MAX_SLEEP, |due| due.saturating_duration_since(now));
        // At least a millisecond, so that a deadline that has almost passed does not make the loop spin.
        let sleep = due.clamp(Duration::from_millis(1), MAX_SLEEP);
        let sleep = Timespec { tv_sec: 0, tv_nsec: i64::from(sleep.subsec_nanos()) };
        let accepts = if may_accept { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = vec![PollFd::new(&self.listener, accepts)];
        watched.extend(self.connections.watched());
        match poll(&mut watched, Some(&sleep)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, Vec::new())),
            Err(why) => return Err(why.into()),
        }
        let mut ready = watched.iter().map(|fd| !fd.revents().is_empty());
        let acceptable = ready.next().unwrap_or_default() && may_accept;
        Ok((acceptable, ready.collect()))
    }

    /// Accepts the clients that wait, and serves those whose request has arrived.
    fn accept(&mut self) {
        let place = &self.place;
        self.accept_at = None;
        for _ in 0..MAX_CONNECTIONS {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    let added = stream.set_nonblocking(true);
                    if added.is_ok() {
                        self.connections.add(stream, from.ip(), &mut |request| place.respond(request));
                    }
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                Err(why) => {
                    tracing::debug!(%why, "a client of the metrics server was lost");
                    self.accept_at = Some(Instant::now() + REFUSED_PAUSE);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::connections::{MAX_HEAD, MAX_HEADERS};

    /// Far longer than any exchange takes.
    const LONG: Duration = Duration::from_secs(60);

    struct Numbers;

    impl Site for Numbers {
        fn respond(&self, request: &Request<'_>) -> Option<Response> {
            match request.path {
                "/metrics" => Some(Response::metrics("one 1\n")),
                "/api/state" => Some(Response::json("{}")),
                _ => None,
            }
        }

        fn paths(&self) -> &'static str {
            "/metrics or /api/state"
        }
    }

    fn start(deadline: Duration) -> Server {
        let bound = Bound { deadline, ..Bound::new("127.0.0.1:0").unwrap() };
        Server::start(bound, Hosts::new(&[]), Numbers).unwrap()
    }

    fn get(server: &Server, request: &str) -> String {
        get_from(TcpStream::connect(server.address()).unwrap(), request)
    }

    fn get_from(mut stream: TcpStream, request: &str) -> String {
        stream.set_read_timeout(Some(LONG)).unwrap();
        // It fails if the server has closed the connection already.
        let _ = stream.write_all(request.as_bytes());
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        String::from_utf8(response).unwrap()
    }

    #[test]
    fn known_paths_are_served_and_other_requests_refused() {
        let server = start(DEADLINE);
        let response = get(&server, "GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9464\r\n\r\n");
        assert!(
            response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\none 1\n"),
            "{response}"
        );
        let page = get(&server, "GET / HTTP/1.0\r\n\r\n");
        assert!(page.contains("Content-Type: text/html") && page.contains("<!doctype html>"), "{page}");
        for (request, start) in [
            ("GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "HTTP/1.1 200"),
            ("GET /api/state HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "HTTP/1.1 421"),
            ("GET /metrics HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "HTTP/1.1 421"),
            ("GET /none HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "HTTP/1.1 421"),
            (
                "GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://attacker.example\r\n\r\n",
                "HTTP/1.1 403",
            ),
            ("GET /none HTTP/1.1\r\n\r\n", "HTTP/1.1 404"),
            ("GET /page/../server.rs HTTP/1.1\r\n\r\n", "HTTP/1.1 404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405"),
            ("GET /metrics FTP/1.1\r\n\r\n", "HTTP/1.1 400"),
        ] {
            let response = get(&server, request);
            assert!(response.starts_with(start), "{request}{response}");
            assert!(response.contains("default-src 'none'") && response.contains("nosniff"), "{response}");
            assert!(!response.contains("Access-Control-"), "{response}");
        }
        assert_eq!(get(&server, &"x".repeat(MAX_HEAD + 1)).len(), 0);
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
        assert!(get(&server, &many).starts_with("HTTP/1.1 400"), "more headers than allowed");
    }

    /// Connects from a source address.
    fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddr::from((from, 0))).unwrap();
        connect(&socket, &to).unwrap();
        TcpStream::from(socket)
    }

    #[test]
    fn silent_clients_do_not_block_others() {
        let server = start(LONG);
        let mut silent = Vec::new();
        // More in all than the server keeps; without evictions the last connections would wait for a minute.
        for _ in 0..2 * MAX_CONNECTIONS / 50 {
            silent.extend((0..50).map(|_| TcpStream::connect(server.address()).unwrap()));
            assert!(get(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        }
        // The oldest had to go, the newest are kept.
        silent[0].set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0);
        let last = silent.last_mut().unwrap();
        last.set_nonblocking(true).unwrap();
        assert_eq!(last.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn silent_clients_evict_only_those_of_their_own_address() {
        let server = start(LONG);
        let mut slow = TcpStream::connect(server.address()).unwrap();
        slow.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        for _ in 0..3 {
            let silent: Vec<_> =
                (0..MAX_CONNECTIONS).map(|_| connect_from([127, 0, 0, 2], server.address())).collect();
            assert!(get(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
            drop(silent);
        }
        assert!(get_from(slow, "\r\n").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn client_that_sends_slowly_is_disconnected_at_the_deadline() {
        let server = start(Duration::from_millis(300));
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let start = Instant::now();
        // A byte every 20 ms is never silent for the deadline.
        while !matches!(stream.read(&mut [0; 64]), Ok(0)) {
            assert!(start.elapsed() < LONG, "the client is still connected");
            if stream.write_all(b"G").is_err() {
                return;
            }
        }
    }

    #[test]
    fn silent_clients_are_gone_after_their_deadlines() {
        let server = start(Duration::from_millis(50));
        let mut clients: Vec<_> = (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        for client in &mut clients {
            client.set_read_timeout(Some(LONG)).unwrap();
            assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        }
        assert!(get(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn error_names_the_address_that_cannot_be_used() {
        let server = start(DEADLINE);
        let address = server.address().to_string();
        let error = Bound::new(&address).unwrap_err().to_string();
        assert!(error.contains(&address), "{error}");
        assert!(Bound::new("nonsense").unwrap_err().to_string().contains("nonsense"));
    }
}
