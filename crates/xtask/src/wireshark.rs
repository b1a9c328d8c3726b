//! A third opinion on what utipc sends: Wireshark's dissector.
//!
//! It stumbles over some frames of the kernel's own, so a frame of utipc counts only if the dissector calls no frame of
//! the same kind malformed in the recording of two kernel nodes that did the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::output;

/// Node b's end of the wire (`net.py`), where utipc stands.
const UTIPC_MAC: &str = "02:00:00:00:00:02";

/// The dissector's messages about malformed frames, without their numbers.
type Kinds = BTreeSet<String>;

/// Recordings that were looked at, and what is malformed in utipc's frames alone.
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

/// The kind of message in a line of the dissector: its words without its numbers.
fn kind(line: &str) -> String {
    line.split_whitespace().filter(|w| !w.chars().all(|c| c.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

/// Kinds that are malformed in ours and not in the kernel's.
fn news(known: &Kinds, ours: &Kinds) -> Vec<String> {
    ours.difference(known).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_does_not_send_counts() {
        let set = |kinds: &[&str]| kinds.iter().map(|k| (*k).to_owned()).collect::<Kinds>();
        assert_eq!(kind("Payld:Low  ConnMsg 12 [Malformed Packet]"), "Payld:Low ConnMsg [Malformed Packet]");
        assert_eq!(news(&set(&["7 0"]), &set(&["7 0", "11 0"])), ["11 0"]);
        assert!(news(&set(&["7 0"]), &set(&["7 0"])).is_empty());
    }
}
