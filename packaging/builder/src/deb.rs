//! Debian packages.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use md5::{Digest, Md5};

use crate::archive::Archive;
use crate::manifest::{Package, Project};
use crate::tree::{Content, Entry, Site, Tree, compress_manuals, gzip};
use crate::{Release, scripts};

/// Makes the package; returns its name and its bytes.
pub(crate) fn build(
    package: &Package,
    project: &Project,
    site: &Site,
    release: &Release,
) -> Result<(String, Vec<u8>)> {
    let mut tree = site.tree(&package.files)?;
    compress_manuals(&mut tree)?;
    documents(&mut tree, package, project, site, release)?;
    let mut data = Archive::new("./", release.time);
    data.folder("", 0o755)?;
    data.tree(&tree)?;

    let mut control = Archive::new("./", release.time);
    control.folder("", 0o755)?;
    control.file("control", 0o644, fields(package, project, site, release, &tree).as_bytes())?;
    control.file("md5sums", 0o644, sums(&tree).as_bytes())?;
    let configs: Vec<_> = tree.iter().filter(|(_, entry)| entry.is_config).collect();
    if !configs.is_empty() {
        let list: String = configs.iter().map(|(path, _)| format!("/{path}\n")).collect();
        control.file("conffiles", 0o644, list.as_bytes())?;
    }
    for line in &package.deb.control {
        let (name, content) = line.split_once(':').context("a control file is name:content")?;
        control.file(name, 0o644, format!("{}\n", site.fill(content)).as_bytes())?;
    }
    for name in ["preinst", "postinst", "prerm", "postrm"] {
        if let Some(script) = scripts(&site.root, package.scripts.as_deref(), &format!("deb.{name}"))? {
            control.file(name, 0o755, script.as_bytes())?;
        }
    }
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.finish()?)?),
        ("data.tar.gz", gzip(&data.finish()?)?),
    ];
    let mut deb = ar::Builder::new(Vec::new());
    for (name, bytes) in parts {
        let mut header = ar::Header::new(name.into(), bytes.len() as u64);
        header.set_mtime(release.time);
        header.set_mode(0o100_644);
        deb.append(&header, bytes.as_slice()).context("write a .deb")?;
    }
    let name = format!("{}_{}_{}.deb", package.name, release.version, release.deb_arch);
    Ok((name, deb.into_inner().context("write a .deb")?))
}

/// Adds what every package has: copyright, changelog, overrides.
fn documents(
    tree: &mut Tree,
    package: &Package,
    project: &Project,
    site: &Site,
    release: &Release,
) -> Result<()> {
    let name = &package.name;
    let mut put = |path: String, bytes: Vec<u8>| {
        tree.insert(path, Entry { mode: 0o644, content: Content::Bytes(bytes), is_config: false });
    };
    put(format!("usr/share/doc/{name}/copyright"), copyright(&site.root, project)?.into_bytes());
    let changes = format!(
        "{name} ({}) unstable; urgency=medium\n\n  * Changes: {}/blob/main/CHANGELOG.md\n\n -- {}  {}\n",
        release.version, project.homepage, project.maintainer, release.date
    );
    put(format!("usr/share/doc/{name}/changelog.gz"), gzip(changes.as_bytes())?);
    let overrides = &package.deb.overrides;
    if !overrides.is_empty() {
        let mut text = String::new();
        for line in overrides {
            let (tag, reason) = line.split_once('#').context("an override ends with # and its reason")?;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# {}\n{name}: {}", reason.trim(), site.fill(tag.trim()));
        }
        put(format!("usr/share/lintian/overrides/{name}"), text.into_bytes());
    }
    Ok(())
}

/// The file `copyright` in Debian's format.
fn copyright(root: &Path, project: &Project) -> Result<String> {
    let mit = std::fs::read_to_string(root.join("LICENSE-MIT")).context("read LICENSE-MIT")?;
    let holder = mit.lines().find_map(|line| line.strip_prefix("Copyright (c) ")).unwrap_or("the authors");
    let terms = mit.split_once("Permission is").map_or("", |(_, rest)| rest);
    let terms: String = format!("Permission is{terms}")
        .lines()
        .map(|line| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nSource: {}\n\nFiles: *\n\
         Copyright: {holder}\nLicense: Apache-2.0 or Expat\n\nLicense: Apache-2.0\n On Debian systems, the text of \
         this license is in\n /usr/share/common-licenses/Apache-2.0.\n\nLicense: Expat\n{terms}",
        project.homepage
    ))
}

fn fields(package: &Package, project: &Project, site: &Site, release: &Release, tree: &Tree) -> String {
    let size: usize = tree.values().map(|entry| size(entry).div_ceil(1024)).sum();
    let mut text = format!(
        "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {size}\n",
        package.name, release.version, release.deb_arch, project.maintainer
    );
    for (field, list) in [("Depends", &package.deb.depends), ("Recommends", &package.deb.recommends)] {
        if !list.is_empty() {
            let _ = writeln!(text, "{field}: {}", site.fill(&list.join(", ")));
        }
    }
    let _ =
        writeln!(text, "Section: {}\nPriority: optional\nHomepage: {}", package.section, project.homepage);
    if package.section == "libs" || package.section == "libdevel" {
        text.push_str("Multi-Arch: same\n");
    }
    let _ = writeln!(text, "Description: {}", package.summary);
    for line in package.description.trim().lines() {
        let _ = writeln!(text, " {}", if line.is_empty() { "." } else { line });
    }
    text
}

fn size(entry: &Entry) -> usize {
    match &entry.content {
        Content::Bytes(bytes) => bytes.len(),
        Content::Link(_) => 0,
    }
}

fn sums(tree: &Tree) -> String {
    let mut text = String::new();
    for (path, entry) in tree.iter().filter(|(_, entry)| !entry.is_config) {
        if let Content::Bytes(bytes) = &entry.content {
            let sum: String = Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(text, "{sum}  {path}");
        }
    }
    text
}
