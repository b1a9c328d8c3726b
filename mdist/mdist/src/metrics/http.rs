//! What the metrics port serves: the metrics, mounts, disconnects, and the web page with its JSON.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use utipc_web::{Bound, Hosts, Request, Response, Site};

use super::registry::Metrics;
use crate::net::resolve_local;

/// Port of an address without one: that of Prometheus exporters of OpenTelemetry.
const PORT: u16 = 9464;

/// Serves `/metrics`, `/mounts`, `/disconnects` and the page, until dropped.
#[derive(Debug)]
pub struct Server(utipc_web::Server);

impl Server {
    /// Listens on `address` ("127.0.0.1:9464", or "9464" for that; port 0 takes a free one). Clients may name the
    /// server by an address, by the name in `address`, by the name of this host, and by `hosts`.
    ///
    /// # Errors
    /// The address is invalid or taken, or the system refuses a thread; the error names the address.
    pub fn start(address: &str, hosts: &[String], metrics: &Metrics) -> io::Result<Self> {
        let why =
            |why: io::Error| io::Error::new(why.kind(), format!("cannot serve metrics on {address}: {why}"));
        let resolved = resolve_local(address, PORT).map_err(why)?.to_string();
        let name = address.rsplit_once(':').map(|(name, _)| name.to_owned());
        let hosts: Vec<String> = hosts.iter().cloned().chain(name).collect();
        let pages = Pages(metrics.clone());
        let server = utipc_web::Server::start(Bound::new(&resolved)?, Hosts::new(&hosts), pages)?;
        metrics.inner.served.store(true, Ordering::Relaxed);
        Ok(Self(server))
    }

    /// The address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

struct Pages(Metrics);

impl Site for Pages {
    fn respond(&self, request: &Request<'_>) -> Option<Response> {
        Some(match request.path {
            "/metrics" => Response::metrics(self.0.text()),
            "/mounts" => Response::json(self.0.mounts_json()),
            "/disconnects" => Response::json(self.0.disconnects_json()),
            "/api/about" => Response::json(about(&self.0)),
            "/api/state" => {
                let watch = request.parameter("watch").unwrap_or_default();
                Response::json(self.0.state_json(&watch).to_string())
            }
            _ => return None,
        })
    }

    fn paths(&self) -> &'static str {
        "/metrics, /mounts, /disconnects or /api/state, or open / in a browser"
    }
}

/// What serves the page, and which views it has.
fn about(metrics: &Metrics) -> String {
    let (program, version) = (&metrics.inner.program, env!("CARGO_PKG_VERSION"));
    serde_json::json!({ "program": program, "version": version, "views": ["market"] }).to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    fn get(server: &Server, path: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn metrics_mounts_and_disconnects_are_served() {
        let metrics = Metrics::new("p2ps");
        metrics.disconnect("mount", "silent", "x");
        let server = Server::start("127.0.0.1:0", &[], &metrics).unwrap();
        let response = get(&server, "/metrics");
        assert!(
            response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("mdist_disconnects_total"),
            "{response}"
        );
        let response = get(&server, "/disconnects?x=1");
        assert!(response.contains("\"reason\": \"silent\""), "{response}");
        assert!(get(&server, "/mounts").ends_with("\r\n\r\n[]"));
        assert!(get(&server, "/").starts_with("HTTP/1.1 200"));
        assert!(get(&server, "/api/about").contains("\"views\":[\"market\"]"));
        assert!(get(&server, "/api/state?watch=A%09X").contains("\"item\":\"X\""));
        assert!(get(&server, "/none").starts_with("HTTP/1.1 404"));
    }
}
