//! Command lines: every program has the option `--completion`.

use std::io;
use std::process::exit;

use clap::{Arg, ArgMatches, Command, Parser};
use clap_complete::Shell;

const OPTION: &str = "completion";

/// The command line of this process. Ends the process if it is wrong, after help, and after a completion script.
pub fn parse<T: Parser>() -> T {
    let command = with_completion(T::command());
    let matches = command.clone().get_matches();
    complete(&matches, command);
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
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
