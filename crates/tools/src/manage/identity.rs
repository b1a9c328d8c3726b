//! Identities and addresses of nodes as text, as iproute2 reads and writes them.

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte)
}

/// Formats an identity: as text if all its characters are plain, else as hexadecimal digits; without trailing
/// zeros.
pub(crate) fn show(identity: &[u8; 16]) -> String {
    let end = identity.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let used = identity.get(..end).unwrap_or_default();
    if used.iter().all(|byte| is_plain(*byte)) {
        return used.iter().map(|byte| char::from(*byte)).collect();
    }
    let digits: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.trim_end_matches('0').to_owned()
}

/// Parses an identity of at most 16 plain characters or up to 32 hexadecimal digits.
pub(super) fn read(text: &str) -> Option<[u8; 16]> {
    let mut identity = [0; 16];
    if text.is_empty() || text.len() > 32 {
        return None;
    }
    if text.len() <= 16 && text.bytes().all(is_plain) {
        for (to, from) in identity.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        return Some(identity);
    }
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (to, pair) in identity.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = format!("{:0<2}", String::from_utf8_lossy(pair));
        *to = u8::from_str_radix(&digits, 16).ok()?;
    }
    Some(identity)
}

/// Parses an address `Z.C.N`.
pub(super) fn address(text: &str) -> Option<u32> {
    let mut parts = text.split('.').map(|part| part.parse::<u32>().ok());
    let (zone, cluster, node) = (parts.next()??, parts.next()??, parts.next()??);
    let fits = parts.next().is_none() && zone <= 255 && cluster <= 4095 && node <= 4095;
    fits.then_some(zone << 24 | cluster << 12 | node)
}

/// Parses an address of seven or eight hexadecimal digits, or with `0x` before it.
pub(super) fn hexadecimal_address(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x").or(Some(text).filter(|text| text.len() > 6))?;
    Some(digits)
        .filter(|digits| !digits.starts_with('+'))
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
}

/// Formats an address as `Z.C.N`.
pub(super) fn show_address(address: u32) -> String {
    format!("{}.{}.{}", address >> 24, address >> 12 & 0xfff, address & 0xfff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_survive_a_round_trip() {
        for text in [
            "alpha",
            "a-b_c.d:e@f",
            "0123456789abcdef",
            "deadbeefdeadbeefdeadbeefdeadbee1",
            "00ff00ff00ff00ff0",
        ] {
            let identity = read(text).unwrap();
            assert_eq!(show(&identity).trim_end_matches('0'), text.trim_end_matches('0'));
        }
        assert_eq!(show(&[0; 16]), "");
        for wrong in ["", "with space", "this is longer than thirty-two characters", "ghijklmnopqrstuvwxyz"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn addresses_survive_a_round_trip() {
        assert_eq!(address("1.2.3"), Some(0x0100_2003));
        assert_eq!(show_address(0x0100_2003), "1.2.3");
        for wrong in ["1.2", "1.2.3.4", "256.1.1", "1.4096.1", "a.b.c"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
        assert_eq!(hexadecimal_address("1002003"), Some(0x0100_2003));
        assert_eq!(hexadecimal_address("0x7"), Some(7));
        for wrong in ["1001", "123456789", "+1002003", "node-alpha", ""] {
            assert_eq!(hexadecimal_address(wrong), None, "{wrong}");
        }
    }
}
