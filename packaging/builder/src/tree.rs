//! The files of a package in memory, from the lines of the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Release;
use crate::manifest::{Line, Project};
use crate::stage::{filter, gzip};
use anyhow::{Context, Result, bail, ensure};

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) mode: u32,
    pub(crate) content: Content,
    /// A file that the administrator may change.
    pub(crate) is_config: bool,
}

/// The kind of a file.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    Link(String),
}

/// Files by their path without a leading slash.
pub(crate) type Tree = BTreeMap<String, Entry>;

/// What the packages of one run have in common, and where their format has its folders.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) root: PathBuf,
    /// Folder for files on their way into a package.
    pub(crate) work: PathBuf,
    /// Folder of programs and libraries that run on this machine.
    pub(crate) built: PathBuf,
    /// Folder of static programs of the package's architecture.
    pub(crate) statics: PathBuf,
    /// Replacements of `{name}`.
    pub(crate) names: Vec<(&'static str, String)>,
    /// Licences of dependencies, compressed.
    pub(crate) notices: Vec<u8>,
    pub(crate) project: Project,
    pub(crate) release: Release,
}

impl Site {
    /// Replaces `{name}` in a text.
    pub(crate) fn fill(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    /// Reads all files of a list.
    pub(crate) fn tree(&self, lines: &[Line]) -> Result<Tree> {
        let mut tree = Tree::new();
        for line in lines {
            let (what, to, mode) = line.parts();
            self.add(&mut tree, &self.fill(what), &self.fill(to), mode)
                .with_context(|| format!("packages.toml: {what}"))?;
        }
        Ok(tree)
    }

    fn add(&self, tree: &mut Tree, what: &str, to: &str, mode: Option<&str>) -> Result<()> {
        let mode = mode.map(|mode| u32::from_str_radix(mode, 8)).transpose().context("a mode is octal")?;
        let (kind, name) = what.split_once(':').unwrap_or(("", what));
        let is_library = name.contains(".so") || name.ends_with(".a");
        let program = if is_library { 0o644 } else { 0o755 };
        let mut put = |to: &str, usual: u32, content: Content| {
            let entry = Entry { mode: mode.unwrap_or(usual), content, is_config: kind == "config" };
            tree.insert(to.to_owned(), entry);
        };
        match kind {
            "built" => {
                put(&into(to, name), program, Content::Bytes(self.program(&self.built.join(name), false)?))
            }
            "static" => {
                put(&into(to, name), 0o755, Content::Bytes(self.program(&self.statics.join(name), true)?))
            }
            "link" => put(to, 0o777, Content::Link(name.to_owned())),
            "run" => put(to, 0o644, Content::Bytes(self.printed(name)?)),
            "notices" => put(to, 0o644, Content::Bytes(self.notices.clone())),
            "pkgconfig" => put(to, 0o644, Content::Bytes(self.pkgconfig(name)?)),
            "" | "config" => {
                for file in self.named(name)? {
                    let own = file.file_name().and_then(|n| n.to_str()).context("a file has a name")?;
                    let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
                    put(&into(to, own), 0o644, Content::Bytes(bytes));
                }
            }
            other => bail!("{other}: is not a kind of file"),
        }
        Ok(())
    }

    /// The files that a path with at most one `*`, as its last part, names.
    fn named(&self, path: &str) -> Result<Vec<PathBuf>> {
        let Some(folder) = path.strip_suffix("/*") else { return Ok(vec![self.root.join(path)]) };
        let folder = self.root.join(folder);
        let list = fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
        let mut files: Vec<_> =
            list.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.is_file()).collect();
        files.sort();
        Ok(files)
    }

    /// A program or library without symbols that only a debugger needs.
    fn program(&self, path: &Path, is_static: bool) -> Result<Vec<u8>> {
        let bytes = fs::read(path).with_context(|| format!("read {} (was it built?)", path.display()))?;
        if is_static {
            return Ok(bytes);
        }
        let stripped = std::env::temp_dir().join(format!("utipc-package-{}", std::process::id()));
        let what = if path.extension().is_some_and(|end| end == "a") {
            ["--strip-debug", "--remove-section=.comment", "--enable-deterministic-archives"]
        } else {
            ["--strip-unneeded", "--remove-section=.comment", "--enable-deterministic-archives"]
        };
        let status = Command::new("strip").args(what).arg("-o").arg(&stripped).arg(path).status();
        if !status.context("run strip (install binutils)")?.success() {
            bail!("strip {} failed", path.display());
        }
        let bytes = fs::read(&stripped).context("read what strip has written");
        let _ = fs::remove_file(&stripped);
        let bytes = bytes?;
        let needed = glibc(&bytes);
        let wanted: Vec<u32> = numbers(&self.project.glibc);
        if needed > wanted && path.extension().is_none_or(|end| end != "a") {
            bail!(
                "{} needs glibc {needed:?}, but packages.toml promises {} (build on an older system, or promise less)",
                path.display(),
                self.project.glibc
            );
        }
        Ok(bytes)
    }

    fn printed(&self, command: &str) -> Result<Vec<u8>> {
        let mut words = command.split_whitespace();
        let program = self.built.join(words.next().context("a command has a program")?);
        let text = filter(Command::new(program).args(words), &[])?;
        ensure!(!text.is_empty(), "{command} prints nothing");
        Ok(text)
    }

    fn pkgconfig(&self, template: &str) -> Result<Vec<u8>> {
        let text = fs::read_to_string(self.root.join(template)).context("read the pkg-config file")?;
        let text = text.replace("@PREFIX@", "/usr").replace("@VERSION@", &self.fill("{upstream}"));
        let folder = self.fill("${prefix}/{lib}").replace("/usr/", "/");
        Ok(text.replace("${exec_prefix}/lib", &folder).into_bytes())
    }
}

fn into(to: &str, name: &str) -> String {
    if to.ends_with('/') { format!("{to}{name}") } else { to.to_owned() }
}

/// The folders of all files, parents first.
pub(crate) fn folders(tree: &Tree) -> BTreeSet<String> {
    let mut folders = BTreeSet::new();
    for path in tree.keys() {
        let parents = Path::new(path).ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        folders.extend(parents.map(|parent| parent.to_string_lossy().into_owned()));
    }
    folders
}

/// Compresses manual pages.
pub(crate) fn compress_manuals(tree: &mut Tree) -> Result<()> {
    let pages: Vec<_> = tree.keys().filter(|path| path.contains("share/man/")).cloned().collect();
    for page in pages {
        let Some(mut entry) = tree.remove(&page) else { continue };
        if let Content::Bytes(bytes) = &entry.content {
            entry.content = Content::Bytes(gzip(bytes)?);
        }
        tree.insert(format!("{page}.gz"), entry);
    }
    Ok(())
}

/// The newest version of glibc's symbols that a program names.
fn glibc(program: &[u8]) -> Vec<u32> {
    const MARK: &[u8] = b"GLIBC_2.";
    let found = program.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let version = |(at, _): (usize, &[u8])| {
        let rest = program.get(at + 6..).unwrap_or_default();
        let end = rest.iter().position(|b| !b.is_ascii_digit() && *b != b'.').unwrap_or(rest.len());
        numbers(&String::from_utf8_lossy(rest.get(..end).unwrap_or_default()))
    };
    found.map(version).max().unwrap_or_default()
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_glibc_of_a_program_is_found() {
        assert_eq!(glibc(b"\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.2.5\0"), [2, 34]);
        assert!(glibc(b"static").is_empty());
        assert!(numbers("2.36") > numbers("2.4"));
    }
}
