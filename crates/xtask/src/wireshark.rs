//! Checks the frames that utipc sends with Wireshark's dissector.
//!
//! The dissector reports some of the kernel's own frames as malformed. So a frame of utipc counts as malformed
//! only if no frame of the same kind does in the recording of two kernel nodes that did the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::output;

/// The Ethernet address of node b (`net.py`), which is utipc.
const UTIPC_MAC: &str = "02:00:00:00:00:02";

/// The dissector's messages about malformed frames, without their numbers.
type Kinds = BTreeSet<String>;

/// Number of recordings compared, and the kinds of malformed frames that only utipc sends.
pub(crate) struct Verdict {
    pub(crate) recordings: usize,
    pub(crate) faults: Vec<String>,
}

/// Compares each recording `ROW-MEDIA.pcap` in `folder` with its `ROW-MEDIA.kernel.pcap`. `tshark` runs the dissector.
pub(crate) fn compare(folder: &Path, tshark: &dyn Fn() -> Command) -> Result<Verdict> {
    let mut verdict = Verdict { recordings: 0, faults: Vec::new() };
    let entries = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut kernels: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.to_string_lossy().ends_with(".kernel.pcap"))
        .collect();
    kernels.sort();
    for kernel in kernels {
        let ours = PathBuf::from(kernel.to_string_lossy().replace(".kernel.pcap", ".pcap"));
        if !ours.is_file() {
            continue;
        }
        verdict.recordings += 1;
        let known = malformed(tshark, &kernel, "_ws.malformed")?;
        let filter = format!("_ws.malformed && eth.src == {UTIPC_MAC}");
        let news = news(&known, &malformed(tshark, &ours, &filter)?);
        verdict.faults.extend(news.into_iter().map(|kind| format!("{}: {kind}", ours.display())));
    }
    Ok(verdict)
}

fn malformed(tshark: &dyn Fn() -> Command, file: &Path, filter: &str) -> Result<Kinds> {
    let mut command = tshark();
    command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields", "-e", "_ws.col.Info"]);
    Ok(output(&mut command)?.lines().map(kind).collect())
}

/// The kind of a message of the dissector: its line without numbers.
fn kind(line: &str) -> String {
    line.split_whitespace().filter(|w| !w.chars().all(|c| c.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// Kinds that are malformed in utipc's frames and not in the kernel's.
fn news(known: &Kinds, ours: &Kinds) -> Vec<String> {
    ours.difference(known).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_the_kernel_sends_too_do_not_count() {
        let set = |kinds: &[&str]| kinds.iter().map(|k| (*k).to_owned()).collect::<Kinds>();
        assert_eq!(kind("Payld:Low  ConnMsg 12 [Malformed Packet]"), "Payld:Low ConnMsg [Malformed Packet]");
        assert_eq!(news(&set(&["7 0"]), &set(&["7 0", "11 0"])), ["11 0"]);
        assert!(news(&set(&["7 0"]), &set(&["7 0"])).is_empty());
    }
}
