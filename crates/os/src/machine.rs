//! Properties of the machine.

/// Bytes of memory of this machine.
#[must_use]
pub fn physical_memory() -> u64 {
    let info = rustix::system::sysinfo();
    u64::from(info.mem_unit).saturating_mul(info.totalram as u64)
}

/// Files that this process may have open.
#[must_use]
pub fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn machine_has_memory() {
        assert!(super::physical_memory() > 16 << 20);
    }
}
