//! Parts of the utipc command line that several programs use.

pub mod companion;
pub mod daemon;
pub mod drain;
pub mod namespaces;
pub mod preload;

use utipc_cli::{log, one_line, plain};

/// Prints an error of a program: one line, or one for each fault of a configuration.
pub fn report(program: &str, error: &anyhow::Error) {
    match error.downcast_ref::<daemon::Faults>() {
        Some(faults) => log::print_error(program, &plain(&faults.to_string())),
        None => log::print_error(program, &one_line(error)),
    }
}
