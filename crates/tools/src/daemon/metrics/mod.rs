//! `utipcd --metrics`: metrics for Prometheus, and the web page.
//!
//! One thread reads the counters and lists of the daemon once a second and keeps them as a snapshot; the threads of the
//! HTTP server read only the snapshot. So neither the number of HTTP clients nor what they do affects the daemon's
//! event loop.
//!
//! | Question | File |
//! |---|---|
//! | What is read, how often, and how much of long lists? | `collector.rs`, `snapshot.rs` |
//! | Which metrics exist? | `families.rs` |
//! | Which JSON gets the page? | `json.rs` |
//! | How does the page know what happened before it was opened? | `history.rs` |

mod collector;
mod families;
mod history;
mod json;
mod snapshot;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use utipc::daemon::Meter;
use utipc_web::{Bound, Hosts, Request, Response, Server, Site};

use super::file;
use collector::{Collector, Latest};

/// The port of the metrics, before the daemon serves: opened early, so that an address that is taken is an error of the
/// start.
#[derive(Debug)]
pub(crate) struct Port {
    bound: Bound,
    hosts: Hosts,
}

impl Port {
    /// Opens the port that the settings name; `None` if they name none.
    pub(crate) fn open(file: &file::Metrics) -> Result<Option<Self>> {
        let Some(text) = file.listen.as_deref() else { return Ok(None) };
        let address = address(text)?;
        // Without it the server could not be used by the name that it was given.
        let name = address.rsplit_once(':').map(|(name, _)| name.to_owned());
        let hosts: Vec<String> = file.hosts.iter().cloned().chain(name).collect();
        let remedy = "give an address of this host and a free port";
        let bound =
            Bound::new(&address).with_context(|| format!("cannot open the port of metrics ({remedy})"))?;
        Ok(Some(Self { bound, hosts: Hosts::new(&hosts) }))
    }
}

/// Address and port of `--metrics`: a port alone is a port of 127.0.0.1.
pub(crate) fn address(text: &str) -> Result<String> {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    if is_port(text) {
        return Ok(format!("127.0.0.1:{text}"));
    }
    let named = text.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && is_port(port));
    if text.parse::<SocketAddr>().is_ok() || named && text.parse::<IpAddr>().is_err() {
        return Ok(text.to_owned());
    }
    anyhow::bail!("metrics: {text:?} is not an address with a port (write \"127.0.0.1:9618\", or 9618 alone)")
}

/// The running port; it ends when dropped.
pub(crate) struct Monitoring {
    // Dropped first: its threads read what the collector keeps.
    _server: Server,
    _collector: Collector,
}

impl Monitoring {
    /// Serves the metrics that `meter` reads.
    pub(crate) fn start(port: Port, meter: Meter) -> Result<Self> {
        let (collector, latest) = Collector::start(meter).context("cannot start the thread of metrics")?;
        let server = Server::start(port.bound, port.hosts, Pages(latest)).context("cannot serve metrics")?;
        let at = server.address();
        tracing::info!("metrics at http://{at}/metrics, web page at http://{at}/");
        if !at.ip().to_canonical().is_loopback() {
            let local = IpAddr::from(Ipv4Addr::LOCALHOST);
            tracing::warn!(
                "everyone who reaches {at} can read the metrics and the page, which have no login (listen on {local}, \
                 or restrict the port by a firewall)"
            );
        }
        Ok(Self { _server: server, _collector: collector })
    }
}

struct Pages(Latest);

impl Site for Pages {
    fn respond(&self, request: &Request<'_>) -> Option<Response> {
        let number = |key| request.parameter(key).and_then(|text| text.parse().ok());
        Some(match request.path {
            "/metrics" => Response::metrics(families::text(&self.0.read())),
            "/api/about" => Response::json(json::about().to_string()),
            "/api/state" => {
                self.0.note_viewer();
                Response::json(json::state(&self.0.read()).to_string())
            }
            "/api/events" => {
                let events = self.0.read().history.since(number("after").unwrap_or(0));
                Response::json(json::events(&events).to_string())
            }
            _ => return None,
        })
    }

    fn paths(&self) -> &'static str {
        "/metrics, /api/state or /api/events, or open / in a browser"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_a_port_of_this_host() {
        for (text, expected) in [
            ("9618", "127.0.0.1:9618"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[::1]:9618", "[::1]:9618"),
            ("node1.example.org:9618", "node1.example.org:9618"),
        ] {
            assert_eq!(address(text).unwrap(), expected);
        }
        for text in ["", "10.0.0.1", "::1", "99999", "host:", ":9618", "host:many"] {
            let error = address(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("9618"), "{error}");
        }
    }
}
