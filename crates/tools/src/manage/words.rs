//! The words of a command line: options anywhere, commands and keys abbreviated to any unambiguous prefix.

/// Options; they may stand anywhere before `--`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) help: bool,
    pub(super) json: bool,
    pub(super) pretty: bool,
    /// Not in iproute2: show why links went down.
    pub(super) why: bool,
    /// Not in iproute2: show owners of sockets.
    pub(super) processes: bool,
    /// Not in iproute2: the engine to query.
    pub(super) engine: Option<String>,
    /// The program runs under its own name, not as `tipc`.
    pub(super) own: bool,
}

/// Options without and with a value.
const FLAGS: [&str; 3] = ["help", "json", "pretty"];
const OWN_FLAGS: [&str; 2] = ["why", "processes"];

/// Splits a command line into options and words. Without `own`, only the options of `tipc` are known.
///
/// # Errors
/// An unknown option.
pub(super) fn split(args: &[String], own: bool) -> Result<(Options, Vec<String>), String> {
    let (mut options, mut words) = (Options { own, ..Options::default() }, Vec::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            words.extend(rest.cloned());
            break;
        } else if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            let all = FLAGS.iter().chain(OWN_FLAGS.iter().filter(|_| own)).copied();
            if own && name == "engine" {
                let value = value.map(str::to_owned).or_else(|| rest.next().cloned());
                options.engine = Some(value.ok_or("--engine needs a name: daemon or kernel")?);
                continue;
            }
            match unique(all, name).filter(|_| value.is_none()) {
                Some("help") => options.help = true,
                Some("json") => options.json = true,
                Some("pretty") => options.pretty = true,
                Some("why") => options.why = true,
                Some("processes") => options.processes = true,
                _ => return Err(format!("unknown option {arg} (options are -h, -j and -p; see `--help`)")),
            }
        } else if let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            for letter in letters.chars() {
                match letter {
                    'h' => options.help = true,
                    'j' => options.json = true,
                    'p' => options.pretty = true,
                    _ => return Err(format!("unknown option -{letter} (options are -h, -j and -p)")),
                }
            }
        } else {
            words.push(arg.clone());
        }
    }
    Ok((options, words))
}

/// The value that begins with `prefix`, if exactly one does.
pub(super) fn unique<'a>(all: impl Iterator<Item = &'a str>, prefix: &str) -> Option<&'a str> {
    let mut found = all.filter(|name| name.starts_with(prefix));
    let first = found.next();
    first.filter(|_| found.next().is_none())
}

/// Words that are not yet parsed.
#[derive(Clone, Debug)]
pub(super) struct Words {
    all: Vec<String>,
    at: usize,
}

/// A key that may follow a command, and whether a value follows it.
pub(super) type Key = (&'static str, bool);

/// Keys with their values.
#[derive(Debug, Default)]
pub(super) struct Given(Vec<(&'static str, String)>);

impl Given {
    /// The value of a key; for a key without a value the word itself.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Words {
    pub(super) fn new(all: Vec<String>) -> Self {
        Self { all, at: 0 }
    }

    pub(super) fn next(&mut self) -> Option<String> {
        let word = self.all.get(self.at).cloned();
        self.at += usize::from(word.is_some());
        word
    }

    /// Makes the word that `next` returned last the next one again.
    pub(super) fn back(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    /// The next word, without consuming it.
    pub(super) fn peek(&self) -> Option<&str> {
        self.all.get(self.at).map(String::as_str)
    }

    /// Parses all remaining words as keys with values.
    ///
    /// # Errors
    /// An unknown key. A key at the end without its value counts as not given.
    pub(super) fn keys(&mut self, keys: &[Key]) -> Result<Given, String> {
        let mut given = Given::default();
        while let Some(word) = self.next() {
            let name = unique(keys.iter().map(|(name, _)| *name), &word);
            let Some((name, valued)) = keys.iter().find(|(key, _)| Some(*key) == name).copied() else {
                let known: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
                return Err(format!("unexpected word {word:?} (use one of {})", known.join(", ")));
            };
            let value = if valued { self.next() } else { Some(word) };
            given.0.extend(value.map(|value| (name, value)));
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_stand_anywhere() {
        let (options, words) = split(&args("link -jp list --he"), false).unwrap();
        assert!(options.json && options.pretty && options.help);
        assert_eq!(words, ["link", "list"]);
        let (options, words) = split(&args("-j -- -p"), false).unwrap();
        assert!(options.json && !options.pretty);
        assert_eq!(words, ["-p"]);
        assert!(split(&args("--why"), false).is_err());
        let (options, _) = split(&args("--engine=kernel --why"), true).unwrap();
        assert_eq!((options.engine.as_deref(), options.why), (Some("kernel"), true));
        assert!(split(&args("-x"), true).is_err() && split(&args("--engine"), true).is_err());
    }

    #[test]
    fn keys_may_be_abbreviated_to_an_unambiguous_prefix() {
        let keys = [("media", true), ("name", true), ("localip", false), ("localport", false)];
        let given = Words::new(args("m udp n U locali")).keys(&keys).unwrap();
        assert_eq!((given.get("media"), given.get("name")), (Some("udp"), Some("U")));
        assert!(given.get("localip").is_some() && given.get("localport").is_none());
        assert!(Words::new(args("local")).keys(&keys).is_err());
        assert!(Words::new(args("media")).keys(&keys).unwrap().get("media").is_none());
    }
}
