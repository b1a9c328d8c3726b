//! Starts the daemon from its configuration.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use utipc::bearers::{Bearer, EthernetBearer, HostBearer, HostConfig, UdpBearer, UdpConfig, UdpMode};
use utipc::daemon::{
    Daemon, DaemonConfig, FixedName, Limits, NodeConfig, Plan, Policy, StackConfig, usual_socket,
};
use utipc::{ClusterId, NodeAddr, NodeId};

use super::file::{self, File, Media};
use super::users;

/// Makes the daemon's configuration from a file, without opening anything. So a start with a file that passes
/// here fails only if the system refuses something.
pub(crate) fn config(file: &File, instance: &str, socket: Option<&Path>) -> Result<DaemonConfig> {
    let cluster = file.node.cluster.unwrap_or(4711);
    if !(1..=9999).contains(&cluster) {
        bail!("cluster = {cluster} is out of range (1 to 9999)");
    }
    let identity = file.node.identity.as_deref();
    if let Some(text) = identity.filter(|text| text.is_empty() || text.len() > 16) {
        bail!("identity = {text:?} must have 1 to 16 characters");
    }
    let address = file.node.address.as_deref().map(address).transpose()?;
    let stack = StackConfig {
        identity: identity.map(NodeId::from_text),
        address,
        cluster: ClusterId(cluster),
        ..StackConfig::default()
    };
    let node = NodeConfig { stack, bearers: Vec::new(), label: instance.to_owned(), ..NodeConfig::default() };
    let socket = match socket.or(file.node.socket.as_deref()) {
        Some(path) => path.to_owned(),
        None => usual_place(instance)?,
    };
    let mode = file.policy.socket_mode.as_deref().map(socket_mode).transpose()?;
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

/// Opens the bearers and starts the daemon.
pub(crate) fn start(mut config: DaemonConfig, file: &File) -> Result<Daemon> {
    config.node.choose_identity()?;
    for bearer in &file.bearer {
        let plan = plan(bearer, &config.node.stack)?;
        config.node.bearers.push(plan);
    }
    config.node.complete(None)?;
    Ok(Daemon::start(config)?)
}

fn usual_place(instance: &str) -> Result<PathBuf> {
    if instance.is_empty() || instance.contains(['/', '\0']) {
        bail!("{instance:?} is not a valid instance name (use letters, digits, - and _)");
    }
    Ok(usual_socket(instance)?)
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

fn udp(bearer: &file::Bearer, cluster: ClusterId) -> Result<UdpConfig> {
    let local = bearer.local.context("a UDP bearer has no `local` address")?.socket();
    let name = bearer.name.as_deref().unwrap_or("UDP");
    let mut config = UdpConfig::multicast(name, local.ip(), cluster.0)?;
    config.local = local;
    config.mtu = bearer.mtu;
    if let Some(group) = bearer.group {
        config.mode = UdpMode::Multicast { group };
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
        let (first, last) = types.split_once('-').unwrap_or((types, types));
        let number = |text: &str| {
            text.trim().parse::<u32>().with_context(|| {
                format!(
                    "policy.bind: {types:?} is not a service type or range (write \"1000\" or \"1000-1999\")"
                )
            })
        };
        policy.bind.push((number(first)?..=number(last)?, users::who(allowed)?));
    }
    Ok(policy)
}

pub(crate) fn limits(file: &file::Limits) -> Limits {
    let usual = Limits::default();
    Limits {
        attachments: file.processes.unwrap_or(usual.attachments),
        sockets_per_attachment: file.sockets_per_process.unwrap_or(usual.sockets_per_attachment),
        bindings_per_attachment: file.bindings_per_process.unwrap_or(usual.bindings_per_attachment),
        bindings: file.bindings.unwrap_or(usual.bindings),
        ..usual
    }
}

fn address(text: &str) -> Result<NodeAddr> {
    let parts: Vec<u32> = text.split('.').map_while(|part| part.parse().ok()).collect();
    match parts[..] {
        [zone, cluster, node] if zone < 256 && cluster < 4096 && node < 4096 && node > 0 => {
            Ok(NodeAddr(zone << 24 | cluster << 12 | node))
        }
        _ => bail!("address = {text:?} is not a node address (write \"1.1.10\": up to 255.4095.4095)"),
    }
}

fn socket_mode(text: &str) -> Result<u32> {
    let mode =
        u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|mode| *mode > 0 && *mode <= 0o777);
    mode.with_context(|| format!("socket_mode = {text:?} is not a file mode (write \"0660\")"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(text: &str) -> Result<DaemonConfig> {
        config(&File::parse(text)?, "default", Some(Path::new("/nowhere/sock")))
    }

    #[test]
    fn error_names_a_value_out_of_range() {
        for (text, word) in [
            ("[node]\ncluster = 0\n", "cluster = 0"),
            ("[node]\naddress = \"1.1\"\n", "1.1"),
            ("[node]\nidentity = \"seventeen letters\"\n", "16 characters"),
            ("[policy]\nsocket_mode = \"rw\"\n", "rw"),
            ("[policy.bind]\n\"many\" = [\"*\"]\n", "many"),
            ("[policy]\nattach = [\"no-such-user-here\"]\n", "no-such-user-here"),
        ] {
            let error = format!("{:#}", configured(text).err().expect(text));
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn policy_comes_from_the_file() {
        let config =
            configured("[policy]\nattach = [\"0\", \"*\"]\n[policy.bind]\n\"1000-1999\" = [\"root\"]\n")
                .unwrap();
        assert_eq!(config.policy.attach, utipc::daemon::Users::All);
        assert_eq!(config.policy.bind[0].0, 1000..=1999);
    }
}
