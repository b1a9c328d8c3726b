//! `utipcd --sandbox`: what the unit file has from systemd, without systemd.
//!
//! The daemon drops its privileges once the bearers are open, before it listens: root never serves a program.
//! The threads that it starts afterwards inherit user, capabilities and filter.

mod calls;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities, set_keep_capabilities, set_no_new_privs,
};

use super::users::Account;

/// Maximum number of descriptors: one for each attached process and each polled socket (`LimitNOFILE=` of the unit).
const DESCRIPTORS: u64 = 1 << 20;
/// Part of the machine's memory that the daemon's heap may take (`MemoryMax=50%` of the unit). Lanes do not count: the
/// quotas of users bound them.
const MEMORY_PART: u64 = 2;
/// The only capability that is kept: an administrator may add Ethernet bearers while the daemon runs.
const KEPT: CapabilitySet = CapabilitySet::NET_RAW;

/// Gives up all rights that the daemon does not need: becomes `account`, sets the limits and installs the filter of
/// system calls. Call it on the only thread of the process.
pub(crate) fn enter(account: Option<&Account>) -> Result<()> {
    set_limits()?;
    drop_capabilities(account)?;
    set_no_new_privs(true).context("cannot renounce new privileges")?;
    for filter in calls::filters()? {
        seccompiler::apply_filter_all_threads(&filter).context(
            "cannot install the filter of system calls (the kernel lacks seccomp: leave --sandbox out)",
        )?;
    }
    check()
}

fn set_limits() -> Result<()> {
    let info = rustix::system::sysinfo();
    let memory = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)) / MEMORY_PART;
    for (resource, most) in [(Resource::RLIMIT_NOFILE, DESCRIPTORS), (Resource::RLIMIT_DATA, memory)] {
        let (_, hard) = getrlimit(resource).with_context(|| format!("cannot read {resource:?}"))?;
        let limit = hard.min(most);
        setrlimit(resource, limit, limit).with_context(|| format!("cannot set {resource:?} to {limit}"))?;
    }
    Ok(())
}

/// Becomes the account with [`KEPT`] as its only capability, if this process has that now.
fn drop_capabilities(account: Option<&Account>) -> Result<()> {
    let now = rustix::thread::capabilities(None).context("cannot read the capabilities")?;
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(KEPT).iter() {
            // A kernel that is older than the capability does not know it.
            if matches!(capability_is_in_bounding_set(capability), Ok(true)) {
                remove_capability_from_bounding_set(capability)
                    .context("cannot reduce the bounding set of capabilities")?;
            }
        }
    }
    if let Some(account) = account {
        set_keep_capabilities(true).context("cannot keep CAP_NET_RAW")?;
        account.become_it()?;
    }
    let kept = now.permitted & KEPT;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).context("cannot drop the capabilities")?;
    if account.is_some() {
        set_keep_capabilities(false).context("cannot reset the flag that keeps capabilities")?;
    }
    Ok(())
}

/// Refuses to run in a sandbox that does not hold.
fn check() -> Result<()> {
    let left = rustix::thread::capabilities(None).context("cannot read the capabilities")?;
    ensure!(KEPT.contains(left.permitted), "the sandbox does not hold: capabilities are left: {left:?}");
    // Without the filter, a call without flags succeeds for everyone.
    match unshare(CloneFlags::empty()) {
        Err(Errno::EPERM) => Ok(()),
        other => bail!("the sandbox does not hold: unshare() gave {other:?}"),
    }
}
