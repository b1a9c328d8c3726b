//! Initial parents: the stored corpus, and captured packets.

#[path = "../../crates/core/tests/common/pcap.rs"]
#[allow(dead_code, reason = "shared with the tests of the core")]
mod pcap;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

use crate::{Target, home};

/// Captured packets of one user and type that become parents.
const PACKETS_PER_KIND: usize = 6;

/// The corpus of a target: {file, input}, by name.
///
/// # Errors
/// If a file cannot be read. A target without a directory has no corpus.
pub fn corpus(target: &Target) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let dir = home().join("corpus").join(target.name);
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = std::fs::read_dir(&dir)?.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok((path, bytes))
    };
    files.into_iter().map(read).collect()
}

/// Captured packets, a few of each kind.
///
/// # Errors
/// If a capture cannot be read.
pub fn packets() -> Result<Vec<Vec<u8>>> {
    let mut kinds: BTreeMap<(u8, u8, usize), usize> = BTreeMap::new();
    let mut packets = Vec::new();
    for name in pcap::names() {
        for frame in pcap::read(&name).map_err(|e| anyhow!(e))? {
            let mut bytes = frame.bytes;
            let first = bytes.first_chunk::<8>().copied().unwrap_or_default();
            let kind = (first[0], first[4] >> 5, bytes.len() / 256);
            let count = kinds.entry(kind).or_default();
            *count += 1;
            if *count <= PACKETS_PER_KIND {
                bytes.truncate(2048);
                packets.push(bytes);
            }
        }
    }
    Ok(packets)
}

/// All initial parents of a target.
///
/// # Errors
/// If a file cannot be read.
pub fn all(target: &Target) -> Result<Vec<Vec<u8>>> {
    let mut seeds: Vec<Vec<u8>> = corpus(target)?.into_iter().map(|(_, input)| input).collect();
    if target.takes_packets {
        seeds.extend(packets()?);
    }
    Ok(seeds)
}

/// Directory for inputs that fail.
#[must_use]
pub fn crash_dir() -> PathBuf {
    home().join("crashes")
}

/// Writes an input to a file named by the hash of its contents.
///
/// # Errors
/// If it cannot be written.
pub fn save(dir: &Path, input: &[u8]) -> Result<PathBuf> {
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    let path = dir.join(format!("{hash:016x}"));
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&path, input))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}
