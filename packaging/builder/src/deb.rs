//! Debian packages, which dpkg-deb writes.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::manifest::{Package, Project};
use crate::scripts;
use crate::stage::{gzip, printed, stage};
use crate::tree::{Content, Entry, Site, Tree, compress_manuals};

/// Makes the package; returns its name and its bytes.
pub(crate) fn build(package: &Package, site: &Site) -> Result<(String, Vec<u8>)> {
    let release = &site.release;
    let mut tree = site.tree(&package.files)?;
    compress_manuals(&mut tree)?;
    documents(&mut tree, package, site)?;
    let folder = site.work.join("deb").join(&package.name);
    stage(&tree, &folder)?;

    let mut control = Tree::new();
    let mut put = |name: &str, mode: u32, text: String| {
        let content = Content::Bytes(text.into_bytes());
        control.insert(format!("DEBIAN/{name}"), Entry { mode, content, is_config: false });
    };
    put("control", 0o644, fields(package, site, &tree));
    let is_summed = |entry: &Entry| !entry.is_config && matches!(entry.content, Content::Bytes(_));
    let mut sums = Command::new("md5sum");
    sums.args(tree.iter().filter(|(_, entry)| is_summed(entry)).map(|(path, _)| path));
    put("md5sums", 0o644, format!("{}\n", printed(sums.current_dir(&folder))?));
    let configs = tree.iter().filter(|(_, entry)| entry.is_config);
    let list: String = configs.map(|(path, _)| format!("/{path}\n")).collect();
    if !list.is_empty() {
        put("conffiles", 0o644, list);
    }
    for line in &package.deb.control {
        let (name, content) = line.split_once(':').context("a control file is name:content")?;
        put(name, 0o644, format!("{}\n", site.fill(content)));
    }
    for name in ["preinst", "postinst", "prerm", "postrm"] {
        if let Some(script) = scripts(&site.root, package.scripts.as_deref(), &format!("deb.{name}"))? {
            put(name, 0o755, script);
        }
    }
    stage(&control, &folder)?;
    let name = format!("{}_{}_{}.deb", package.name, release.version, release.deb_arch);
    let deb = site.work.join(&name);
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zgzip", "-z9", "--build"]).arg(&folder).arg(&deb);
    printed(build.env("SOURCE_DATE_EPOCH", release.time.to_string())).context("dpkg-deb is Debian's")?;
    Ok((name, std::fs::read(&deb).context("read a .deb")?))
}

/// Adds what every package has: copyright, changelog, overrides.
fn documents(tree: &mut Tree, package: &Package, site: &Site) -> Result<()> {
    let Site { root, project, release, .. } = site;
    let name = &package.name;
    let mut put = |path: String, bytes: Vec<u8>| {
        tree.insert(path, Entry { mode: 0o644, content: Content::Bytes(bytes), is_config: false });
    };
    put(format!("usr/share/doc/{name}/copyright"), copyright(root, project)?.into_bytes());
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

fn fields(package: &Package, site: &Site, tree: &Tree) -> String {
    let Site { project, release, .. } = site;
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
