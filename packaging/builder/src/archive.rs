//! Reproducible tar archives, which depend only on their content: owner root, one time, sorted.

use anyhow::{Context, Result};
use tar::{Builder, EntryType, Header};

use crate::tree::{Content, Tree, folders};

/// Writes an archive.
pub(crate) struct Archive {
    tar: Builder<Vec<u8>>,
    /// Put before each path.
    prefix: String,
    /// Time of all files, seconds.
    time: u64,
}

impl Archive {
    pub(crate) fn new(prefix: &str, time: u64) -> Self {
        Self { tar: Builder::new(Vec::new()), prefix: prefix.to_owned(), time }
    }

    fn header(&self, kind: EntryType, mode: u32, size: usize) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size as u64);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        // The names fit their fields.
        let _ = (header.set_username("root"), header.set_groupname("root"));
        header
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let header = self.header(EntryType::Regular, mode, bytes.len());
        self.append(header, path, bytes)
    }

    /// Adds a folder; an empty path is the prefix itself.
    pub(crate) fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        let header = self.header(EntryType::Directory, mode, 0);
        let path = if path.is_empty() { String::new() } else { format!("{path}/") };
        self.append(header, &path, &[])
    }

    fn append(&mut self, mut header: Header, path: &str, bytes: &[u8]) -> Result<()> {
        let path = format!("{}{path}", self.prefix);
        // Not `set_path`, which drops the `./` that Debian's tools expect.
        let field =
            header.as_old_mut().name.get_mut(..path.len()).with_context(|| format!("{path} is too long"))?;
        field.copy_from_slice(path.as_bytes());
        header.set_cksum();
        self.tar.append(&header, bytes).with_context(|| format!("archive {path}"))
    }

    /// Adds all files and the folders that lead to them.
    pub(crate) fn tree(&mut self, tree: &Tree) -> Result<()> {
        for folder in folders(tree) {
            self.folder(&folder, 0o755)?;
        }
        for (path, entry) in tree {
            match &entry.content {
                Content::Bytes(bytes) => self.file(path, entry.mode, bytes)?,
                Content::Link(target) => {
                    let mut header = self.header(EntryType::Symlink, 0o777, 0);
                    header.set_link_name_literal(target).context("a link's target is too long")?;
                    self.append(header, path, &[])?;
                }
            }
        }
        Ok(())
    }

    /// The archive's bytes.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        self.tar.into_inner().context("end an archive")
    }
}
