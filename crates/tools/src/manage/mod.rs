//! The management tool: grammar and output of iproute2's `tipc`, for the node of a daemon and the kernel's.
//!
//! `table.rs` has the list of commands; each has a file. `call.rs` sends requests to the node, `output.rs` formats
//! output.

mod bearer;
mod call;
mod complete;
mod group;
pub(crate) mod identity;
mod keys;
mod link;
mod media;
mod monitor;
mod nametable;
mod node;
mod output;
mod peer;
mod property;
mod quotas;
mod socket;
mod statistics;
mod table;
pub(crate) mod when;
mod words;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use call::{Call, Failure};
use table::{COMMANDS, Then, Word};
use words::unique;

pub(crate) use complete::{Shell, completion};

/// The exit code of a failed command.
const FAILED: u8 = 1;
/// The exit code of a wrong command line.
const WRONG_LINE: u8 = 2;
/// The exit code of both under the name `tipc`, as iproute2 has it.
const FAILED_TIPC: u8 = 255;

/// Names and descriptions of the commands.
pub(crate) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().map(|word| (word.name, word.about))
}

/// Runs the command line if it is one of the management tool: always under the name `tipc`, else if its first word
/// abbreviates one of the tool's commands and is not among `others`.
pub(crate) fn run(args: &[String], others: &[&str]) -> Option<ExitCode> {
    let program = args.first().map(PathBuf::from).unwrap_or_default();
    let as_tipc = program.file_name().is_some_and(|name| name == "tipc");
    let rest = args.get(1..).unwrap_or_default();
    let split = words::split(rest, !as_tipc);
    if !as_tipc {
        // Errors in the options of other commands are reported by clap.
        let first = match &split {
            Ok((_, words)) => words.first(),
            Err(_) => rest.iter().find(|arg| !arg.starts_with('-')),
        };
        let all = COMMANDS.iter().map(|word| word.name).chain(others.iter().copied());
        let name = unique(all, first?)?;
        COMMANDS.iter().find(|word| word.name == name)?;
    }
    let name = if as_tipc { "tipc" } else { "utipc" };
    let (options, words) = match split {
        Ok(split) => split,
        Err(why) => {
            eprintln!("{name}: {why}");
            return Some(if as_tipc { ExitCode::FAILURE } else { ExitCode::from(WRONG_LINE) });
        }
    };
    let mut call = Call::new(options, words);
    let mut path = name.to_owned();
    let ended = descend(&mut call, COMMANDS, &mut path, None);
    // Part of a list may be printed before an error.
    let printed = match &ended {
        Err(Failure::Help(help)) => help.clone(),
        _ => call.out.take(),
    };
    let written = std::io::stdout().lock().write_all(printed.as_bytes());
    let code = match &ended {
        Ok(()) | Err(Failure::Help(_)) if written.is_ok() => return Some(ExitCode::SUCCESS),
        _ if as_tipc => FAILED_TIPC,
        Err(Failure::Words(_)) => WRONG_LINE,
        _ => FAILED,
    };
    match ended {
        Ok(()) | Err(Failure::Help(_)) => {}
        Err(failure) => {
            let what = path.strip_prefix(name).unwrap_or_default().trim_start();
            let colon = if what.is_empty() { "" } else { ": " };
            eprintln!("{name}: {what}{colon}{failure}");
        }
    }
    Some(ExitCode::from(code))
}

/// Follows the words to a command and runs it.
fn descend(call: &mut Call, words: &'static [Word], path: &mut String, at: Option<&Word>) -> call::Ended {
    let known = || words.iter().map(|word| word.name).collect::<Vec<_>>();
    let Some(next) = call.words.next() else {
        if call.options.help {
            return Err(Failure::Help(usage(path, at, words)));
        }
        return Err(Failure::Words(format!("a command is missing (use one of {})", known().join(", "))));
    };
    let name = unique(words.iter().map(|word| word.name), &next);
    let Some(word) = words.iter().find(|word| Some(word.name) == name) else {
        if call.options.help {
            return Err(Failure::Help(usage(path, at, words)));
        }
        return Err(Failure::Words(format!("unknown command {next:?} (use one of {})", known().join(", "))));
    };
    path.push(' ');
    path.push_str(word.name);
    match word.then {
        Then::Words(more) => descend(call, more, path, Some(word)),
        Then::Run(_) if call.options.help => Err(Failure::Help(usage(path, Some(word), &[]))),
        Then::Run(run) => {
            if word.follows.is_empty() {
                call.finish()?;
            }
            run(call)
        }
    }
}

/// Help for a word: the words that may follow.
fn usage(path: &str, at: Option<&Word>, words: &[Word]) -> String {
    let follows = at.map_or("[-j] [-p] [-h] COMMAND", |word| word.follows);
    let mut text = format!("Usage: {path} {follows}\n");
    if words.is_empty() {
        if let Some(word) = at {
            text.push_str(&format!("\n{}\n", word.about));
        }
    } else {
        text.push_str("\nCommands:\n");
    }
    for word in words {
        text.push_str(&format!(" {:<12} {}\n", word.name, word.about));
    }
    text
}

/// Makes a link named `tipc` to this program in `folder`.
pub(crate) fn install_tipc(folder: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let link = folder.join("tipc");
    if let Ok(found) = std::fs::read_link(&link) {
        if found == program {
            println!("{} already points to {}", link.display(), program.display());
            return Ok(());
        }
        bail!("{} exists and points to {} (remove it first)", link.display(), found.display());
    }
    std::os::unix::fs::symlink(&program, &link)
        .with_context(|| format!("cannot make {} (choose a writable folder of your PATH)", link.display()))?;
    println!("{} points to {}", link.display(), program.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(words: &'static [Word], path: &str, each: &mut dyn FnMut(String)) {
        for word in words {
            let path = format!("{path} {}", word.name);
            match word.then {
                Then::Words(more) => leaves(more, &path, each),
                Then::Run(_) => each(path),
            }
        }
    }

    #[test]
    fn every_command_has_help_without_a_node() {
        let mut count = 0;
        leaves(COMMANDS, "", &mut |path| {
            count += 1;
            let words = path.split_whitespace().map(str::to_owned).collect();
            let mut call = Call::new(words::Options { help: true, ..words::Options::default() }, words);
            let mut way = "utipc".to_owned();
            let Err(Failure::Help(text)) = descend(&mut call, COMMANDS, &mut way, None) else {
                panic!("{path} ran")
            };
            assert!(text.starts_with(&format!("Usage: utipc{path}")), "{text}");
        });
        assert_eq!(count, 57);
    }

    #[test]
    fn words_may_be_abbreviated_to_an_unambiguous_prefix() {
        let names = |words: &'static [Word]| words.iter().map(|word| word.name);
        assert_eq!(unique(names(COMMANDS), "l"), Some("link"));
        assert_eq!(unique(names(COMMANDS), "n"), None);
        assert_eq!(unique(names(COMMANDS), "no"), Some("node"));
        let line = |words: &str| {
            let mut all = vec!["utipc".to_owned()];
            all.extend(words.split_whitespace().map(str::to_owned));
            run(&all, &["bench", "demo", "daemon"]).is_some()
        };
        assert!(!line("b") && !line("bench") && !line("--version") && !line("d --help") && !line(""));
        assert!(line("bea --help") && line("-j link statistics --help"));
    }
}
