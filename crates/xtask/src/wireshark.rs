//! Checks the frames that utipc sends with Wireshark's dissector.
//!
//! The dissector reports some of the kernel's own frames as malformed. So a frame of utipc counts as malformed
//! only if no frame of the same kind does in the recording of two kernel nodes that did the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::judge::Counts;
use crate::lab::Lab;
use crate::process::output;
use crate::workspace::files;

/// The Ethernet address of node b (`net.py`), which is utipc.
const UTIPC_MAC: &str = "02:00:00:00:00:02";

/// The dissector's messages about malformed frames, without their numbers.
type Kinds = BTreeSet<String>;

/// Compares each recording `ROW-MEDIUM.pcap` in `folder` with its `ROW-MEDIUM.kernel.pcap`, as one test.
pub(crate) fn compare(lab: &Lab, folder: &Path) -> Result<Counts> {
    let (mut recordings, mut faults) = (0, 0);
    for kernel in files(folder, ".kernel.pcap")? {
        let ours = PathBuf::from(kernel.to_string_lossy().replace(".kernel.pcap", ".pcap"));
        if !ours.is_file() {
            continue;
        }
        recordings += 1;
        let known = malformed(lab, &kernel, "_ws.malformed")?;
        let found = malformed(lab, &ours, &format!("_ws.malformed && eth.src == {UTIPC_MAC}"))?;
        for kind in only_in_ours(&known, &found) {
            println!("wireshark: malformed, and not when the kernel sends it: {}: {kind}", ours.display());
            faults += 1;
        }
    }
    println!("wireshark: {recordings} recordings, {faults} faults");
    Ok(Counts::one(recordings > 0 && faults == 0))
}

fn malformed(lab: &Lab, file: &Path, filter: &str) -> Result<Kinds> {
    let mut command = lab.command("tshark")?;
    command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields", "-e", "_ws.col.Info"]);
    Ok(output(&mut command)?.lines().map(kind).collect())
}

/// The kind of a message of the dissector: its line without numbers.
fn kind(line: &str) -> String {
    line.split_whitespace().filter(|w| !w.chars().all(|c| c.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// Kinds that are malformed in utipc's frames and not in the kernel's.
fn only_in_ours(known: &Kinds, ours: &Kinds) -> Vec<String> {
    ours.difference(known).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_the_kernel_sends_too_do_not_count() {
        let set = |kinds: &[&str]| kinds.iter().map(|k| (*k).to_owned()).collect::<Kinds>();
        assert_eq!(kind("Payld:Low  ConnMsg 12 [Malformed Packet]"), "Payld:Low ConnMsg [Malformed Packet]");
        assert_eq!(only_in_ours(&set(&["7 0"]), &set(&["7 0", "11 0"])), ["11 0"]);
        assert!(only_in_ours(&set(&["7 0"]), &set(&["7 0"])).is_empty());
    }
}
