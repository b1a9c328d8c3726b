//! `utipc bench` is the program `utipc-lab` of another package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::text;

/// A folder with a copy of `utipc`, which finds nothing in it or in PATH unless a test puts it there.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Self(std::env::temp_dir().join(format!("utipc-{name}-{}", std::process::id())));
        fs::create_dir_all(folder.0.join("path")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_utipc"), folder.0.join("utipc")).unwrap();
        folder
    }

    /// Makes a program that prints its arguments and ends with code 7.
    fn program(&self, name: &str) {
        let path = self.0.join(name);
        fs::write(&path, "#!/bin/sh\necho \"$0\" \"$@\"\nexit 7\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn bench(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.0.join("utipc"));
        command.arg("bench").args(arguments).env("PATH", self.0.join("path")).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn bench_passes_all_arguments_to_the_program_in_its_folder_or_in_the_path() {
    let folder = Folder::new("bench-passes");
    folder.program("path/utipc-lab");
    for place in ["path/utipc-lab", "utipc-lab"] {
        folder.program(place);
        for arguments in
            [&["--help"][..], &["latency", "--size", "64", "--", "-x"], &["-h"], &["help", "chart"], &[]]
        {
            let output = folder.bench(arguments);
            let line = [&[folder.0.join(place).to_str().unwrap(), "bench"], arguments].concat().join(" ");
            assert_eq!(text(&output.stdout).trim_end(), line, "{}", text(&output.stderr));
            assert_eq!(output.status.code(), Some(7));
        }
    }
}

#[test]
fn bench_names_the_package_that_is_missing() {
    let folder = Folder::new("bench-missing");
    let said = |remedy: &str| {
        let output = folder.bench(&["latency"]);
        assert_eq!(output.status.code(), Some(1));
        let expected =
            format!("utipc: the benchmarks are in the package utipc-lab, which is not here ({remedy})\n");
        assert_eq!(text(&output.stderr), expected);
    };
    said("install the package utipc-lab, or in a source tree: cargo install --path crates/lab");
    // As in the folder where cargo builds.
    fs::create_dir(folder.0.join(".fingerprint")).unwrap();
    said("cargo build -p utipc-lab");
}
