//! The server. It supports only GET, and one request per connection.
//!
//! `httparse` decodes the request head. A few threads serve the connections, and each connection has one deadline for
//! the whole exchange, so slow and silent clients cannot block others for long, and the number of clients changes
//! neither the memory nor the descriptors of the program.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::guard::{self, Hosts};
use crate::page;
use crate::response::{Request, Response};

/// Longest request head, bytes; a client that sends more is disconnected.
const MAX_HEAD: usize = 8 * 1024;
/// Most header lines of a request.
const MAX_HEADERS: usize = 64;
/// Longest exchange: after this time the client is disconnected.
const DEADLINE: Duration = Duration::from_secs(2);
/// Number of connections that are served at a time; others wait in the listener's queue.
const THREADS: usize = 4;
/// Pause after the system refused a connection, as without free descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// What a program serves beside the page. It is called on several threads at a time and must not block.
pub trait Site: Send + Sync + 'static {
    /// The response to a request; `None` if there is nothing at its path.
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
    /// Listens on `address` ("127.0.0.1:9464"; port 0 takes a free one).
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
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves `site` to clients that name the server by one of `hosts`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(bound: Bound, hosts: Hosts, site: impl Site) -> io::Result<Self> {
        let Bound { listener, deadline } = bound;
        let mut server = Self {
            address: listener.local_addr()?,
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        let (listener, place) = (Arc::new(listener), Arc::new(Place { hosts, site, deadline }));
        for _ in 0..THREADS {
            let (listener, place, stop) = (listener.clone(), place.clone(), server.stop.clone());
            let thread = std::thread::Builder::new().name("metrics".to_owned());
            server.threads.push(thread.spawn(move || serve(&listener, &place, &stop))?);
        }
        Ok(server)
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
        // Each connection wakes one thread, which then finds that it has to stop.
        let woken = self.threads.iter().all(|_| TcpStream::connect_timeout(&to, DEADLINE).is_ok());
        if woken {
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

/// What the threads share.
struct Place<S> {
    hosts: Hosts,
    site: S,
    deadline: Duration,
}

impl<S: Site> Place<S> {
    fn respond(&self, request: &httparse::Request<'_, '_>) -> Response {
        if request.method != Some("GET") {
            return Response::error("405 Method Not Allowed", "use GET");
        }
        let asked = Request::new(request.path.unwrap_or_default());
        if let Some(refusal) = guard::refusal(&self.hosts, asked.path, request.headers) {
            return refusal;
        }
        let found = self.site.respond(&asked).or_else(|| page::file(asked.path));
        found.unwrap_or_else(|| Response::error("404 Not Found", format!("use {}", self.site.paths())))
    }
}

fn serve<S: Site>(listener: &TcpListener, place: &Place<S>, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        if accepted.is_err() {
            std::thread::sleep(REFUSED_PAUSE);
        }
        let served = accepted.and_then(|(stream, _)| {
            let mut exchange = Exchange { stream, end: Instant::now() + place.deadline };
            exchange.serve(place)
        });
        if let Err(why) = served {
            tracing::debug!(%why, "a client of the metrics server was lost");
        }
    }
}

/// A connection whose reads and writes share one deadline.
struct Exchange {
    stream: TcpStream,
    end: Instant,
}

impl Exchange {
    /// Reads a request and writes the response. Closes without one if the head is too long or ends early.
    fn serve<S: Site>(&mut self, place: &Place<S>) -> io::Result<()> {
        let mut head = Vec::new();
        let mut part = [0; 1024];
        let response = loop {
            let n = self.read(&mut part)?;
            if n == 0 || head.len() + n > MAX_HEAD {
                return Ok(());
            }
            head.extend_from_slice(part.get(..n).unwrap_or_default());
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(&head) {
                Ok(httparse::Status::Partial) => {}
                Ok(httparse::Status::Complete(_)) => break place.respond(&request),
                Err(why) => {
                    break Response::error("400 Bad Request", format!("the request is invalid: {why}"));
                }
            }
        };
        self.write_all(&response.bytes())
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Exchange {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Exchange {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut stream = TcpStream::connect(server.address()).unwrap();
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
        let response = get(&server, "GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\none 1\n"),
            "{response}"
        );
        let page = get(&server, "GET / HTTP/1.0\r\n\r\n");
        assert!(page.contains("Content-Type: text/html") && page.contains("<!doctype html>"), "{page}");
        for (request, start) in [
            ("GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "HTTP/1.1 200"),
            ("GET /api/state HTTP/1.1\r\nHost: attacker.example\r\n\r\n", "HTTP/1.1 421"),
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

    #[test]
    fn silent_clients_do_not_block_others() {
        let server = start(LONG);
        let silent: Vec<_> = (1..THREADS).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        for _ in 0..3 {
            assert!(get(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        }
        drop(silent);
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
    fn many_silent_clients_cost_no_threads_and_are_gone_after_their_deadlines() {
        let server = start(Duration::from_millis(50));
        let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        assert!(get(&server, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert_eq!(server.threads.len(), THREADS);
        drop(clients);
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
