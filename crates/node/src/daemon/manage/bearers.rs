//! Bearers that are enabled and disabled while the daemon runs.

use std::io::ErrorKind;
use std::net::SocketAddr;

use utipc_core::addr::NodeAddr;
use utipc_core::wire::MediaAddr;
use utipc_core::{BearerInfo, BearerProperty};
use utipc_manage::{Bearer as BearerEntry, Entry, Errno, Properties, Refusal, Udp};

use super::media::{Defaults, check};
use super::{Access, Naming, invalid};
use crate::bearers::{Bearer, BearerError, EthernetBearer, UdpBearer, UdpConfig, UdpMode};
use crate::driver::{Plan, StartError};

pub(super) fn not_found() -> Refusal {
    invalid("Bearer not found")
}

impl Access<'_> {
    pub(super) fn bearer_named(&self, name: &str) -> Result<BearerInfo, Refusal> {
        self.driver.stack.bearers().into_iter().find(|b| b.config.name == name).ok_or_else(not_found)
    }

    pub(super) fn show_bearers(&self) -> Vec<Entry> {
        let all = self.driver.stack.bearers().into_iter();
        all.map(|info| {
            let config = &info.config;
            let udp = self.driver.bearer(info.id).and_then(addresses);
            Entry::Bearer(BearerEntry {
                name: config.name.clone(),
                properties: Properties {
                    priority: Some(config.priority.into()),
                    tolerance: Some(config.tolerance_ms),
                    window: Some(config.max_window.into()),
                    mtu: udp.map(|_| config.mtu),
                    ..Properties::default()
                },
                udp,
            })
        })
        .collect()
    }

    pub(super) fn show_remotes(&self, name: &str) -> Result<Vec<Entry>, Refusal> {
        let info = self.bearer_named(name)?;
        let bearer = self.driver.bearer(info.id).ok_or_else(not_found)?;
        let udp = addresses(bearer).ok_or_else(|| invalid("it is not a UDP bearer"))?;
        let remotes = bearer.broadcast_targets().into_iter().filter(|_| udp.replicast);
        Ok(remotes.filter_map(socket_address).map(Entry::Remote).collect())
    }

    pub(super) fn enable_bearer(
        &mut self,
        (media_defaults, naming): (&Defaults, &mut Naming),
        name: &str,
        domain: u32,
        priority: Option<u32>,
        udp: Option<Udp>,
    ) -> Result<(), Refusal> {
        check(&Properties { priority, ..Properties::default() })?;
        let (media, rest) = name.split_once(':').ok_or_else(|| invalid("Illegal name"))?;
        if self.bearer_named(name).is_ok() {
            return Err(invalid("Already enabled"));
        }
        let opened: Box<dyn Bearer> = match media {
            "udp" => {
                let udp = udp.ok_or_else(|| invalid("a UDP bearer needs its local and remote address"))?;
                let mode = if udp.remote.ip().is_multicast() {
                    UdpMode::Multicast { group: udp.remote }
                } else {
                    UdpMode::Replicast { remotes: vec![udp.remote] }
                };
                let config = UdpConfig {
                    name: rest.to_owned(),
                    local: udp.local,
                    mode,
                    mtu: media_defaults.udp_mtu(),
                    offloads: true,
                };
                Box::new(UdpBearer::open(&config).map_err(|e| refused(&e))?)
            }
            "eth" => Box::new(EthernetBearer::open(rest).map_err(|e| refused(&e))?),
            _ => return Err(invalid("Media not registered")),
        };
        let (media, defaults) = (media.to_owned(), media_defaults.clone());
        let tune = move |config: &mut utipc_core::BearerConfig| {
            defaults.apply(&media, config);
            config.priority = priority.map_or(config.priority, |p| p as u8);
            config.domain = NodeAddr(domain);
        };
        self.driver.enable(self.now, Plan { bearer: opened, tune: Box::new(tune) }).map_err(|error| {
            match error {
                StartError::Bearer(error) => refused(&error),
                other => invalid(other.to_string()),
            }
        })?;
        *naming = Naming::Final;
        self.driver.unwatch(self.reactor);
        self.driver.watch(self.reactor, true).map_err(|e| refused(&BearerError::Os(e)))
    }

    pub(super) fn disable_bearer(&mut self, name: &str) -> Result<(), Refusal> {
        let id = self.bearer_named(name)?.id;
        tracing::info!(bearer = name, "bearer disabled");
        self.driver.disable(self.now, self.reactor, id).map_err(|e| refused(&BearerError::Os(e)))
    }

    pub(super) fn set_bearer(&mut self, name: &str, new: &Properties) -> Result<(), Refusal> {
        let id = self.bearer_named(name)?.id;
        check(new)?;
        let mtu = new.mtu;
        if mtu.is_some() && !name.starts_with("udp:") {
            return Err(invalid("MTU property is unsupported"));
        }
        let wanted = [
            new.tolerance.map(BearerProperty::ToleranceMs),
            new.priority.map(|p| BearerProperty::Priority(p as u8)),
            new.window.map(|w| BearerProperty::Window(w as u16)),
            mtu.map(BearerProperty::Mtu),
        ];
        for property in wanted.into_iter().flatten() {
            let set = self.driver.stack.set_bearer(self.now, id, property);
            set.map_err(|error| invalid(error.to_string()))?;
        }
        Ok(())
    }

    pub(super) fn add_remote(&mut self, name: &str, remote: Option<SocketAddr>) -> Result<(), Refusal> {
        let id = self.bearer_named(name)?.id;
        // The kernel also ignores a request without a remote.
        let Some(remote) = remote else { return Ok(()) };
        let bearer = self.driver.bearer_mut(id).ok_or_else(not_found)?;
        bearer.add_remote(remote).map_err(|e| refused(&e))
    }

    /// Stops copying broadcasts to a remote, and takes its link down, which needs them.
    pub(super) fn remove_remote(&mut self, name: &str, remote: SocketAddr) -> Result<(), Refusal> {
        let id = self.bearer_named(name)?.id;
        let bearer = self.driver.bearer_mut(id).ok_or_else(not_found)?;
        if !bearer.remove_remote(remote) {
            return Err(invalid(format!("{remote} is not a remote of bearer {name}")));
        }
        self.driver.stack.lose_neighbour(self.now, id, MediaAddr::Udp(remote));
        Ok(())
    }
}

/// Addresses of a UDP bearer.
fn addresses(bearer: &dyn Bearer) -> Option<Udp> {
    let local = socket_address(bearer.local_address()).filter(|_| bearer.name().starts_with("udp:"))?;
    let first = bearer.broadcast_targets().into_iter().find_map(socket_address);
    let remote = first.unwrap_or_else(|| SocketAddr::new(local.ip(), 0));
    Some(Udp { local, remote, replicast: !remote.ip().is_multicast() })
}

fn socket_address(address: MediaAddr) -> Option<SocketAddr> {
    match address {
        MediaAddr::Udp(address) => Some(address),
        MediaAddr::Ethernet(_) => None,
    }
}

/// The kernel's errno for an error of a bearer, with the text of this error.
fn refused(error: &BearerError) -> Refusal {
    let errno = match error {
        BearerError::Config { .. } => Errno::INVALID,
        BearerError::Os(os) => match os.kind() {
            ErrorKind::PermissionDenied => Errno::NOT_PERMITTED,
            ErrorKind::AddrInUse => Errno::ADDRESS_IN_USE,
            ErrorKind::NotFound | ErrorKind::AddrNotAvailable => Errno::NO_DEVICE,
            _ => Errno(os.cause().raw_os_error().unwrap_or(Errno::INVALID.0)),
        },
    };
    Refusal::new(errno, error.to_string())
}
