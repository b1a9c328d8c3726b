//! The identity of a node by the name of its host.

/// Longest identity, bytes.
const MAX: usize = 16;

/// Host names that many hosts have.
const MEANINGLESS: [&str; 3] = ["", "localhost", "(none)"];

/// Checks an identity of the configuration.
pub(super) fn check(text: &str) -> Result<(), String> {
    let fits = (1..=MAX).contains(&text.len()) && !text.contains(|c: char| c.is_control());
    if fits {
        Ok(())
    } else {
        Err(format!("identity = {text:?}: empty or too long (write 1 to {MAX} characters)"))
    }
}

/// The identity of a daemon on the host `host`; `None` if the name is not specific. `beside` tells daemons of one host
/// apart: the instance, the user, or the socket.
///
/// A name that is too long keeps its beginning and gets eight digits of a hash, so that hosts whose names begin alike
/// still differ.
pub(super) fn by_host(host: &str, beside: Option<&str>) -> Option<String> {
    let label = host.split('.').next().unwrap_or_default();
    if MEANINGLESS.contains(&label) {
        return None;
    }
    let whole = match beside {
        Some(beside) => format!("{label}-{beside}"),
        None => label.to_owned(),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    if whole.len() <= MAX && whole.chars().all(is_plain) {
        return Some(whole);
    }
    const DIGITS: usize = 8;
    let begin: String = label.chars().filter(|c| is_plain(*c)).take(MAX - DIGITS - 1).collect();
    Some(format!("{begin}-{:08x}", hash(whole.as_bytes())))
}

/// FNV-1a: the same in every release, because identities contain it.
pub(super) fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The name of this host.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_the_first_label_of_the_host_name() {
        assert_eq!(by_host("alpha.example.com", None).as_deref(), Some("alpha"));
        assert_eq!(by_host("alpha", Some("blue")).as_deref(), Some("alpha-blue"));
        for name in ["", "localhost", "localhost.localdomain", "(none)"] {
            assert_eq!(by_host(name, Some("blue")), None, "{name}");
        }
    }

    #[test]
    fn long_names_that_begin_alike_differ() {
        let [one, two] =
            ["trading-server-eu-01", "trading-server-eu-02"].map(|name| by_host(name, None).unwrap());
        assert!(one.starts_with("trading-") && one.len() == MAX, "{one}");
        assert_ne!(one, two);
        assert_eq!(by_host("trading-server-eu-01.example", None).unwrap(), one);
        assert_eq!(by_host("abc", Some("a user")).unwrap().len(), "abc-".len() + 8);
    }

    #[test]
    fn identities_of_the_configuration_have_1_to_16_characters() {
        assert!(check("node-a").is_ok() && check("sixteen letters!").is_ok());
        assert!(check("").is_err() && check("seventeen letters").is_err() && check("a\nb").is_err());
    }
}
