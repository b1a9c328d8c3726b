//! Rule: lines of documentation (comments in source files, and Markdown) have at most 120 columns.

use super::Finding;

/// Maximum number of columns of one line of documentation.
const MAX_COLUMNS: usize = 120;

/// Findings for one file. Table rows and code blocks of Markdown may be longer, because they cannot be wrapped, and so
/// may a line that is one word, as a link.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let Some(mut documents) = documentation(path) else { return Vec::new() };
    let long = |line: &str| line.chars().count() > MAX_COLUMNS && line.split_whitespace().count() > 2;
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| documents(line) && long(line))
        .map(|(number, _)| {
            Finding::new("columns", format!("{path}:{number}"), format!("more than {MAX_COLUMNS} columns"))
        })
        .collect()
}

/// Decides for each line of a file, in order, whether it is documentation.
type Filter = Box<dyn FnMut(&str) -> bool>;

/// The filter for files of this type; `None` if they have no documentation.
fn documentation(path: &str) -> Option<Filter> {
    let starts = |mark: &'static str| Box::new(move |line: &str| line.trim_start().starts_with(mark));
    match path.rsplit_once('.')?.1 {
        "rs" => Some(starts("//")),
        "py" | "sh" | "toml" => Some(starts("# ")),
        "c" | "h" => Some(Box::new(|line| {
            let line = line.trim_start();
            line.starts_with("/*") || line.starts_with("* ") || line.starts_with("//")
        })),
        "md" => {
            let mut in_code = false;
            Some(Box::new(move |line| {
                let fence = line.trim_start().starts_with("```");
                in_code ^= fence;
                !fence && !in_code && !line.trim_start().starts_with('|')
            }))
        }
        _ => None,
    }
}
