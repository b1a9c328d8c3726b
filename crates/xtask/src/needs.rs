//! What suites need of a machine, and the one command that enables it where it is missing.

use std::path::Path;
use std::process::Command;

use crate::process::{missing, output, succeeds, user_is_root};

/// Reason why a suite cannot run here, and the one command that enables it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

impl Skip {
    pub(crate) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: remedy.into() }
    }

    /// A skip unless it `can` run.
    pub(crate) fn unless(can: bool, reason: impl Into<String>, remedy: impl Into<String>) -> Option<Self> {
        (!can).then(|| Self::new(reason, remedy))
    }

    /// The error of a chore that was called by name.
    pub(crate) fn error(&self) -> anyhow::Error {
        anyhow::anyhow!("{} ({})", self.reason, self.remedy)
    }
}

/// A check of this machine.
pub(crate) type Need = fn() -> Option<Skip>;

/// The suite `tests` covers the bearers as root. Other users need a namespace for them.
pub(crate) fn namespace_without_root() -> Option<Skip> {
    if user_is_root() {
        // Without a remedy: another suite covers it.
        return Some(Skip::new("run by root in the suite tests", ""));
    }
    let remedy = "sudo -E cargo test -p utipc-node --test bearers";
    let can = succeeds("unshare --map-root-user --net true");
    Skip::unless(can, "this user may not make network namespaces", remedy)
}

pub(crate) fn root_for_users() -> Option<Skip> {
    let reason = "only root starts processes of other users, and joins network namespaces";
    let remedy = "sudo -E cargo xtask test hostile real-peers lossy-path narrow-path";
    Skip::unless(user_is_root(), reason, remedy)
}

pub(crate) fn root_for_pair() -> Option<Skip> {
    let remedy = "sudo -E cargo xtask conformance --pair";
    Skip::unless(user_is_root(), "only root makes network namespaces with a name", remedy)
}

pub(crate) fn promtool() -> Option<Skip> {
    let remedy = "sudo apt-get install --no-install-recommends prometheus";
    missing(&["promtool"]).map(|_| Skip::new("no promtool", remedy))
}

pub(crate) fn c_tools() -> Option<Skip> {
    let tool = missing(&["cc", "make", "pkg-config", "readelf", "nm"])?;
    Some(Skip::new(format!("no program {tool}"), "apt-get install gcc make pkg-config binutils"))
}

pub(crate) fn jdk_and_maven() -> Option<Skip> {
    let tool = missing(&["javac", "mvn", "python3"])?;
    Some(Skip::new(format!("no program {tool}"), "apt-get install default-jdk-headless maven python3"))
}

pub(crate) fn make() -> Option<Skip> {
    let tool = ["cc", "make", "python3"].into_iter().find(|tool| !succeeds(&format!("{tool} --version")))?;
    let remedy = "sudo apt-get install gcc make linux-libc-dev python3-venv";
    Some(Skip::new(format!("no {tool} to build and run C programs with"), remedy))
}

pub(crate) fn tipc() -> Option<Skip> {
    let found = ["/usr/sbin/tipc", "/sbin/tipc", "/usr/bin/tipc"].iter().any(|path| Path::new(path).exists());
    Skip::unless(found, "this machine has no `tipc`", "sudo apt-get install iproute2")
}

pub(crate) fn miri() -> Option<Skip> {
    let remedy = "rustup component add --toolchain nightly miri rust-src";
    Skip::unless(succeeds("cargo +nightly miri --version"), "no nightly toolchain with Miri", remedy)
}

fn sanitizers() -> Option<Skip> {
    let is_right = cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"));
    Skip::unless(is_right, "set up for x86_64 Linux only", "run it there")
}

pub(crate) fn address_sanitizer() -> Option<Skip> {
    let remedy = "rustup toolchain install nightly --profile minimal";
    sanitizers()
        .or_else(|| Skip::unless(succeeds("cargo +nightly --version"), "no nightly toolchain", remedy))
}

pub(crate) fn thread_sanitizer() -> Option<Skip> {
    let sysroot = output(Command::new("rustc").args(["+nightly", "--print", "sysroot"]));
    let source = "lib/rustlib/src/rust/library/std/Cargo.toml";
    let is_there = sysroot.is_ok_and(|root| Path::new(root.trim()).join(source).exists());
    let reason = "no nightly toolchain with the standard library's source";
    let remedy = "rustup component add --toolchain nightly rust-src";
    sanitizers().or_else(|| Skip::unless(is_there, reason, remedy))
}

/// A suite that needs files of the vendor is skipped unless the environment variable names their folder.
fn folder(variable: &str, of: &str, suite: &str) -> Option<Skip> {
    let named = std::env::var_os(variable).is_some_and(|folder| Path::new(&folder).is_dir());
    let remedy = format!("{variable}=DIR cargo xtask test {suite} (interop/rssl/README.md)");
    Skip::unless(named, format!("{variable} names no folder of {of}"), remedy)
}

pub(crate) fn stock_programs() -> Option<Skip> {
    folder("UTIPC_RTSDK_BIN", "programs made with the Real-Time-SDK", "rssl-stock")
}

pub(crate) fn captures() -> Option<Skip> {
    folder("UTIPC_RSSL_VECTORS", "captures", "rssl-captures")
}
