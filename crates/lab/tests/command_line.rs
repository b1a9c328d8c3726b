//! The command line: the form of errors, and the manual page, which has exactly the options of `--help`.

#[path = "../../tools/tests/command_line/page.rs"]
mod page;

use std::collections::BTreeSet;
use std::process::Command;

use page::{commands, documented, help, options, page};

const PROGRAM: &str = env!("CARGO_BIN_EXE_utipc-lab");

#[test]
fn wrong_command_lines_are_one_line_with_a_remedy() {
    for (arguments, said) in [
        (
            ["bench", "latency", "--size", "0"],
            "utipc-lab: invalid value '0' for '--size <SIZE>': 0 is not in 1..=66000 (see `utipc-lab --help`)\n",
        ),
        (
            ["bench", "latency", "--transport", "warp"],
            "utipc-lab: invalid value 'warp' for '--transport <TRANSPORT>' [possible values: ",
        ),
    ] {
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn completion_scripts_have_the_measurements() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(PROGRAM).args(["--completion", shell]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("throughput"), "{shell}");
    }
    let none = Command::new(PROGRAM).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&none.stderr),
        "utipc-lab: a command is missing (see `utipc-lab --help`)\n"
    );
}

#[test]
fn page_of_the_benchmark_has_every_option_and_no_other() {
    let names = commands(&help(PROGRAM, &["bench"]));
    assert!(names.len() > 9, "{names:?}");
    let text = page("man1/utipc-bench.1");
    let mut known = BTreeSet::new();
    for name in names.iter().filter(|name| *name != "help") {
        assert!(text.contains(name.as_str()), "{name} is not in utipc-bench(1)");
        known.extend(documented(PROGRAM, &["bench", name]));
    }
    known.remove("--help");
    assert_eq!(options(&text), known);
}
