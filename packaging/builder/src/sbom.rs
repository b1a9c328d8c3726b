//! The list of everything that the programs are built from (CycloneDX 1.5), from `cargo metadata`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::stage::filter;
use crate::tree::Site;

/// Makes the list for the crates `packages` and all that they are built from; returns its name and its bytes.
pub(crate) fn build(packages: &[String], site: &Site) -> Result<(String, Vec<u8>)> {
    let Site { project, release, .. } = site;
    let metadata = metadata(&site.root)?;
    let parts = parts(&metadata, packages)?;
    let depends: Vec<_> = parts
        .iter()
        .map(|part| {
            let names: Vec<_> = part.wants.iter().map(|wanted| purl(wanted)).collect();
            json!({"ref": purl(part.package), "dependsOn": names})
        })
        .collect();
    let components: Vec<_> = parts.iter().map(|part| component(part.package)).collect();
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.created,
            "component": {
                "type": "application",
                "bom-ref": "utipc",
                "name": "utipc",
                "version": release.version,
                "licenses": [{"expression": project.license}],
                "externalReferences": [{"type": "vcs", "url": project.homepage}],
            },
        },
        "components": components,
        "dependencies": depends,
    });
    Ok((format!("utipc-{}.cdx.json", release.version), serde_json::to_vec_pretty(&bom)?))
}

/// A crate that programs are built from, and those that it is built from.
pub(crate) struct Part<'a> {
    pub(crate) package: &'a Value,
    wants: Vec<&'a Value>,
}

/// The crates `packages` and all that they are built from, by their ids.
pub(crate) fn parts<'a>(metadata: &'a Value, packages: &[String]) -> Result<Vec<Part<'a>>> {
    let crates: BTreeMap<&str, &Value> = list(&metadata["packages"], "id");
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"], "id");
    let is_root =
        |id: &&&str| crates.get(**id).is_some_and(|c| packages.iter().any(|name| c["name"] == **name));
    let mut open: Vec<&str> = crates.keys().filter(is_root).copied().collect();
    if open.len() != packages.len() {
        bail!("cargo metadata does not know all of {packages:?}");
    }
    let mut seen = BTreeMap::new();
    while let Some(id) = open.pop() {
        let Some(package) = crates.get(id).filter(|_| !seen.contains_key(id)) else { continue };
        let ids = nodes.get(id).map(|node| built_in(node)).unwrap_or_default();
        let wants = ids.iter().filter_map(|id| crates.get(id)).copied().collect();
        seen.insert(id, Part { package, wants });
        open.extend(ids);
    }
    Ok(seen.into_values().collect())
}

pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words =
        ["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let text = filter(Command::new(cargo).args(words).current_dir(root), &[])?;
    serde_json::from_slice(&text).context("parse cargo metadata")
}

fn list<'a>(values: &'a Value, key: &str) -> BTreeMap<&'a str, &'a Value> {
    values.as_array().into_iter().flatten().filter_map(|value| Some((value[key].as_str()?, value))).collect()
}

/// The crates that are part of a crate, without those of its tests and build scripts.
fn built_in(node: &Value) -> Vec<&str> {
    let is_normal = |dep: &&Value| {
        dep["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k["kind"].is_null()))
    };
    node["deps"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(is_normal)
        .filter_map(|dep| dep["pkg"].as_str())
        .collect()
}

fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

pub(crate) fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

fn component(package: &Value) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    });
    if let Some(license) = package["license"].as_str() {
        // Older crates write A/B.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    component
}
