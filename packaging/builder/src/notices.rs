//! The licences of everything that the programs are built from, which must accompany the programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::sbom;

/// Beginnings of the names of files with a licence or a notice, in lower case.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// The licences of all dependencies of the crates `packages`: each text once, after the crates that have it.
pub(crate) fn build(root: &Path, packages: &[String]) -> Result<String> {
    let metadata = sbom::metadata(root)?;
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // The project's own crates have no source; their licences are files of the package.
    for part in sbom::parts(&metadata, packages)?.iter().filter(|part| !part.package["source"].is_null()) {
        let package = part.package;
        let name = format!("{} {}", sbom::text(package, "name"), sbom::text(package, "version"));
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{name}: {}", sbom::text(package, "license"));
        let folder =
            Path::new(sbom::text(package, "manifest_path")).parent().context("a crate has a folder")?;
        for text in files(folder).with_context(|| format!("read the licence of {name}"))? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    ensure!(!list.is_empty() && !texts.is_empty(), "no licence of a dependency was found");
    let mut all = format!("The programs contain these crates:\n\n{list}");
    for (text, names) in texts {
        let _ = write!(all, "\n{}\n{}:\n\n{text}\n", "-".repeat(80), names.join(", "));
    }
    Ok(all)
}

/// The texts of a crate's licences and notices.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            texts.push(fs::read_to_string(&path)?.replace('\r', "").trim().to_owned());
        }
    }
    Ok(texts)
}
