//! Parts of the utipc command line that several programs use.

pub mod daemon;

/// An error and its causes in one line, outermost first, without causes that the text before them contains.
#[must_use]
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(|cause| cause.to_string()) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line.replace('\n', " ")
}
