//! RPM packages, which rpmbuild writes from a spec file.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::manifest::Package;
use crate::scripts;
use crate::stage::{printed, stage};
use crate::tree::{Content, Entry, Site, Tree, compress_manuals, folders};

/// Folders of the system, which no package owns.
const COMMON: &str = "etc usr usr/bin usr/include usr/lib usr/lib/systemd usr/lib/systemd/system usr/lib/sysusers.d \
    usr/lib/tmpfiles.d usr/lib64 usr/lib64/pkgconfig usr/share usr/share/doc usr/share/licenses usr/share/man";

/// Beginnings of folders of other packages, which no package of ours owns either.
const OTHERS: [&str; 4] = ["usr/share/man/", "usr/share/bash-completion", "usr/share/zsh", "usr/share/fish"];

/// Settings of rpmbuild: nothing depends on the machine, and the files stay as they are.
const MACROS: [&str; 8] = [
    "_buildhost localhost",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "_binary_payload w9.gzdio",
    "_build_id_links none",
    "debug_package %{nil}",
    "__os_install_post %{nil}",
    "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
];

/// Makes the package; returns its name and its bytes.
pub(crate) fn build(package: &Package, site: &Site) -> Result<(String, Vec<u8>)> {
    let release = &site.release;
    let name = package.rpm.name.as_deref().unwrap_or(&package.name);
    let mut tree = site.tree(&package.files)?;
    compress_manuals(&mut tree)?;
    licenses(&mut tree, name, &site.root)?;
    let work = site.work.join("rpm").join(name);
    stage(&tree, &work.join("files"))?;
    let spec = work.join("spec");
    fs::write(&spec, text(name, package, site, &tree, &work.join("files"))?).context("write a spec file")?;
    let mut build = Command::new("rpmbuild");
    build.args(["-bb", "--quiet", "--target", release.rpm_arch]);
    for setting in MACROS {
        build.args(["--define", setting]);
    }
    for (folder, place) in [("_topdir", "build"), ("_rpmdir", "out"), ("_dbpath", "db")] {
        build.arg("--define").arg(format!("{folder} {}", work.join(place).display()));
    }
    build.arg(&spec).env("SOURCE_DATE_EPOCH", release.time.to_string());
    printed(&mut build).context("rpmbuild is in the package rpm (apt-get install rpm)")?;
    let file = format!("{name}-{}-1.{}.rpm", release.rpm_version, release.rpm_arch);
    let bytes = fs::read(work.join("out").join(&file)).with_context(|| format!("read {file}"))?;
    Ok((file, bytes))
}

/// The spec file of a package with the files in a folder.
fn text(name: &str, package: &Package, site: &Site, tree: &Tree, from: &Path) -> Result<String> {
    let Site { project, release, .. } = site;
    let mut text = format!(
        "Name: {name}\nVersion: {}\nRelease: 1\nSummary: {}\nLicense: {}\nURL: {}\nPackager: {}\n\
         Vendor: The utipc authors\nAutoReqProv: no\n",
        release.rpm_version, package.summary, project.license, project.homepage, project.maintainer
    );
    // Writing to a string cannot fail.
    for (field, lines) in [("Requires", &package.rpm.requires), ("Recommends", &package.rpm.recommends)] {
        for line in lines {
            let _ = writeln!(text, "{field}: {}", site.fill(line));
        }
    }
    if has_programs(package) {
        let glibc = &project.glibc;
        let _ = writeln!(text, "Requires: libc.so.6(GLIBC_{glibc})(64bit)\nRequires: libgcc_s.so.1()(64bit)");
    }
    for library in
        tree.keys().filter_map(|path| path.rsplit('/').next()).filter(|name| name.ends_with(".so.0"))
    {
        let _ = writeln!(text, "Provides: {library}()(64bit)");
    }
    let _ = writeln!(text, "\n%description\n{}\n", package.description.trim());
    let _ = writeln!(text, "%install\ncp -a {}/. %{{buildroot}}/\n", from.display());
    let prefix = package.rpm.scripts.as_deref().or(package.scripts.as_deref());
    for script in ["post", "preun", "postun"] {
        if let Some(script_text) = scripts(&site.root, prefix, &format!("rpm.{script}"))? {
            let _ = writeln!(text, "%{script}\n{}", script_text.replace('%', "%%"));
        } else if package.section == "libs" && script != "preun" {
            let _ = writeln!(text, "%{script} -p /sbin/ldconfig\n");
        }
    }
    text.push_str("%files\n%defattr(-,root,root,-)\n");
    for folder in folders(tree) {
        let is_common = COMMON.split(' ').any(|common| common == folder)
            || OTHERS.iter().any(|other| folder.starts_with(other));
        if !is_common {
            let _ = writeln!(text, "%dir \"/{folder}\"");
        }
    }
    for (path, entry) in tree {
        let kind = match path {
            _ if entry.is_config => "%config(noreplace) ",
            path if path.contains("share/licenses/") => "%license ",
            path if path.contains("share/man/") || path.contains("share/doc/") => "%doc ",
            _ => "",
        };
        let _ = writeln!(text, "{kind}\"/{path}\"");
    }
    Ok(text)
}

fn has_programs(package: &Package) -> bool {
    package.files.iter().any(|line| {
        let what = line.parts().0;
        what.starts_with("built:") && !what.ends_with(".a")
    })
}

fn licenses(tree: &mut Tree, name: &str, root: &Path) -> Result<()> {
    for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let bytes = std::fs::read(root.join(file)).with_context(|| format!("read {file}"))?;
        let entry = Entry { mode: 0o644, content: Content::Bytes(bytes), is_config: false };
        tree.insert(format!("usr/share/licenses/{name}/{file}"), entry);
    }
    Ok(())
}
