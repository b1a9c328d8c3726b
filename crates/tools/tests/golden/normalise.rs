//! Replaces what may differ between two nodes in the same state: addresses, ports, keys and measured counters.
//! Everything else (labels, columns, order, settings) stays.

/// The text with what may differ replaced; `how` is the second column of interop/manage/cases.txt:
///
/// | how | what may differ |
/// |---|---|
/// | `exact`, `fails` | nothing |
/// | `text` | numbers, but no part of a label, and neither priority nor tolerance |
/// | `table` | numbers of six digits and more, hexadecimal addresses, generations; not the width of their column |
/// | `blocks` | as `text` outside of braces; the order of the paragraphs |
/// | `media` | the presence of InfiniBand |
/// | `object` | braces: iproute2 prints an array with a name in it, which is not valid JSON |
pub(crate) fn normalise(how: &str, text: &str) -> String {
    match how {
        "text" => text.lines().map(|line| numbers(line) + "\n").collect(),
        "table" => text.lines().map(|line| columns(line) + "\n").collect(),
        "blocks" => blocks(text),
        "media" => text.lines().filter(|line| *line != "ib").map(|line| format!("{line}\n")).collect(),
        "object" => text.replace(['{', '}'], ""),
        _ => text.to_owned(),
    }
}

/// Settings; these are equal in the same state.
const KEPT: [&str; 6] =
    ["Priority:", "Tolerance:", "\"priority\":", "\"tolerance\":", "\"priority\": ", "\"tolerance\": "];

/// Replaces each number that stands alone, or at the end of a label, by `#`.
fn numbers(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    let mut braces = 0u32;
    while let Some(first) = rest.chars().next() {
        let len = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        let run = &rest[..len];
        let opens = out.chars().last().is_none_or(|before| " :/.[".contains(before));
        let after = rest[len..].chars().next();
        let closes = after.is_none_or(|after| " :/.%,]}".contains(after));
        let is_number = run.chars().any(|c| c.is_ascii_digit());
        if is_number && opens && closes && braces == 0 && !KEPT.iter().any(|label| out.ends_with(label)) {
            out.push('#');
            rest = &rest[len..];
        } else if len > 0 {
            out.push_str(run);
            rest = &rest[len..];
        } else {
            match first {
                '{' if !line.contains('"') => braces += 1,
                '}' if !line.contains('"') => braces = braces.saturating_sub(1),
                _ => {}
            }
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// Replaces each long number, address and generation, with the blanks after it, by its number in angle brackets.
fn columns(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let len = rest.find(' ').unwrap_or(rest.len());
        let blanks = rest[len..].len() - rest[len..].trim_start_matches(' ').len();
        let (word, whole) = (&rest[..len], &rest[..len + blanks]);
        let hex = word.chars().all(|c| c.is_ascii_hexdigit()) && word.chars().any(|c| c.is_ascii_digit());
        let decimal = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
        let generation = decimal && out.trim_end().ends_with("direct");
        if generation || decimal && len >= 6 || hex && len == 8 {
            let width = if len + blanks == rest.len() { 0 } else { whole.len() };
            out.push_str(&format!("<{width}>"));
        } else {
            out.push_str(whole);
        }
        rest = &rest[len + blanks..];
    }
    out
}

/// Sorts paragraphs, each a line that does not begin with a blank and the following lines that do.
fn blocks(text: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = numbers(line) + "\n";
        match all.last_mut().filter(|_| line.starts_with(' ')) {
            Some(block) => block.push_str(&line),
            None => all.push(line),
        }
    }
    all.sort();
    all.concat()
}

#[cfg(test)]
mod tests {
    use super::normalise;

    const STATISTICS: &str = "Link <beta:U-alpha:U>\n  ACTIVE  MTU:1500  Priority:10  Tolerance:1500 ms  Window:50 packets\n  \
                              RX packets:12 fragments:3/4 bundles:0/0\n  0-64:10% -256:90%\n";
    const TABLE: &str = "Type       Lower      Upper      Scope    Port       Node\n\
                         1000       1          10         cluster  744739926  beta\n";

    #[test]
    fn measured_values_may_differ() {
        let other = STATISTICS
            .replace("12", "9")
            .replace("3/4", "0/0")
            .replace("90%", "5%")
            .replace("1500  P", "9  P");
        assert_eq!(normalise("text", STATISTICS), normalise("text", &other));
        let other = TABLE.replace("744739926  ", "4294967295 ");
        assert_eq!(normalise("table", TABLE), normalise("table", &other));
        let (one, two) =
            ("socket 1\n  bound to {1,1,1}\nsocket 2\n", "socket 9\nsocket 3\n  bound to {1,1,1}\n");
        assert_eq!(normalise("blocks", one), normalise("blocks", two));
        let (one, two) = ("  connected to 6c7068:123 via {3000,1}", "  connected to 1:2 via {3000,1}");
        assert_eq!(normalise("blocks", one), normalise("blocks", two));
    }

    #[test]
    fn a_changed_label_column_or_setting_is_seen() {
        for (from, to) in [
            ("packets:", "packet:"),
            ("RX", "Rx"),
            ("-256", "-257"),
            ("0-64", "0-65"),
            ("  ACTIVE", " ACTIVE"),
            ("Priority:10", "Priority:11"),
            ("Tolerance:1500 ms", "Tolerance:1501 ms"),
            ("fragments:3/4", "fragments:3"),
            ("beta:U", "gamma:U"),
        ] {
            let changed = STATISTICS.replacen(from, to, 1);
            assert_ne!(changed, STATISTICS, "{from}");
            assert_ne!(normalise("text", STATISTICS), normalise("text", &changed), "{from}");
        }
        for (from, to) in [
            ("744739926  beta", "744739926 beta"),
            ("744739926  beta", "744739926   beta"),
            ("Lower      ", "Lower     "),
            ("1000       1", "1001       1"),
            ("cluster", "node   "),
            ("Port ", "Ref  "),
            ("beta", "alpha"),
        ] {
            let changed = TABLE.replacen(from, to, 1);
            assert_ne!(changed, TABLE, "{from}");
            assert_ne!(normalise("table", TABLE), normalise("table", &changed), "{from}");
        }
        assert_ne!(normalise("blocks", "socket 1\n"), normalise("blocks", "socket 1\nsocket 2\n"));
        assert_ne!(normalise("blocks", "  bound to {1,1,1}"), normalise("blocks", "  bound to {1,1,2}"));
        assert_ne!(normalise("exact", "1\n"), normalise("exact", "2\n"));
    }
}
