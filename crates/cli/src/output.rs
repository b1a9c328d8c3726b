//! Standard output of the programs, whose reader may close the pipe.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code after SIGPIPE, as shells count it.
const SIGPIPE: u8 = 128 + 13;

/// Set when a write of `println!` found the output closed.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Beginning of the standard library's panic when the output is a broken pipe.
const BROKEN_PIPE: &str = "failed printing to stdout: Broken pipe";

/// Runs a program that prints with `println!`. It ends quietly when the reader closes the pipe, as in `utipc bench … |
/// head`. The exit code is then that of SIGPIPE.
pub fn until_closed(program: fn() -> ExitCode) -> ExitCode {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<String>().is_some_and(|why| why.starts_with(BROKEN_PIPE)) {
            UNREAD.store(true, Ordering::Relaxed);
        } else {
            usual(info);
        }
    }));
    // The panic unwinds to here, so that destructors end the processes that were started.
    match std::panic::catch_unwind(program) {
        Ok(code) => code,
        Err(_) if UNREAD.load(Ordering::Relaxed) => ExitCode::from(SIGPIPE),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Standard output takes no more.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The reader has closed the pipe: a tool ends without a message.
    #[error("standard output is closed")]
    Closed,
    /// The output cannot be written.
    #[error("write to standard output: {0}")]
    Failed(io::Error),
}

/// Writes a line to standard output at once; [`say!`](crate::say) formats it.
///
/// # Errors
/// See [`OutputError`].
pub fn line(text: fmt::Arguments<'_>) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|why| match why.kind() {
        ErrorKind::BrokenPipe => OutputError::Closed,
        _ => OutputError::Failed(why),
    })
}

/// Writes a formatted line to standard output, as `println!` does, and returns an
/// [`OutputError`](crate::output::OutputError) instead of panicking.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// Prints the error of a program to standard error in one line, unless its output was closed; returns its exit code.
pub fn failed(program: &str, why: &anyhow::Error) -> ExitCode {
    if matches!(why.downcast_ref(), Some(OutputError::Closed)) {
        return ExitCode::from(SIGPIPE);
    }
    eprintln!("{program}: {}", format!("{why:#}").replace('\n', " "));
    ExitCode::FAILURE
}
