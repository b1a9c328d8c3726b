//! Shell completion of the command line, from the list of commands.

use clap::Command;

use super::table::{COMMANDS, Then, Word};

pub(crate) use clap_complete::Shell;

/// Prints the script for a shell: the commands of clap, and those of the management tool.
pub(crate) fn completion(shell: Shell, command: Command, out: &mut dyn std::io::Write) {
    let mut command = COMMANDS.iter().fold(command, |command, word| {
        // So far these commands of clap have only names.
        command.mut_subcommand(word.name, |known| with_words(known, word))
    });
    clap_complete::generate(shell, &mut command, "utipc", out);
}

fn with_words(command: Command, word: &'static Word) -> Command {
    let command = command.about(word.about);
    match word.then {
        Then::Words(words) => words
            .iter()
            .fold(command, |command, word| command.subcommand(with_words(Command::new(word.name), word))),
        // Keys may follow in any order.
        Then::Run(_) => word
            .keys
            .iter()
            .filter(|key| !key.starts_with('-'))
            .fold(command, |command, key| command.subcommand(Command::new(*key))),
    }
}
