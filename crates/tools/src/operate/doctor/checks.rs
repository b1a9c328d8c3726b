//! Checks of the host.

use super::host::{Host, PORT};
use crate::operate::finding::{Finding, Level};
use crate::operate::snapshot::Snapshot;
use crate::operate::text::bytes;

/// Open files that a daemon should be allowed to have.
const OPEN_FILES: u64 = 4096;

/// Memory of the arena of two programs, bytes; all of it is used if a process locks its memory.
const ARENA: u64 = 256 << 20;

/// Share of the memory that should be available, percent.
const AVAILABLE_PERCENT: u64 = 5;

/// All checks of a host, and of the node if there is one.
pub(crate) fn all(host: &Host, shot: Option<&Snapshot>, ethernet: bool) -> Vec<Finding> {
    let mut findings = vec![shared_memory(host), memlock(host), open_files(host)];
    findings.push(net_raw(host, shot, ethernet));
    findings.extend(multicast(host));
    findings.push(port(host, shot));
    findings.push(module(host));
    findings.extend(path_mtu(host));
    findings.extend(replaced(host));
    findings
}

fn shared_memory(host: &Host) -> Finding {
    const CHECK: &str = "shared-memory";
    if let Some(why) = &host.memory_refused {
        let remedy =
            "allow memfd_create (seccomp, SELinux) and raise the memory limit of the service or container";
        return Finding::new(CHECK, Level::Error, format!("no shared memory: {why}"), remedy);
    }
    match host.memory {
        Some((total, available))
            if available.saturating_mul(100) < total.saturating_mul(AVAILABLE_PERCENT) =>
        {
            let text = format!("{} of {} memory are available", bytes(available), bytes(total));
            Finding::new(
                CHECK,
                Level::Warning,
                text,
                "end programs, or lower limits.memory_mib in utipcd.toml",
            )
        }
        _ => Finding::ok(CHECK, "can be made"),
    }
}

/// utipc locks no memory; a daemon that was started with locked memory (`mlockall` of a wrapper) has whole arenas in
/// memory, and gets none beyond its limit.
fn memlock(host: &Host) -> Finding {
    const CHECK: &str = "memlock";
    let Some(process) = host.daemon.as_ref().filter(|process| process.locked > 0) else {
        return Finding::ok(CHECK, "no memory is locked, so the limit has no effect");
    };
    match process.memlock {
        Some(limit) if limit < process.locked.saturating_add(ARENA) => {
            let text = format!(
                "the daemon locks its memory ({}) and may lock {}",
                bytes(process.locked),
                bytes(limit)
            );
            let remedy = "start it without locked memory, or set LimitMEMLOCK=infinity";
            Finding::new(CHECK, Level::Warning, text, remedy)
        }
        _ => {
            let text = format!("the daemon locks its memory: each pair of programs takes {}", bytes(ARENA));
            Finding::new(CHECK, Level::Note, text, "start it without locked memory")
        }
    }
}

fn open_files(host: &Host) -> Finding {
    const CHECK: &str = "open-files";
    match host.daemon.as_ref().and_then(|process| process.open_files) {
        Some(limit) if limit < OPEN_FILES => {
            let text = format!("the daemon may open {limit} files, three for each program");
            Finding::new(CHECK, Level::Warning, text, "set LimitNOFILE=65536 in its unit, or `ulimit -n`")
        }
        Some(limit) => Finding::ok(CHECK, format!("the daemon may open {limit}")),
        None => Finding::ok(CHECK, "no daemon to check"),
    }
}

fn net_raw(host: &Host, shot: Option<&Snapshot>, ethernet: bool) -> Finding {
    const CHECK: &str = "cap-net-raw";
    let bearers = shot.iter().flat_map(|shot| &shot.bearers);
    let uses = { bearers }.any(|bearer| bearer.name.starts_with("eth:"));
    match &host.daemon {
        Some(process) if process.has_net_raw => Finding::ok(CHECK, "the daemon may use Ethernet"),
        Some(_) if uses => {
            Finding::ok(CHECK, "the daemon has opened its Ethernet bearers and dropped the capability")
        }
        Some(_) => {
            let level = if ethernet { Level::Error } else { Level::Note };
            let text = "the daemon has no CAP_NET_RAW: it cannot enable an Ethernet bearer";
            let remedy = "for Ethernet: start it as root, or AmbientCapabilities=CAP_NET_RAW in its unit";
            Finding::new(CHECK, level, text, remedy)
        }
        None => Finding::ok(CHECK, "no daemon to check"),
    }
}

fn multicast(host: &Host) -> Vec<Finding> {
    const CHECK: &str = "multicast";
    if host.probes.is_empty() {
        return vec![Finding::ok(CHECK, "no bearer uses multicast")];
    }
    let finding = |probe: &super::host::Probe| match &probe.failed {
        None => {
            Finding::ok(CHECK, format!("{} reaches its group {} on this host", probe.bearer, probe.group))
        }
        Some(why) => {
            let text = format!("{} and its group {}: {why}", probe.bearer, probe.group);
            let remedy = "check `ip link` (MULTICAST, UP), the route to 224.0.0.0/4 and the firewall, or name peers: `remoteip`";
            Finding::new(CHECK, Level::Error, text, remedy)
        }
    };
    host.probes.iter().map(finding).collect()
}

/// Checks that no process except the daemon uses TIPC's UDP port.
fn port(host: &Host, shot: Option<&Snapshot>) -> Finding {
    const CHECK: &str = "port-6118";
    let daemon = shot.and_then(|shot| shot.daemon.as_ref()).map(|daemon| daemon.pid);
    let is_foreign = |pid: Option<u32>| pid.is_none() || pid != daemon;
    let foreign = |holder: &&super::host::Holder| is_foreign(holder.process.as_ref().map(|(pid, _)| *pid));
    let own = |address: &std::net::SocketAddr| {
        shot.iter()
            .flat_map(|shot| &shot.bearers)
            .any(|bearer| bearer.local.as_deref() == Some(&*address.to_string()))
    };
    let groups = |address: &std::net::SocketAddr| address.ip().is_multicast();
    // Without root the daemon's own sockets cannot be attributed to it.
    let others: Vec<_> = host
        .holders
        .iter()
        .filter(foreign)
        .filter(|holder| holder.process.is_some() || !own(&holder.address) && !groups(&holder.address))
        .collect();
    let Some(first) = others.first() else {
        let text = if host.holders.is_empty() { "free" } else { "held by the daemon" };
        return Finding::ok(CHECK, format!("{PORT} is {text}"));
    };
    let by = match &first.process {
        Some((pid, name)) => format!("process {pid} ({name})"),
        None if host.is_root => "the kernel".to_owned(),
        None => "a process of another user, or the kernel (root sees which)".to_owned(),
    };
    let text = format!("UDP {} is held by {by}", first.address);
    let blocks = others.iter().any(|holder| holder.address.ip().is_unspecified());
    if blocks || daemon.is_none() {
        let remedy = "end it, or give it another port: a UDP bearer needs this one";
        return Finding::new(CHECK, Level::Warning, text, remedy);
    }
    Finding::new(CHECK, Level::Note, text, "a bearer of this node needs another address or port")
}

/// Whether the kernel's TIPC holds the port.
fn module(host: &Host) -> Finding {
    const CHECK: &str = "kernel-module";
    if !host.has_module {
        return Finding::ok(CHECK, "the kernel's TIPC is not loaded");
    }
    match host.holders.iter().find(|holder| host.is_root && holder.process.is_none()) {
        Some(holder) => {
            let text = format!("the kernel's TIPC holds UDP {}", holder.address);
            let remedy =
                "disable its bearer (`tipc bearer disable media udp name NAME`), or unload it: `rmmod tipc`";
            Finding::new(CHECK, Level::Warning, text, remedy)
        }
        None => {
            let text = "the kernel's TIPC is loaded; it does not hold the port";
            Finding::new(CHECK, Level::Note, text, "programs without a daemon use it: see UTIPC_ENGINE")
        }
    }
}

fn path_mtu(host: &Host) -> Vec<Finding> {
    const CHECK: &str = "path-mtu";
    let small = host.routes.iter().filter(|route| route.needed > route.mtu).map(|route| {
        let text = format!("packets of {} go over a path of {} bytes: {} bytes", route.link, route.mtu, route.needed);
        let remedy = "lower the MTU of the bearer on both sides (`utipc bearer set mtu`), or raise that of the network";
        Finding::new(CHECK, Level::Warning, text, remedy)
    });
    let found: Vec<Finding> = small.take(5).collect();
    if found.is_empty() {
        vec![Finding::ok(CHECK, format!("{} paths checked", host.routes.len()))]
    } else {
        found
    }
}

fn replaced(host: &Host) -> Option<Finding> {
    host.daemon.as_ref().filter(|process| process.is_replaced).map(|process| {
        let text =
            format!("the daemon (process {}) runs a program that was replaced or removed", process.pid);
        Finding::new("version-skew", Level::Warning, text, "restart it: `systemctl restart utipcd`")
    })
}
