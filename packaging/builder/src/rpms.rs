//! RPM packages, version 4 of the format.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rpm::{BuildConfig, CompressionType, Dependency, FileMode, FileOptions, PackageBuilder};

use crate::manifest::{Package, Project};
use crate::tree::{Content, Entry, Site, Tree, compress_manuals};
use crate::{Release, scripts};

/// Folders of the system, which no package owns.
const COMMON: &[&str] = &[
    "etc",
    "usr",
    "usr/bin",
    "usr/include",
    "usr/lib",
    "usr/lib/systemd",
    "usr/lib/systemd/system",
    "usr/lib/sysusers.d",
    "usr/lib/tmpfiles.d",
    "usr/lib64",
    "usr/lib64/pkgconfig",
    "usr/share",
    "usr/share/doc",
    "usr/share/licenses",
    "usr/share/man",
];

/// Makes the package; returns its name and its bytes.
pub(crate) fn build(
    package: &Package,
    project: &Project,
    site: &Site,
    release: &Release,
) -> Result<(String, Vec<u8>)> {
    let name = package.rpm.name.as_deref().unwrap_or(&package.name);
    let mut tree = site.tree(&package.files)?;
    compress_manuals(&mut tree)?;
    licenses(&mut tree, name, &site.root)?;
    let time = u32::try_from(release.time).context("the time of the commit is out of range")?;
    let arch = &release.rpm_arch;
    let mut builder =
        PackageBuilder::new(name, &release.rpm_version, &project.license, arch, &package.summary);
    builder.using_config(BuildConfig::v4().compression(CompressionType::Gzip).source_date(time));
    builder.release("1").url(&*project.homepage).description(package.description.trim());
    builder.packager(&*project.maintainer).vendor("The utipc authors").build_host("localhost");
    for line in &package.rpm.requires {
        builder.requires(dependency(&site.fill(line))?);
    }
    for line in &package.rpm.recommends {
        builder.recommends(dependency(&site.fill(line))?);
    }
    for library in ["libc.so.6(GLIBC_{glibc})(64bit)", "libgcc_s.so.1()(64bit)"] {
        if has_programs(package) {
            builder.requires(Dependency::any(library.replace("{glibc}", &site.glibc)));
        }
    }
    for path in tree.keys().filter_map(|path| path.rsplit('/').next()).filter(|name| name.ends_with(".so.0"))
    {
        builder.provides(Dependency::any(format!("{path}()(64bit)")));
    }
    files(&mut builder, &tree)?;
    install_scripts(&mut builder, package, &site.root)?;
    let mut bytes = Vec::new();
    let rpm = builder.build().with_context(|| format!("make the rpm {name}"))?;
    rpm.write(&mut bytes).with_context(|| format!("write the rpm {name}"))?;
    Ok((format!("{name}-{}-1.{arch}.rpm", release.rpm_version), bytes))
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

/// `NAME` or `NAME OPERATOR VERSION`.
fn dependency(text: &str) -> Result<Dependency> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match words.as_slice() {
        [name] => Dependency::any(*name),
        [name, "=", version] => Dependency::eq(*name, *version),
        [name, ">=", version] => Dependency::greater_eq(*name, *version),
        _ => bail!("{text:?} is not a dependency (write NAME, or NAME = VERSION, or NAME >= VERSION)"),
    })
}

fn files(builder: &mut PackageBuilder, tree: &Tree) -> Result<()> {
    for folder in crate::tree::folders(tree) {
        let is_common = COMMON.contains(&folder.as_str())
            || ["usr/share/man/", "usr/share/bash-completion", "usr/share/zsh", "usr/share/fish"]
                .iter()
                .any(|common| folder.starts_with(common));
        if !is_common {
            builder.with_dir_entry(FileOptions::dir(format!("/{folder}")).permissions(0o755))?;
        }
    }
    for (path, entry) in tree {
        let to = format!("/{path}");
        match &entry.content {
            Content::Link(target) => {
                builder.with_symlink(FileOptions::symlink(to, target))?;
            }
            Content::Bytes(bytes) => {
                let mode = FileMode::regular(u16::try_from(entry.mode).context("a mode is out of range")?);
                let mut options = FileOptions::new(to).mode(mode);
                if entry.is_config {
                    options = options.config().noreplace();
                }
                if path.contains("share/licenses/") {
                    options = options.license();
                } else if path.contains("share/man/") || path.contains("share/doc/") {
                    options = options.doc();
                }
                builder.with_file_contents(bytes.as_slice(), options)?;
            }
        }
    }
    Ok(())
}

fn install_scripts(builder: &mut PackageBuilder, package: &Package, root: &Path) -> Result<()> {
    let prefix = package.rpm.scripts.as_deref().or(package.scripts.as_deref());
    if let Some(text) = scripts(root, prefix, "rpm.post")? {
        builder.post_install_script(text);
    }
    if let Some(text) = scripts(root, prefix, "rpm.preun")? {
        builder.pre_uninstall_script(text);
    }
    if let Some(text) = scripts(root, prefix, "rpm.postun")? {
        builder.post_uninstall_script(text);
    }
    if package.section == "libs" {
        builder.post_install_script("/sbin/ldconfig\n").post_uninstall_script("/sbin/ldconfig\n");
    }
    Ok(())
}
