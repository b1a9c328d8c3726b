//! Parts of the utipc command line that several programs use.

pub mod daemon;
pub mod drain;

pub use mdist::{log, usage};

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

/// Prints an error of a program: one line, or one for each fault of a configuration.
pub fn report(program: &str, error: &anyhow::Error) {
    match error.downcast_ref::<daemon::Faults>() {
        Some(faults) => log::print_error(program, &plain(&faults.to_string())),
        None => log::print_error(program, &one_line(error)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_of_errors_are_left_out() {
        let text = "cannot open x: No such file or directory (os error 2) (create it)";
        assert_eq!(super::plain(text), "cannot open x: No such file or directory (create it)");
    }
}
