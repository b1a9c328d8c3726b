//! `packaging/packages.toml`: every package and the files in it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The whole list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) project: Project,
    pub(crate) build: Build,
    pub(crate) package: Vec<Package>,
    #[serde(rename = "static")]
    pub(crate) tarball: Tarball,
    pub(crate) image: Image,
}

/// Shared by all packages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Project {
    pub(crate) maintainer: String,
    pub(crate) homepage: String,
    pub(crate) license: String,
    /// The newest version of glibc's symbols that programs may need.
    pub(crate) glibc: String,
}

/// Arguments of `cargo build`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Build {
    /// One build each, for this machine.
    pub(crate) native: Vec<String>,
    /// One build each, for each static target.
    #[serde(rename = "static")]
    pub(crate) statics: Vec<String>,
    /// The crates whose dependencies the list of components names.
    pub(crate) crates: Vec<String>,
}

/// A package, as .deb and as .rpm.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) section: String,
    pub(crate) summary: String,
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) deb: Deb,
    #[serde(default)]
    pub(crate) rpm: Rpm,
    /// Prefix of the scripts of both formats: `PREFIX.deb.postinst`, `PREFIX.rpm.post`.
    pub(crate) scripts: Option<String>,
    pub(crate) files: Vec<Line>,
}

/// Fields of a Debian package.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Deb {
    pub(crate) depends: Vec<String>,
    pub(crate) recommends: Vec<String>,
    /// Further control files: `name:content`.
    pub(crate) control: Vec<String>,
    /// Overrides of lintian, each `tag context  # reason`.
    pub(crate) overrides: Vec<String>,
}

/// Fields of an rpm.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rpm {
    /// Its name, if it differs from Debian's.
    pub(crate) name: Option<String>,
    pub(crate) requires: Vec<String>,
    pub(crate) recommends: Vec<String>,
    /// Prefix of scripts of the rpm alone.
    pub(crate) scripts: Option<String>,
}

/// The tarball of static programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tarball {
    pub(crate) files: Vec<Line>,
}

/// The container image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Image {
    pub(crate) user: String,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) command: Vec<String>,
    /// Empty folders, each with its mode.
    pub(crate) folders: Vec<(String, String)>,
    pub(crate) files: Vec<Line>,
}

/// One line of a list of files: what, destination and possibly the mode.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Usual(String, String),
    WithMode(String, String, String),
}

impl Line {
    /// Content, destination, and the mode if given.
    pub(crate) fn parts(&self) -> (&str, &str, Option<&str>) {
        match self {
            Self::Usual(what, to) => (what, to, None),
            Self::WithMode(what, to, mode) => (what, to, Some(mode)),
        }
    }
}

impl Manifest {
    /// Reads the list below the project's folder.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let path = root.join("packaging/packages.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("in {}", path.display()))
    }
}
