//! Reads settings from files and the command line.

use super::{Config, cnf};
use crate::net::check_peer;
use std::path::{Path, PathBuf};

/// Error in the settings. Every error names the setting and the values that are allowed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read the settings {path}: {why} (check the path)")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
    /// A TOML file is invalid.
    #[error("{path}, line {line}: {why}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The mistake.
        why: String,
    },
    /// A known parameter of a `rmds.cnf`-style file has an invalid value.
    #[error("line {line}: {parameter} cannot be `{value}`: it must be {allowed}")]
    Cnf {
        /// Line number, from 1.
        line: usize,
        /// The parameter.
        parameter: String,
        /// The value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// An error in a file that is named.
    #[error("{path}, {why}")]
    In {
        /// The file.
        path: PathBuf,
        /// The error.
        why: Box<Error>,
    },
    /// A setting has a value that is not allowed, by itself or with the other settings.
    #[error("{setting} must be {allowed}")]
    Value {
        /// The setting.
        setting: String,
        /// The allowed values.
        allowed: String,
    },
}

/// Checks the addresses of upstreams in `setting`.
///
/// # Errors
/// [`Error::Value`]: one has no host or no port.
pub fn check_hosts(setting: &str, hosts: &[String]) -> Result<(), Error> {
    hosts.iter().try_for_each(|host| {
        check_peer(host).map_err(|why| Error::Value {
            setting: setting.into(),
            allowed: format!("HOST:PORT with a port from 1 to 65535, as in feed1:14002; {why}"),
        })
    })
}

/// The command-line options for settings.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Settings: a TOML file, or a file in the style of rmds.cnf (recognised by the extension .cnf). May be given
    /// several times; later files override earlier ones.
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Print all effective settings as a TOML file and exit.
    #[arg(long)]
    pub print_config: bool,
    /// Seconds between two lines of statistics on standard output, 0: none; replaces the configured value.
    #[arg(long, value_name = "SECONDS")]
    pub stats_interval: Option<u32>,
}

/// Settings, and what there is to say about the files.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// One text for each line of `.cnf` files without effect, with file and line number.
    pub ignored: Vec<String>,
    /// Keys directly below `[backbone]` that are options of TIPC.
    former: Vec<&'static str>,
}

impl Loaded {
    /// Says where settings belong that a file has in their former place.
    #[must_use]
    pub fn former_places(&self) -> Option<String> {
        let list = |table: &str| {
            self.former.iter().map(|key| format!("{table}.{key}")).collect::<Vec<_>>().join(", ")
        };
        (!self.former.is_empty()).then(|| {
            format!(
                "{} in a settings file: the options of TIPC belong below [backbone.tipc] now ({})",
                list("backbone"),
                list("backbone.tipc")
            )
        })
    }
}

impl Args {
    /// Reads the files.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn load(&self) -> Result<Loaded, Error> {
        let mut loaded = Loaded::default();
        for path in &self.config {
            let text =
                std::fs::read_to_string(path).map_err(|why| Error::Read { path: path.clone(), why })?;
            if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("cnf")) {
                let ignored = cnf::apply(&mut loaded.config, &text, &host_name())
                    .map_err(|why| Error::In { path: path.clone(), why: Box::new(why) })?;
                loaded.ignored.extend(ignored.iter().map(|i| format!("{}, {i}", path.display())));
            } else {
                loaded.config = over(&loaded.config, &text, path)?;
                let former = loaded.config.backbone.move_former();
                loaded.former.retain(|key| !former.contains(key));
                loaded.former.extend(former);
            }
        }
        if let Some(seconds) = self.stats_interval {
            loaded.config.metrics.stats_interval_s = seconds;
        }
        loaded.config.check()?;
        Ok(loaded)
    }
}

/// The name of this host.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// `base` with the settings of the TOML `text`.
fn over(base: &Config, text: &str, path: &Path) -> Result<Config, Error> {
    let fail = |why: toml::de::Error| {
        let at = why.span().map_or(0, |s| s.start);
        let line = 1 + text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count();
        Error::Toml { path: path.to_owned(), line, why: with_near_name(why.message()) }
    };
    // First without `base`: only then an error has its line.
    let config: Config = toml::from_str(text).map_err(fail)?;
    if *base == Config::default() {
        return Ok(config);
    }
    let mut table = toml::Table::try_from(base).map_err(|why| Error::Toml {
        path: path.to_owned(),
        line: 1,
        why: why.to_string(),
    })?;
    merge(&mut table, toml::from_str(text).map_err(fail)?);
    table.try_into().map_err(fail)
}

fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) => merge(base, over),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

/// Replaces an "unknown field" message by one that suggests the nearest name, or lists all names.
fn with_near_name(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let (true, Some(unknown)) = (message.starts_with("unknown"), names.next()) else { return message.into() };
    let names: Vec<&str> = names.collect();
    match utipc_cli::nearest(unknown, &names) {
        Some(near) => format!("there is no setting `{unknown}`; did you mean `{near}`?"),
        None => format!("there is no setting `{unknown}`; there are: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OnFull, UpstreamKind};

    fn toml(text: &str) -> Result<Config, Error> {
        let mut config = over(&Config::default(), text, Path::new("x.toml"))?;
        config.backbone.move_former();
        Ok(config)
    }

    #[test]
    fn defaults_are_valid_and_survive_printing() {
        let config = Config::default();
        config.check().unwrap();
        let text = config.print();
        assert_eq!(toml(&text).unwrap(), config, "{text}");
        assert!(text.contains("max-output-buffers = 32000"));
    }

    #[test]
    fn file_changes_only_the_settings_that_it_names() {
        let config = toml(
            r#"
            [p2ps]
            listen = ["127.0.0.1:0"]
            cache = false
            [[p2ps.upstream]]
            kind = "provider"
            hosts = ["a:14002", "b:14002"]
            [p2ps.service.DIRECT_FEED]
            cache = true
            [src-dist.defaults]
            window-kib = 4096
            [src-dist.service.X]
            on-full = "cut"
            [threads]
            mounts = [{ cpus = [1], busy-poll = true }]
            "#,
        )
        .unwrap();
        config.check().unwrap();
        assert!(config.p2ps.caches("DIRECT_FEED") && !config.p2ps.caches("OTHER"));
        assert_eq!(config.p2ps.upstream[0].kind, UpstreamKind::Provider);
        assert_eq!(
            (config.src_dist.service("X").on_full, config.src_dist.service("X").window_kib),
            (OnFull::Cut, 4096)
        );
        assert!(config.threads.mounts(7).busy_poll);
    }

    #[test]
    fn error_of_an_unknown_key_names_line_and_nearest_name() {
        let error = toml("[p2ps]\nworkers = 2\ntcp-nodelay = true\n").unwrap_err().to_string();
        assert_eq!(error, "x.toml, line 3: there is no setting `tcp-nodelay`; did you mean `tcp-no-delay`?");
        let error = toml("[metrics]\nfrobnicate = 1\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "x.toml, line 2: there is no setting `frobnicate`; there are: listen, hosts, stats-interval-s"
        );
        let error = toml("[p2ps]\nworkers = -1\n").unwrap_err().to_string();
        assert!(error.starts_with("x.toml, line 2: invalid value"), "{error}");
    }

    #[test]
    fn upstream_needs_a_port() {
        let check = |text: &str| toml(text).unwrap().check().unwrap_err().to_string();
        assert_eq!(
            check("[[src-dist.provider]]\nhosts = [\"a:14002\", \"b\"]"),
            "src-dist.provider[0].hosts must be HOST:PORT with a port from 1 to 65535, as in feed1:14002; 'b' has no port"
        );
        let why = check("[[p2ps.upstream]]\nkind = \"p2ps\"\nhosts = [\"b:0\"]");
        assert!(
            why.starts_with("p2ps.upstream[0].hosts must be HOST:PORT") && why.ends_with("'b:0' has port 0"),
            "{why}"
        );
        check_hosts("--provider", &["b:1".into()]).unwrap();
        let why = check_hosts("--provider", &["foo".into()]).unwrap_err().to_string();
        assert!(
            why.starts_with("--provider must be HOST:PORT") && why.ends_with("'foo' has no port"),
            "{why}"
        );
    }

    #[test]
    fn settings_without_effect_are_listed_once_set() {
        assert_eq!(Config::default().without_effect(), Vec::<String>::new());
        let config = toml(
            "[p2ps.latency-calc]\nper-connection = true\n[backbone.rrcp]\nndata = 9\npkt-pool-limit-low = 9\n[backbone]\nsend-buffer-kib = 64\n",
        );
        let list = config.unwrap().without_effect();
        let names =
            ["p2ps.latency-calc", "backbone.tipc.send-buffer-kib", "backbone.rrcp (maxPkt", "backbone.rrcp:"];
        assert_eq!(list.len(), names.len());
        assert!(list.iter().zip(names).all(|(text, name)| text.starts_with(name)), "{list:?}");
    }

    #[test]
    fn source_type_that_daemons_do_not_reserve_is_warned_of() {
        assert_eq!(Config::default().warnings(), Vec::<String>::new());
        let other = toml("[backbone]\nsource-type = 18600\n").unwrap().warnings();
        assert!(
            other.len() == 1 && other[0].contains("18600") && other[0].contains("[policy.bind]"),
            "{other:?}"
        );
    }

    #[test]
    fn options_of_tipc_are_accepted_in_their_former_place_with_one_warning() {
        let dir = std::env::temp_dir().join(format!("mdist-former-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let files = ["one.toml", "two.toml", "three.toml"].map(|name| dir.join(name));
        let former = "[backbone]\nsource-type = 7\nreceive-buffer-kib = 2048\n[backbone.node]\nlocal = \"127.0.0.1\"\n";
        std::fs::write(&files[0], former).unwrap();
        std::fs::write(&files[1], "[backbone.tipc]\nfeed-type = 9\nreceive-buffer-kib = 4096\n").unwrap();
        std::fs::write(&files[2], "[backbone]\nsource-type = 8\n").unwrap();
        let loaded = Args { config: files.to_vec(), ..Args::default() }.load().unwrap();
        let tipc = &loaded.config.backbone.tipc;
        assert_eq!((tipc.source_type, tipc.feed_type, tipc.receive_buffer_kib), (8, 9, Some(4096)));
        assert_eq!(tipc.node.as_ref().unwrap().local, "127.0.0.1");
        assert_eq!(
            loaded.former_places().unwrap(),
            "backbone.receive-buffer-kib, backbone.node, backbone.source-type in a settings file: the options of TIPC \
             belong below [backbone.tipc] now (backbone.tipc.receive-buffer-kib, backbone.tipc.node, \
             backbone.tipc.source-type)"
        );
        let printed = loaded.config.print();
        assert_eq!(toml(&printed).unwrap(), loaded.config, "{printed}");
        let new = Args { config: files[1..2].to_vec(), ..Args::default() }.load().unwrap();
        assert_eq!(new.former_places(), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn later_files_override_earlier_ones() {
        let dir = std::env::temp_dir().join(format!("mdist-config-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (cnf, toml) = (dir.join("rmds.CNF"), dir.join("mine.toml"));
        let own_host = host_name();
        let other_host = format!("not-{own_host}*ads*poolSize 17\n{own_host}*ads*flushInterval 3\n");
        std::fs::write(&cnf, other_host + "*p2ps*poolSize 16000\n*p2ps*tcpNoDelay False\n*p2ps*what 1\n")
            .unwrap();
        std::fs::write(&toml, "[p2ps]\npool-size = 5\n").unwrap();
        let args = Args { config: vec![cnf.clone(), toml], ..Args::default() };
        let loaded = args.load().unwrap();
        let p2ps = &loaded.config.p2ps;
        assert_eq!((p2ps.pool_size, p2ps.tcp_no_delay, p2ps.flush_interval_ms), (5, false, 3));
        assert_eq!(
            loaded.ignored,
            [format!("{}, line 5: `*p2ps*what 1` is ignored: the parameter is not known", cnf.display())]
        );
        std::fs::write(&cnf, "\n*p2ps*poolSize many\n").unwrap();
        let error = args.load().unwrap_err().to_string();
        assert!(
            error.ends_with("line 2: poolSize cannot be `many`: it must be a whole number, 0 to 10000000"),
            "{error}"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
