//! Builds `libutipc_preload.so`, which becomes part of the program.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../..");
    for source in ["crates", "Cargo.lock", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo:rerun-if-env-changed=UTIPC_SHIM_BUILD");
    // Tests name cargo's target folder of an earlier build, so that nothing is built twice.
    let place = std::env::var_os("UTIPC_SHIM_BUILD")
        .map_or_else(|| PathBuf::from(variable("OUT_DIR")).join("build"), PathBuf::from);
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--quiet", "--package", "utipc-preload", "--manifest-path"]);
    cargo.arg(root.join("Cargo.toml")).arg("--target-dir").arg(&place);
    let folder = if variable("PROFILE") == "release" { "release" } else { "debug" };
    if folder == "release" {
        cargo.arg("--release");
    }
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("cargo build --package utipc-preload failed: {status}"),
        Err(error) => panic!("cannot run cargo: {error}"),
    }
    println!("cargo:rustc-env=UTIPC_SHIM={}", place.join(folder).join("libutipc_preload.so").display());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
