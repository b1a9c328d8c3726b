//! Files in folders, and archives of folders that depend on nothing but their content: owner root, one time, sorted.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::tree::{Content, Tree, folders};

/// Makes a folder with a mode, and those that lead to it.
pub(crate) fn folder(path: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("make {}", path.display()))
}

/// Writes all files into a folder.
pub(crate) fn stage(tree: &Tree, to: &Path) -> Result<()> {
    folder(to, 0o755)?;
    folders(tree).iter().try_for_each(|path| folder(&to.join(path), 0o755))?;
    for (path, entry) in tree {
        let file = to.join(path);
        let result = match &entry.content {
            Content::Bytes(bytes) => fs::write(&file, bytes)
                .and_then(|()| fs::set_permissions(&file, Permissions::from_mode(entry.mode))),
            Content::Link(target) => symlink(target, &file),
        };
        result.with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

/// An archive of everything in a folder.
pub(crate) fn tar(from: &Path, time: u64) -> Result<Vec<u8>> {
    let entries = fs::read_dir(from).with_context(|| format!("list {}", from.display()))?;
    let mut names: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.file_name().into())).collect();
    names.sort();
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--owner=root:0", "--group=root:0"]);
    tar.arg(format!("--mtime=@{time}")).arg("--directory").arg(from).arg("--").args(names);
    filter(&mut tar, &[])
}

/// Bytes in gzip's format, without a time.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    filter(Command::new("gzip").args(["-9", "--no-name"]), bytes)
}

/// What a command makes of `input`.
pub(crate) fn filter(command: &mut Command, input: &[u8]) -> Result<Vec<u8>> {
    let name = format!("{command:?}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("run {name}"))?;
    let mut stdin = child.stdin.take().context("a command has an input")?;
    let out = std::thread::scope(|threads| {
        // It ends early if the command does, whose status then says why.
        threads.spawn(move || stdin.write_all(input));
        child.wait_with_output()
    });
    let out = out.with_context(|| format!("run {name}"))?;
    ensure!(out.status.success(), "{name} failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(out.stdout)
}

/// What a command prints.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let out = filter(command, &[])?;
    Ok(String::from_utf8(out).context("a command prints text")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Entry;

    #[test]
    fn same_files_give_the_same_archive() {
        let work = std::env::temp_dir().join(format!("utipc-package-test-{}", std::process::id()));
        let mut tree = Tree::new();
        let entry = |content| Entry { mode: 0o755, content, is_config: false };
        tree.insert("usr/bin/a".into(), entry(Content::Bytes(b"one".to_vec())));
        tree.insert("b".into(), entry(Content::Link("usr/bin/a".into())));
        let archives = ["one", "two"].map(|name| {
            let folder = work.join(name);
            stage(&tree, &folder).expect("stage");
            gzip(&tar(&folder, 1_000_000_000).expect("tar")).expect("gzip")
        });
        fs::remove_dir_all(&work).expect("remove");
        assert_eq!(archives[0], archives[1]);
        assert!(filter(&mut Command::new("false"), b"").is_err());
    }
}
