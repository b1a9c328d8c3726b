//! Development commands: tests, tidy checks, interop lab.

mod apt;
mod blocks;
mod book;
mod clean_root;
mod conformance;
mod cpg;
mod examples;
mod go;
mod golden;
mod howto;
mod install;
mod interop;
mod java;
mod judge;
mod kernel;
mod lab;
mod needs;
mod packages;
mod process;
mod python;
mod running;
mod sandbox;
mod soak;
mod step;
mod suites;
mod tidy;
mod web_page;
mod wireshark;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};
use workspace::verdict;

/// Development commands. They do not change the system: downloads stay below `target/`.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Checks the rules of the project: dependency arrows, unsafe, lints, links, unfinished code
    Tidy,
    /// Runs the tests that a contributor needs, in about 12 minutes on two idle cores with a clean clone
    Test {
        /// Run everything that can run on this machine, in about 50 minutes
        #[arg(long)]
        all: bool,
        /// Run these suites only
        #[arg(conflicts_with = "all")]
        suites: Vec<String>,
    },
    /// Runs the tests that `cargo test ARGUMENTS` would run: several at once, each in a process of its own
    RunTests {
        /// Arguments of `cargo test`, as `-p utipc-core`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs hundreds of processes on one daemon, for half an hour by default; not part of `test`
    Soak {
        /// Options of `utipc-soak`, as `--minutes 2 --json`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Runs every example in every language and compares what it prints with examples/README.md
    Examples {
        /// Languages: rust, c, python, go or java; all by default
        languages: Vec<String>,
    },
    /// Runs the commands of the pages in docs/guide and docs/howto, and compares what they print with the pages
    Howto,
    /// Makes the book of docs in target/book with mdbook, and checks that its links lead to files
    Book,
    /// Lets links of the book's pages to other files lead to the repository; mdbook calls it
    #[command(hide = true)]
    BookLinks {
        /// `supports` and the name of a renderer, or nothing
        question: Vec<String>,
    },
    /// Tests the Go package against the C library, on an embedded node and on utipcd
    Go,
    /// Tests the Java package against the C library, on an embedded node and on utipcd
    Java {
        /// Measures round trips beside Java's own TCP instead, with the C library as packages have it
        #[arg(long)]
        bench: bool,
    },
    /// Builds the wheel of the Python package, installs it into a clean environment and tests it there
    Python {
        /// Run its tests and all examples on the kernel's own TIPC instead, in the lab's machine
        #[arg(long)]
        kernel: bool,
        /// Run there: the tests and examples of these languages
        #[arg(long, hide = true, num_args = 1..)]
        in_guest: Vec<String>,
    },
    /// Installs the wheel and the C library in a Debian root without anything else of the project, and runs
    /// programs there
    CleanRoot,
    /// Builds packages into target/package: .deb, .rpm, static tarballs, a container image, checksums, an SBOM
    Package {
        /// Options, as `--only deb,rpm`; `-- --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Installs, starts, upgrades, removes and purges the packages in clean Debian roots
    Packages {
        /// Test release builds, and also the static programs and the container image
        #[arg(long)]
        release: bool,
    },
    /// Shows the web page of real programs in Chromium, and checks it
    WebPage {
        /// Folder for the pictures [default: target/web-page]
        #[arg(long, value_name = "FOLDER")]
        pictures: Option<PathBuf>,
    },
    /// Runs the demo and measurements in a sandbox like a container's
    Sandbox,
    /// Applies a container's filter of system calls inside a sandbox, and runs a program
    #[command(hide = true)]
    Sandboxed {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// The interop lab: a virtual machine whose Linux kernel has TIPC
    #[command(subcommand)]
    Lab(LabChore),
    /// Builds and installs the C library: libutipc, headers, pkg-config file, manual pages
    InstallC(install::Options),
    /// Builds and installs libcpg.so.4, for programs of Corosync, and its headers
    InstallCpg(install::CpgOptions),
    /// Builds Corosync's own test programs outside the tree, and runs them with libcpg.so.4 of this project;
    /// or measures beside Corosync
    Cpg(cpg::Options),
    /// Shows kernel nodes by `tipc` and by `utipc` in the lab's machine, and compares both with interop/manage/golden
    Golden {
        /// Replace the recorded output in the tree by that of `tipc` instead
        #[arg(long)]
        write: bool,
    },
    /// Runs the C cases of interop/conformance, which check the rules of AF_TIPC one by one
    Conformance(conformance::Options),
    /// Runs programs that were not written for utipc, of interop/programs
    Programs(conformance::Options),
    /// Runs the interop matrix against the Linux kernel in the lab's machine
    Interop(interop::Options),
}

#[derive(Subcommand)]
enum LabChore {
    /// Downloads kernel and tools and makes the guest (once)
    Build,
    /// Runs a script in the guest; its exit code is ours, 124 at the time limit
    Run {
        /// Seconds after which the machine is killed
        #[arg(short = 't', default_value_t = 120)]
        time: u64,
        /// Folder that the script can write to, as $OUT
        #[arg(short = 'o', default_value = "target/lab/out")]
        out: PathBuf,
        /// Memory in MiB
        #[arg(short = 'm', default_value_t = 2048)]
        memory: u32,
        /// Virtual CPUs
        #[arg(short = 'c', default_value_t = 2)]
        cpus: u32,
        /// A program, or a shell (.sh) or Python (.py) file
        script: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<ExitCode> {
    let is_good = match chore {
        Chore::Tidy => done(tidy::run()),
        Chore::Test { all, suites } => suites::run(all, &suites),
        Chore::RunTests { arguments } => suites::run_tests(&arguments),
        Chore::Soak { args } => soak::run(&args),
        Chore::Examples { languages } => examples::run(&languages),
        Chore::Howto => howto::run(),
        Chore::Book => done(book::run()),
        Chore::BookLinks { question } => done(book::links::filter(&question)),
        Chore::Go => go::run(),
        Chore::Java { bench: true } => done(java::bench()),
        Chore::Java { bench: false } => java::run(),
        Chore::Python { in_guest, .. } if !in_guest.is_empty() => kernel::in_guest(&in_guest),
        Chore::Python { kernel: true, .. } => kernel::run(),
        Chore::Python { .. } => python::run(),
        Chore::CleanRoot => clean_root::run(),
        Chore::Package { options } => done(packages::package(&options)),
        Chore::Packages { release } => packages::run(release),
        Chore::WebPage { pictures } => web_page::run(pictures.as_deref()),
        Chore::Sandbox => sandbox::run(),
        Chore::Sandboxed { command } => done(sandbox::enter(&command)),
        Chore::Lab(LabChore::Build) => done(lab::build().map(drop)),
        Chore::Lab(LabChore::Run { time, out, memory, cpus, script, args }) => {
            let limits = lab::Limits { time: Duration::from_secs(time), memory, cpus };
            let code = lab::show(&script, &args, &out, limits)?;
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        Chore::InstallC(options) => done(install::c(&options)),
        Chore::InstallCpg(options) => done(install::cpg(&options)),
        Chore::Cpg(options) => return cpg::run(&options),
        Chore::Golden { write } => golden::run(write),
        Chore::Conformance(options) => conformance::run(&options),
        Chore::Programs(options) => conformance::programs(&options),
        Chore::Interop(options) => interop::run(&options),
    };
    Ok(verdict(is_good?))
}

fn done(result: Result<()>) -> Result<bool> {
    result.map(|()| true)
}
