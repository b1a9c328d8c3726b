//! The HTTP server of the metrics. It supports only GET, and one request per connection.
//!
//! `httparse` decodes the request head. A few threads serve the connections, and each connection has one
//! deadline for the whole exchange, so slow and silent clients cannot block others for long. For the reason to
//! use no server crate, see docs/decisions/0018-poller-and-metrics-server-of-mdist.md.

use super::registry::Metrics;
use crate::net::{Role, ThreadSettings, spawn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest request head, bytes; a client that sends more is disconnected.
const MAX_HEAD: usize = 8 * 1024;
/// Most header lines of a request.
const MAX_HEADERS: usize = 64;
/// Longest exchange: after this time the client is disconnected.
const DEADLINE: Duration = Duration::from_secs(2);
/// Number of connections that are served at a time; others wait in the listener's queue.
const THREADS: usize = 4;

/// Serves `/metrics`, `/mounts` and `/disconnects`, until dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` ("127.0.0.1:9464"; port 0 takes a free one).
    ///
    /// # Errors
    /// The address is invalid or taken, or the system refuses a thread; the error names the address.
    pub fn start(address: &str, metrics: &Metrics) -> io::Result<Self> {
        Self::start_with(address, metrics, DEADLINE)
    }

    fn start_with(address: &str, metrics: &Metrics, deadline: Duration) -> io::Result<Self> {
        let why =
            |why: io::Error| io::Error::new(why.kind(), format!("cannot serve metrics on {address}: {why}"));
        let resolved = address.to_socket_addrs().map_err(why)?.collect::<Vec<_>>();
        let listener = Arc::new(TcpListener::bind(resolved.as_slice()).map_err(why)?);
        let mut server = Self {
            address: listener.local_addr()?,
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        for _ in 0..THREADS {
            let (listener, metrics, stop) = (listener.clone(), metrics.clone(), server.stop.clone());
            server.threads.push(spawn(Role::Metrics, &ThreadSettings::default(), move || {
                serve(&listener, &metrics, deadline, &stop);
            })?);
        }
        metrics.inner.served.store(true, Ordering::Relaxed);
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

fn serve(listener: &TcpListener, metrics: &Metrics, deadline: Duration, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        let served = accepted.and_then(|(stream, _)| {
            let mut exchange = Exchange { stream, end: Instant::now() + deadline };
            exchange.serve(metrics)
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
    fn serve(&mut self, metrics: &Metrics) -> io::Result<()> {
        let mut head = Vec::new();
        let mut part = [0; 1024];
        let (status, kind, body) = loop {
            let n = self.read(&mut part)?;
            if n == 0 || head.len() + n > MAX_HEAD {
                return Ok(());
            }
            head.extend_from_slice(part.get(..n).unwrap_or_default());
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(&head) {
                Ok(httparse::Status::Partial) => {}
                Ok(httparse::Status::Complete(_)) => {
                    break respond(
                        metrics,
                        request.method.unwrap_or_default(),
                        request.path.unwrap_or_default(),
                    );
                }
                Err(why) => {
                    break ("400 Bad Request", "text/plain", format!("the request is invalid: {why}\n"));
                }
            }
        };
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        self.write_all(response.as_bytes())
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

/// Status, content type and body of the response to a request.
fn respond(metrics: &Metrics, method: &str, path: &str) -> (&'static str, &'static str, String) {
    let json = "application/json";
    match (method, path.split('?').next().unwrap_or_default()) {
        ("GET", "/metrics") => {
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.text())
        }
        ("GET", "/mounts") => ("200 OK", json, metrics.mounts_json()),
        ("GET", "/disconnects") => ("200 OK", json, metrics.disconnects_json()),
        ("GET", _) => ("404 Not Found", "text/plain", "use /metrics, /mounts or /disconnects\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "use GET\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than any exchange takes.
    const LONG: Duration = Duration::from_secs(60);

    fn get(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn known_paths_are_served_and_other_requests_refused() {
        let metrics = Metrics::new("p2ps");
        metrics.disconnect("mount", "silent", "x");
        let server = Server::start("127.0.0.1:0", &metrics).unwrap();
        let response = get(&server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("mdist_disconnects_total"),
            "{response}"
        );
        let response = get(&server, "GET /disconnects?x=1 HTTP/1.0\r\n\r\n");
        assert!(response.contains("\"reason\": \"silent\""), "{response}");
        assert!(get(&server, "GET /mounts HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n[]"));
        assert!(get(&server, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(get(&server, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(get(&server, "GET /metrics FTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
        assert_eq!(get(&server, &"x".repeat(MAX_HEAD + 1)).len(), 0);
    }

    #[test]
    fn silent_clients_do_not_block_others() {
        let server = Server::start_with("127.0.0.1:0", &Metrics::new("p2ps"), LONG).unwrap();
        let silent: Vec<_> = (1..THREADS).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        for _ in 0..3 {
            assert!(get(&server, "GET /mounts HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        }
        drop(silent);
    }

    #[test]
    fn client_that_sends_slowly_is_disconnected_at_the_deadline() {
        let deadline = Duration::from_millis(300);
        let server = Server::start_with("127.0.0.1:0", &Metrics::new("p2ps"), deadline).unwrap();
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
    fn error_names_the_address_that_cannot_be_used() {
        let server = Server::start("127.0.0.1:0", &Metrics::new("a")).unwrap();
        let address = server.address().to_string();
        let error = Server::start(&address, &Metrics::new("b")).unwrap_err().to_string();
        assert!(error.contains(&address), "{error}");
        assert!(Server::start("nonsense", &Metrics::new("b")).unwrap_err().to_string().contains("nonsense"));
    }
}
