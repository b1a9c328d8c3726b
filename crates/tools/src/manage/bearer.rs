//! `bearer list|enable|disable|add|remove|get|set`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use utipc_manage::{Bearer, Entry, Properties, Request, Udp};

use super::call::{Call, Ended, Failure, needed, number};
use super::output::Output;
use super::property::Subject;
use super::words::{Given, Key};

/// Keys that name a bearer.
pub(super) const KEYS: [Key; 3] = [("media", true), ("device", true), ("name", true)];

/// The port of TIPC over UDP.
const PORT: u16 = 6118;

/// `media:name` from the keys.
pub(super) fn name(keys: &Given) -> Result<String, Failure> {
    let media = needed(keys.get("media"), "the medium")?;
    let identifier = match media {
        "udp" => "name",
        "eth" | "ib" => "device",
        other => return Err(Failure::Words(format!("unknown medium {other} (use udp or eth)"))),
    };
    Ok(format!("{media}:{}", needed(keys.get(identifier), identifier)?))
}

pub(super) fn list(call: &mut Call) -> Ended {
    let reply = call.ask(&Request::Bearers)?;
    call.begin();
    for entry in reply {
        if let Entry::Bearer(bearer) = entry {
            call.out.object("", |out| print(out, &bearer));
        }
    }
    call.out.end();
    Ok(())
}

fn print(out: &mut Output, bearer: &Bearer) {
    out.any("bearer", bearer.name.as_str(), &format!("{}\n", bearer.name));
    let p = &bearer.properties;
    for (key, value) in
        [("priority", p.priority), ("tolerance", p.tolerance), ("window", p.window), ("mtu", p.mtu)]
    {
        if let Some(value) = value {
            out.any(key, value, "");
        }
    }
    if let Some(udp) = &bearer.udp {
        out.any("local", udp.local.to_string().as_str(), "");
        out.any("remote", udp.remote.to_string().as_str(), "");
    }
}

pub(super) fn disable(call: &mut Call) -> Ended {
    let name = name(&call.keys(&KEYS)?)?;
    call.order(&Request::BearerDisable { name })
}

pub(super) fn enable(call: &mut Call) -> Ended {
    const KEYS: [Key; 9] = [
        ("device", true),
        ("domain", true),
        ("localip", true),
        ("localport", true),
        ("media", true),
        ("name", true),
        ("priority", true),
        ("remoteip", true),
        ("remoteport", true),
    ];
    let keys = call.keys(&KEYS)?;
    let name = name(&keys)?;
    let domain = keys.get("domain").map(number).transpose()?.unwrap_or(0);
    let priority = keys.get("priority").map(number).transpose()?;
    let udp = if name.starts_with("udp:") { Some(addresses(call, &keys)?) } else { None };
    call.order(&Request::BearerEnable { name, domain, priority, udp })
}

fn port(keys: &Given, key: &str) -> Result<u16, Failure> {
    let port = keys.get(key).map(|word| word.parse::<u16>());
    port.transpose()
        .map(|port| port.unwrap_or(PORT))
        .map_err(|_| Failure::Words(format!("{key} is not a port number (write 1 to 65535)")))
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let wrong = || {
        Failure::Words(format!("{host:?} is not an address (write an IP address or a name that resolves)"))
    };
    (host, port).to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

fn addresses(call: &Call, keys: &Given) -> Result<Udp, Failure> {
    let (local_port, remote_port) = (port(keys, "localport")?, port(keys, "remoteport")?);
    let local = match (keys.get("device"), keys.get("localip")) {
        (Some(device), _) => SocketAddr::new(address_of(device)?, local_port),
        (None, Some(ip)) => resolve(ip, local_port)?,
        (None, None) => return Err(Failure::Words("localip or device is missing (see `--help`)".to_owned())),
    };
    let remote = match keys.get("remoteip") {
        Some(ip) => resolve(ip, remote_port)?,
        None => SocketAddr::new(group(call.net()?.id, local.is_ipv6())?, remote_port),
    };
    if local.is_ipv4() != remote.is_ipv4() {
        return Err(Failure::Words(
            "local and remote address have different IP versions (use one)".to_owned(),
        ));
    }
    Ok(Udp { local, remote, replicast: false })
}

/// The multicast group of a cluster. Spec: tipc.md §4.1.
fn group(cluster: u32, v6: bool) -> Result<std::net::IpAddr, Failure> {
    utipc::bearers::default_group(cluster, v6)
        .ok_or_else(|| Failure::Words(format!("cluster {cluster} has no multicast group (give remoteip)")))
}

/// The first address of an interface.
fn address_of(device: &str) -> Result<std::net::IpAddr, Failure> {
    let none = || Failure::Words(format!("{device} is not a device with an IP address (see `ip address`)"));
    let all = nix::ifaddrs::getifaddrs().map_err(|_| none())?;
    let mut found = all.filter(|it| it.interface_name == device).filter_map(|it| {
        let address = it.address?;
        let v4 = address.as_sockaddr_in().map(|v4| std::net::IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| std::net::IpAddr::V6(v6.ip())))
    });
    found.next().ok_or_else(none)
}

const UDP_KEYS: [Key; 4] = [("remoteip", true), ("remoteport", true), ("name", true), ("media", true)];

pub(super) fn add(call: &mut Call) -> Ended {
    // The command's own word `media` is read again, as a key.
    call.words.back();
    let keys = call.keys(&UDP_KEYS)?;
    let name = udp_name(&keys)?;
    let remote = resolve(needed(keys.get("remoteip"), "remoteip")?, port(&keys, "remoteport")?)?;
    call.order(&Request::BearerAdd { name, remote: Some(remote) })
}

pub(super) fn remove(call: &mut Call) -> Ended {
    call.words.back();
    let keys = call.keys(&UDP_KEYS)?;
    let name = udp_name(&keys)?;
    let remote = resolve(needed(keys.get("remoteip"), "remoteip")?, port(&keys, "remoteport")?)?;
    call.order(&Request::BearerRemove { name, remote })
}

fn udp_name(keys: &Given) -> Result<String, Failure> {
    let media = needed(keys.get("media"), "the medium")?;
    if media != "udp" {
        return Err(Failure::Words(format!("medium {media} has no addresses (udp has)")));
    }
    name(keys)
}

pub(super) fn get_address(call: &mut Call) -> Ended {
    const KEYS: [Key; 6] = [
        ("localip", false),
        ("localport", false),
        ("remoteip", false),
        ("remoteport", false),
        ("name", true),
        ("media", true),
    ];
    call.words.back();
    let keys = call.keys(&KEYS)?;
    let name = udp_name(&keys)?;
    let bearer = bearer(call, name.clone())?;
    let udp = needed(bearer.udp, "the address in the node's answer")?;
    let line = |ip: IpAddr| format!("{ip}\n");
    if keys.get("localip").is_some() {
        call.print("localip", udp.local.ip().to_string().as_str(), &line(udp.local.ip()));
    } else if keys.get("localport").is_some() {
        call.print("localport", u32::from(udp.local.port()), &format!("{}\n", udp.local.port()));
    } else if keys.get("remoteip").is_some() && udp.replicast {
        let remotes = call.ask(&Request::Remotes { name })?;
        call.begin();
        for entry in remotes {
            if let Entry::Remote(remote) = entry {
                let ip = remote.ip();
                call.out.object("", |out| out.any("remoteip", ip.to_string().as_str(), &line(ip)));
            }
        }
        call.out.end();
    } else if keys.get("remoteip").is_some() {
        call.print("remoteip", udp.remote.ip().to_string().as_str(), &line(udp.remote.ip()));
    } else if keys.get("remoteport").is_some() {
        call.print("remoteport", u32::from(udp.remote.port()), &format!("{}\n", udp.remote.port()));
    } else {
        let text = "localip, localport, remoteip or remoteport is missing (see `--help`)";
        return Err(Failure::Words(text.to_owned()));
    }
    Ok(())
}

fn bearer(call: &Call, name: String) -> Result<Bearer, Failure> {
    let reply = call.ask(&Request::BearerGet { name })?;
    let found = reply.into_iter().find_map(|e| if let Entry::Bearer(b) = e { Some(b) } else { None });
    needed(found, "the bearer in the node's answer")
}

/// Bearers, for `get` and `set`.
pub(super) struct Bearers;

impl Subject for Bearers {
    fn name(call: &mut Call, udp_only: bool) -> Result<String, Failure> {
        let keys = call.keys(&KEYS)?;
        if udp_only && keys.get("media").is_some_and(|media| media != "udp") {
            return Err(Failure::Words("only UDP bearers have an MTU".to_owned()));
        }
        name(&keys)
    }

    fn properties(call: &Call, name: String) -> Result<Properties, Failure> {
        Ok(bearer(call, name)?.properties)
    }

    fn change(name: String, properties: Properties) -> Request {
        Request::BearerSet { name, properties }
    }

    fn print(call: &mut Call, property: &str, value: u32) {
        call.print(property, value, &format!("{value}\n"));
    }
}
