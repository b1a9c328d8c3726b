//! Texts of errors.

/// An error and its causes in one line, outermost first, without causes that the text before them contains, and
/// without the system's numbers of errors.
#[must_use]
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(|cause| plain(&cause.to_string())) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line.replace('\n', " ")
}

/// A text without the system's numbers of errors, as in "No such file or directory (os error 2)".
#[must_use]
pub fn plain(text: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut rest = text;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once(BEGIN) {
        plain.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(')');
    }
    plain + rest
}

/// The name that `unknown` probably means: at most three letters differ, and at least one is right.
#[must_use]
pub fn nearest<'a>(unknown: &str, names: &[&'a str]) -> Option<&'a str> {
    let near = names.iter().map(|name| (strsim::damerau_levenshtein(unknown, name), *name)).min();
    near.filter(|(distance, name)| *distance <= 3 && *distance < name.len()).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let text = "cannot open x: No such file or directory (os error 2) (create it)";
        assert_eq!(plain(text), "cannot open x: No such file or directory (create it)");
    }

    #[test]
    fn nearest_name_differs_little() {
        let names = ["node", "bearers", "mtu"];
        assert_eq!(nearest("bearer", &names), Some("bearers"));
        assert_eq!(nearest("mut", &names), Some("mtu"));
        assert_eq!(nearest("xyz", &names), None, "no letter is right");
        assert_eq!(nearest("interface", &names), None);
    }
}
