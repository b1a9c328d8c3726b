//! A small HTTP server: one thread, one request per connection, GET alone.

use super::Metrics;
use crate::net::{Role, ThreadSettings, spawn};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest request head that is read, in bytes.
const MAX_HEAD: usize = 8 * 1024;
/// Longest wait for a reader, which has all others wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves `/metrics`, `/mounts` and `/disconnects`, until dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` ("127.0.0.1:9464"; port 0 takes a free one).
    ///
    /// # Errors
    /// The address is no address, or is taken.
    pub fn start(address: &str, metrics: &Metrics) -> io::Result<Self> {
        let why =
            |why: io::Error| io::Error::new(why.kind(), format!("cannot serve metrics on {address}: {why}"));
        let resolved = address.to_socket_addrs().map_err(why)?.collect::<Vec<_>>();
        let listener = TcpListener::bind(resolved.as_slice()).map_err(why)?;
        let address = listener.local_addr()?;
        metrics.inner.served.store(true, Ordering::Relaxed);
        let stop = Arc::new(AtomicBool::new(false));
        let (metrics, stopped) = (metrics.clone(), stop.clone());
        let thread = spawn(Role::Metrics, &ThreadSettings::default(), move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                match stream.and_then(|stream| answer(stream, &metrics)) {
                    Ok(()) => {}
                    Err(why) => tracing::debug!(%why, "a reader of metrics went"),
                }
            }
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A connection wakes the thread, which then sees that it is over.
        let mut to = self.address;
        if to.ip().is_unspecified() {
            to.set_ip(match to {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        if TcpStream::connect_timeout(&to, PATIENCE).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = stream.read(&mut part)?;
        if n == 0 || head.len() + n > MAX_HEAD {
            return Ok(());
        }
        head.extend_from_slice(part.get(..n).unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.split_ascii_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let json = "application/json";
    let (status, kind, body) = match (method, path) {
        ("GET", "/metrics") => {
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics.text())
        }
        ("GET", "/mounts") => ("200 OK", json, metrics.mounts_json()),
        ("GET", "/disconnects") => ("200 OK", json, metrics.disconnects_json()),
        ("GET", _) => {
            ("404 Not Found", "text/plain", "there are /metrics, /mounts and /disconnects\n".into())
        }
        _ => ("405 Method Not Allowed", "text/plain", "only GET is answered\n".into()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn answers_what_it_has_and_refuses_the_rest() {
        let metrics = Metrics::new("p2ps");
        metrics.disconnect("mount", "silent", "x");
        let server = Server::start("127.0.0.1:0", &metrics).unwrap();
        let answer = get(&server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("mdist_disconnects_total"),
            "{answer}"
        );
        let answer = get(&server, "GET /disconnects?x=1 HTTP/1.0\r\n\r\n");
        assert!(answer.contains("\"reason\": \"silent\""), "{answer}");
        assert!(get(&server, "GET /mounts HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n[]"));
        assert!(get(&server, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(get(&server, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert_eq!(get(&server, &"x".repeat(MAX_HEAD + 1)).len(), 0);
    }

    #[test]
    fn a_taken_address_is_named() {
        let server = Server::start("127.0.0.1:0", &Metrics::new("a")).unwrap();
        let address = server.address().to_string();
        let error = Server::start(&address, &Metrics::new("b")).unwrap_err().to_string();
        assert!(error.contains(&address), "{error}");
        assert!(Server::start("nonsense", &Metrics::new("b")).unwrap_err().to_string().contains("nonsense"));
    }
}
