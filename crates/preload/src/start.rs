//! The start of a program: finds TIPC sockets that it has inherited by exec.

use std::os::fd::RawFd;

use crate::{descriptors, netlink};

/// Called when the library is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// Checks all open descriptors: three system calls for each, at a time when there are few.
#[cfg_attr(test, expect(dead_code, reason = "a test is not preloaded"))]
extern "C" fn loaded() {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<RawFd> =
        list.flatten().filter_map(|item| item.file_name().to_str()?.parse().ok()).collect();
    for number in numbers {
        netlink::inherited(number);
        descriptors::receive(number);
    }
}
