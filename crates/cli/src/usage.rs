//! Command lines: errors in one line, and the option `--completion` of every program.

use std::io;
use std::process::exit;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command, FromArgMatches, Parser};
use clap_complete::Shell;

/// The exit code after a wrong command line.
pub const CODE: i32 = 2;

const OPTION: &str = "completion";

/// The command line of this process. Ends the process if it is wrong, after one line on standard error,
/// after help, and after a completion script.
pub fn parse<T: Parser>() -> T {
    let command = with_completion(T::command());
    let matches = matches(command.clone());
    complete(&matches, command);
    T::from_arg_matches(&matches).unwrap_or_else(|error| end(&T::command(), &error))
}

/// As [`parse`], for an extended command.
pub fn matches(mut command: Command) -> ArgMatches {
    command.try_get_matches_from_mut(std::env::args_os()).unwrap_or_else(|error| end(&command, &error))
}

/// As [`parse`], of matches.
pub fn of_matches<T: FromArgMatches>(command: &Command, matches: &ArgMatches) -> T {
    T::from_arg_matches(matches).unwrap_or_else(|error| end(command, &error))
}

/// Adds the option `--completion SHELL`.
#[must_use]
pub fn with_completion(command: Command) -> Command {
    let option = Arg::new(OPTION).long(OPTION).value_name("SHELL").value_parser(clap::value_parser!(Shell));
    command.arg(option.exclusive(true).help("Print a completion script for this shell and end"))
}

/// Prints the completion script and ends the process, if the option is given.
pub fn complete(matches: &ArgMatches, mut command: Command) {
    let Some(shell) = matches.get_one::<Shell>(OPTION) else { return };
    let name = command.get_name().to_owned();
    clap_complete::generate(*shell, &mut command, name, &mut io::stdout());
    exit(0);
}

fn end(command: &Command, error: &clap::Error) -> ! {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Fails if standard output is closed.
        let _ = error.print();
        exit(0);
    }
    let name = command.get_name();
    eprintln!("{name}: {}", line(name, error));
    exit(CODE)
}

/// The error and its remedy in one line.
fn line(name: &str, error: &clap::Error) -> String {
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("a command is missing (see `{name} --help`)");
    }
    let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let what = parts.next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(&what).to_owned();
    let tips: Vec<String> = parts.filter_map(|part| Some(part.strip_prefix("tip: ")?.to_owned())).collect();
    // The error of a value ends with its own remedy.
    if what.ends_with(')') && tips.is_empty() {
        return what;
    }
    let mut remedy = tips;
    remedy.push(format!("see `{name} --help`"));
    format!("{what} ({})", remedy.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(words: &[&str]) -> String {
        let command = Command::new("x")
            .arg(Arg::new("size").long("size").value_parser(clap::value_parser!(u32).range(1..9)))
            .arg(Arg::new("kind").long("kind").value_parser(["a", "b"]))
            .arg(Arg::new("file").required(true));
        line("x", &command.try_get_matches_from(words).unwrap_err())
    }

    #[test]
    fn errors_have_one_line_with_a_remedy() {
        for (words, expected) in [
            (
                &["x", "--sice", "1", "f"][..],
                "unexpected argument '--sice' found (a similar argument exists: '--size'; see `x --help`)",
            ),
            (&["x"], "the following required arguments were not provided: <file> (see `x --help`)"),
            (
                &["x", "--size", "0", "f"],
                "invalid value '0' for '--size <size>': 0 is not in 1..9 (see `x --help`)",
            ),
            (
                &["x", "--kind", "c", "f"],
                "invalid value 'c' for '--kind <kind>' [possible values: a, b] (see `x --help`)",
            ),
        ] {
            let line = error(words);
            assert_eq!(line, expected);
        }
    }
}
