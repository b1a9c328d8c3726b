//! Starts the daemon from its configuration.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use utipc::bearers::{Bearer, EthernetBearer, HostBearer, HostConfig, UdpBearer, UdpConfig, UdpMode};
use utipc::daemon::{
    DaemonConfig, FixedName, Key, KeyUse, Limits, NodeConfig, Plan, Policy, StackConfig, key_file,
    usual_socket,
};
use utipc::{ClusterId, NodeAddr, NodeId};

use super::faults::{At, Fault};
use super::file::{self, File, Media};
use super::{system, users};

/// Makes the daemon's configuration from a file without faults; opens nothing. A start can then fail only if the system
/// refuses something.
pub(crate) fn config(file: &File, instance: &str, socket: PathBuf) -> Result<DaemonConfig> {
    let identity = file.node.identity.as_deref();
    let wrong = |why: String| anyhow::anyhow!(why);
    let address = file.node.address.as_deref().map(address).transpose().map_err(wrong)?;
    let stack = StackConfig {
        identity: identity.map(NodeId::from_text),
        address,
        cluster: cluster(file),
        ..StackConfig::default()
    };
    let mut node =
        NodeConfig { stack, bearers: Vec::new(), label: instance.to_owned(), ..NodeConfig::default() };
    let encryption = &file.encryption;
    node.stack.encryption.strict = encryption.strict.unwrap_or_else(|| encryption.files().next().is_some());
    node.rekeying_minutes = encryption.rekeying_minutes;
    let mode = file.policy.socket_mode.as_deref().map(socket_mode).transpose().map_err(wrong)?;
    Ok(DaemonConfig {
        node,
        socket,
        socket_mode: mode.unwrap_or(0o600),
        fixed_name: match (identity, address) {
            (_, Some(_)) => FixedName::All,
            (Some(_), None) => FixedName::Identity,
            (None, None) => FixedName::Nothing,
        },
        policy: policy(&file.policy)?,
        limits: limits(&file.limits),
        ..DaemonConfig::default()
    })
}

/// The cluster of the configuration.
pub(crate) fn cluster(file: &File) -> ClusterId {
    file.node.cluster.map_or_else(ClusterId::default, ClusterId)
}

/// The keys of the key files.
pub(crate) fn keys(file: &File) -> Result<Vec<(KeyUse, Key)>, Fault> {
    let read = |(key_use, key, path): (KeyUse, String, &Path)| {
        let wrong =
            |error: key_file::KeyFileError| Fault::new(At::key("encryption", &key), error.to_string());
        Ok((key_use, key_file::read(path).map_err(wrong)?))
    };
    file.encryption.files().map(read).collect()
}

/// Opens the bearers, which may need privileges. The fault names the bearer.
pub(crate) fn open(config: &mut DaemonConfig, file: &File) -> Result<(), Fault> {
    let of_node = |error: utipc::OsError| Fault::new(At::key("node", "identity"), error.to_string());
    config.node.choose_identity().map_err(of_node)?;
    config.node.keys = keys(file)?;
    for (number, bearer) in file.bearer.iter().enumerate() {
        let key = match bearer.media {
            Media::Udp => "local",
            Media::Ethernet => "name",
            Media::Host => "directory",
        };
        let failed =
            |error: anyhow::Error| Fault::new(At::bearer(number, Some(key)), utipc_cli::one_line(&error));
        config.node.bearers.push(plan(bearer, &config.node.stack).map_err(failed)?);
    }
    config.node.complete(None).map_err(of_node)
}

/// Checks the name of an instance, which is a part of file names.
pub(crate) fn check_instance(instance: &str) -> Result<(), String> {
    if instance.is_empty() || instance.contains(['/', '\0']) || instance.starts_with('.') {
        return Err(format!("{instance:?} is not a valid instance name (use letters, digits, - and _)"));
    }
    Ok(())
}

/// The usual path of the socket of an instance. `create`: create its directory, if that is missing.
pub(crate) fn usual_place(instance: &str, create: bool) -> Result<PathBuf> {
    let file = format!("{instance}.sock");
    // The directory that a service manager has made for the daemon (`RuntimeDirectory=`).
    let given = std::env::var_os("RUNTIME_DIRECTORY");
    let given = given.as_deref().and_then(|list| std::env::split_paths(list).next());
    match given.filter(|folder| folder.is_absolute()) {
        Some(folder) => Ok(folder.join(file)),
        // Finding the directory of another user creates only this user's, which is empty without a daemon.
        None if !create && nix::unistd::geteuid().is_root() => Ok(Path::new(system::SYSTEM).join(file)),
        None => Ok(usual_socket(instance)?),
    }
}

fn plan(bearer: &file::Bearer, node: &StackConfig) -> Result<Plan> {
    let opened: Box<dyn Bearer> = match bearer.media {
        Media::Udp => Box::new(UdpBearer::open(&udp(bearer, node.cluster)?)?),
        Media::Ethernet => Box::new(EthernetBearer::open(bearer.name.as_deref().unwrap_or_default())?),
        Media::Host => {
            let (directory, address) = (bearer.directory.clone(), node.first_address());
            let name = bearer.name.clone().unwrap_or_else(|| HostConfig::default().name);
            Box::new(HostBearer::open(&HostConfig { name, directory, address })?)
        }
    };
    let (tolerance, priority, window) = (bearer.tolerance_ms, bearer.priority, bearer.window);
    let tune = Box::new(move |config: &mut utipc::daemon::BearerConfig| {
        config.tolerance_ms = tolerance.unwrap_or(config.tolerance_ms);
        config.priority = priority.unwrap_or(config.priority);
        config.max_window = window.unwrap_or(config.max_window);
    });
    Ok(Plan { bearer: opened, tune })
}

pub(crate) fn udp(bearer: &file::Bearer, cluster: ClusterId) -> Result<UdpConfig> {
    let local = bearer.local.context("a UDP bearer has no `local` address")?.socket();
    let name = bearer.name.as_deref().unwrap_or("UDP");
    let mut config = UdpConfig::multicast(name, local.ip(), cluster.0)?;
    config.local = local;
    config.mtu = bearer.mtu;
    if let Some(group) = bearer.group {
        config.mode = UdpMode::Multicast { group: group.socket() };
    } else if !bearer.remotes.is_empty() {
        config.mode = UdpMode::Replicast { remotes: bearer.remotes.iter().map(|at| at.socket()).collect() };
    }
    Ok(config)
}

pub(crate) fn policy(file: &file::Policy) -> Result<Policy> {
    let mut policy = Policy::default();
    if let Some(attach) = &file.attach {
        policy.attach = users::who(attach)?;
    }
    if let Some(manage) = &file.manage {
        policy.manage = users::who(manage)?;
    }
    for (types, allowed) in &file.bind {
        let types = service_types(types).map_err(|why| anyhow::anyhow!(why))?;
        policy.bind.push((types, users::who(allowed)?));
    }
    // A table in the file has no order, and as text "1000" sorts before "200".
    policy.bind.sort_by_key(|(types, _)| (types.end().saturating_sub(*types.start()), *types.start()));
    Ok(policy)
}

pub(crate) fn limits(file: &file::Limits) -> Limits {
    /// Bytes of a MiB.
    const MIB: u64 = 1 << 20;
    let usual = Limits::default();
    // One user may use half, unless the file says otherwise.
    let shared = |all: Option<usize>, one: Option<usize>, usual: usize| {
        let all = all.unwrap_or(usual);
        (all, one.unwrap_or(all.div_ceil(2)))
    };
    let (attachments, attachments_per_user) =
        shared(file.processes, file.processes_per_user, usual.attachments);
    let (sockets, sockets_per_user) = shared(file.sockets, file.sockets_per_user, usual.sockets);
    let (bindings, bindings_per_user) = shared(file.bindings, file.bindings_per_user, usual.bindings);
    let (lanes, lanes_per_user) = shared(file.lanes, file.lanes_per_user, usual.lanes);
    let (descriptors, descriptors_per_user) =
        shared(file.descriptors, file.descriptors_per_user, usual.descriptors);
    let memory = file.memory_mib.map_or(usual.memory, |mib| mib.saturating_mul(MIB));
    Limits {
        attachments,
        attachments_per_user,
        sockets,
        sockets_per_user,
        sockets_per_attachment: file.sockets_per_process.unwrap_or(usual.sockets_per_attachment),
        bindings,
        bindings_per_user,
        bindings_per_attachment: file.bindings_per_process.unwrap_or(usual.bindings_per_attachment),
        subscriptions_per_user: file.subscriptions_per_user.unwrap_or(usual.subscriptions_per_user),
        lanes,
        lanes_per_user,
        descriptors,
        descriptors_per_user,
        memory,
        memory_per_user: file.memory_per_user_mib.map_or(memory / 2, |mib| mib.saturating_mul(MIB)),
        ..usual
    }
}

/// The service types of a key of `policy.bind`.
pub(crate) fn service_types(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |part: &str| part.trim().parse::<u32>().ok();
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(first), Some(last)) => {
            Err(format!("bind.{text:?}: the range ends before it begins (write \"{last}-{first}\")"))
        }
        _ => Err(format!("bind.{text:?}: not a service type or range (write \"1000\" or \"1000-1999\")")),
    }
}

/// A node address as `Z.C.N`, or hexadecimal as utipc prints it.
pub(crate) fn address(text: &str) -> Result<NodeAddr, String> {
    let parts: Vec<u32> = text.split('.').map_while(|part| part.parse().ok()).collect();
    match parts[..] {
        [zone, cluster, node] if zone < 256 && cluster < 4096 && (1..4096).contains(&node) => {
            return Ok(NodeAddr(zone << 24 | cluster << 12 | node));
        }
        _ => {}
    }
    let hexadecimal = Some(text).filter(|text| text.len() > 6 && text.bytes().all(|b| b.is_ascii_hexdigit()));
    let number = hexadecimal.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.filter(|number| *number != 0).map(NodeAddr).ok_or_else(|| {
        format!(
            "address = {text:?}: not a node address (write \"1.1.10\", up to 255.4095.4095, or \"100100a\")"
        )
    })
}

pub(crate) fn socket_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok();
    mode.filter(|mode| (1..=0o777).contains(mode))
        .ok_or_else(|| format!("socket_mode = {text:?}: not a file mode (write \"0660\")"))
}

#[cfg(test)]
mod tests {
    use super::super::faults::Source;
    use super::*;

    fn configured(text: &str) -> DaemonConfig {
        let file = File::parse(&Source::new(None, text.to_owned())).unwrap();
        config(&file, "default", "/nowhere/sock".into()).unwrap()
    }

    #[test]
    fn addresses_are_read_in_both_notations() {
        assert_eq!(address("1.1.10").unwrap(), NodeAddr(0x0100_100a));
        assert_eq!(address("100100a").unwrap(), NodeAddr(0x0100_100a));
        for wrong in ["1.1", "1.1.0", "0000000", "256.1.1", "x", ""] {
            assert!(address(wrong).unwrap_err().contains("write \"1.1.10\""), "{wrong}");
        }
    }

    #[test]
    fn one_user_has_half_of_a_limit_unless_the_file_says_otherwise() {
        let text = "[limits]\nsockets = 100\nlanes = 100\nlanes_per_user = 90\nmemory_mib = 64\n";
        let limits = configured(text).limits;
        assert_eq!((limits.sockets, limits.sockets_per_user), (100, 50));
        assert_eq!((limits.lanes, limits.lanes_per_user), (100, 90));
        assert_eq!((limits.memory, limits.memory_per_user), (64 << 20, 32 << 20));
        assert_eq!(configured("").limits, Limits::default());
    }

    #[test]
    fn narrowest_range_of_service_types_decides() {
        let config = configured(
            "[policy.bind]\n\"100-1999\" = [\"root\"]\n\"200\" = [\"*\"]\n\"150-300\" = [\"7\"]\n\"90-99\" = [\"8\"]\n",
        );
        let ranges: Vec<_> = config.policy.bind.into_iter().map(|(types, _)| types).collect();
        assert_eq!(ranges, [200..=200, 90..=99, 150..=300, 100..=1999]);
    }

    #[test]
    fn policy_comes_from_the_file() {
        let config =
            configured("[policy]\nattach = [\"0\", \"*\"]\n[policy.bind]\n\"1000-1999\" = [\"root\"]\n");
        assert_eq!(config.policy.attach, utipc::daemon::Users::All);
        assert_eq!(config.policy.bind[0].0, 1000..=1999);
    }
}
