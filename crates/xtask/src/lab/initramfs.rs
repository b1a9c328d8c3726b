//! The files that the guest boots: the kernel, its modules in load order, busybox and `interop/guest/init`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::cpio::Archive;
use super::{Lab, init};
use crate::process::output;

/// Modules to load at boot, with their dependencies. Those that the kernel has built in are skipped.
const MODULES: &str = "virtio_pci virtio_console 9pnet_virtio 9p overlay veth dummy bridge af_packet af_packet_diag \
    unix_diag inet_diag netlink_diag sch_netem sch_tbf sch_ingress cls_u32 cls_matchall act_pedit act_mirred act_gact \
    aesni-intel ghash-generic ghash-clmulni-intel ctr gcm seqiv cmac udp_tunnel ip6_udp_tunnel sctp tipc diag";

/// Modules without which the lab cannot work.
const NEEDED: &[&str] = &["9p", "overlay", "veth", "sch_netem", "tipc"];

/// Writes the lab's kernel and initramfs.
pub(crate) fn make(lab: &Lab) -> Result<()> {
    let base = lab.dir.join("kernel");
    let library = base.join("lib/modules");
    if !library.is_dir() && base.join("usr/lib/modules").is_dir() {
        std::os::unix::fs::symlink("usr/lib", base.join("lib")).context("link lib to usr/lib")?;
    }
    let version = only_entry(&library)?;
    std::fs::copy(base.join(format!("boot/vmlinuz-{version}")), lab.kernel()).context("copy the kernel")?;

    let mut archive = Archive::new();
    for folder in ["bin", "dev", "m"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    archive.program("bin/busybox", &std::fs::read(busybox(lab)?).context("read busybox")?);
    archive.program("init", &std::fs::read(init()).context("read interop/guest/init")?);
    let mut order = String::new();
    let modules = load_order(lab, &base, &version)?;
    for path in &modules {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let name = name.trim_end_matches(".xz").to_owned();
        archive.program(&format!("m/{name}"), &module(path)?);
        order.push_str(&name);
        order.push('\n');
    }
    archive.program("m/order", order.as_bytes());
    std::fs::write(lab.initrd(), archive.finish()).context("write the initramfs")?;
    println!("lab: kernel {version}, {} modules", modules.len());
    Ok(())
}

fn only_entry(folder: &Path) -> Result<String> {
    let entry = std::fs::read_dir(folder).ok().and_then(|mut d| d.next()).and_then(Result::ok);
    let name = entry.map(|e| e.file_name().to_string_lossy().into_owned());
    name.with_context(|| {
        format!("{} is empty: the kernel package has another layout than Debian's", folder.display())
    })
}

fn busybox(lab: &Lab) -> Result<PathBuf> {
    let mut files = lab.folders().into_iter().map(|folder| folder.join("busybox"));
    files.find(|file| file.is_file()).context("the package busybox-static has no busybox")
}

/// The paths of all modules in the order in which to load them.
fn load_order(lab: &Lab, base: &Path, version: &str) -> Result<Vec<PathBuf>> {
    let kmod = lab.program("kmod").context("the package kmod has no kmod")?;
    // kmod behaves as the name by which it is called. The unpacked links point into the machine's own file
    // system, so the name is given as argument 0.
    let tool = |name: &str| {
        let mut command = Command::new(&kmod);
        command.arg0(name).env("LD_LIBRARY_PATH", lab.libraries());
        command
    };
    output(tool("depmod").arg("-b").arg(base).arg(version))?;
    let mut order: Vec<PathBuf> = Vec::new();
    for name in MODULES.split_whitespace() {
        let mut command = tool("modprobe");
        command.args(["--show-depends", "--ignore-install", "-S", version, "-d"]).arg(base).arg(name);
        let Ok(text) = output(&mut command) else {
            if NEEDED.contains(&name) {
                bail!("kernel {version} has no module {name}");
            }
            continue;
        };
        for path in text.lines().filter_map(module_path) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Ok(order)
}

/// The path in a line of modprobe's list: `insmod PATH [OPTION=VALUE…]`.
fn module_path(line: &str) -> Option<PathBuf> {
    let rest = line.strip_prefix("insmod ")?;
    let end = rest.find(".ko ").map_or(rest.trim_end().len(), |at| at + ".ko".len());
    let end = rest.find(".ko.xz").map_or(end, |at| at + ".ko.xz".len());
    rest.get(..end).map(PathBuf::from)
}

/// Reads a module, and decompresses it for `insmod`.
fn module(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_none_or(|e| e != "xz") {
        return std::fs::read(path).with_context(|| format!("read {}", path.display()));
    }
    let out = Command::new("xz").arg("-dc").arg(path).output().context("run xz")?;
    ensure!(out.status.success(), "xz cannot unpack {}", path.display());
    Ok(out.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_paths_lose_their_options() {
        for (line, path) in [
            ("insmod /l i b/veth.ko ", "/l i b/veth.ko"),
            ("insmod /lib/dummy.ko numdummies=0", "/lib/dummy.ko"),
            ("insmod /lib/tipc.ko.xz x=1", "/lib/tipc.ko.xz"),
            ("insmod /lib/tipc.ko", "/lib/tipc.ko"),
        ] {
            assert_eq!(module_path(line), Some(PathBuf::from(path)));
        }
        assert_eq!(module_path("builtin overlay"), None);
    }
}
