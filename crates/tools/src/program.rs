//! Whether the loader preloads a library into a program: not if it is static, or runs with rights of another user.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use utipc_tools::companion;

/// Bytes of a program that are read: headers of ELF, or the first line of a script.
const HEAD: u64 = 16 * 1024;
/// Program header that names the loader.
const PT_INTERP: u32 = 3;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2010;

/// Why the shim will not load into the program with this name, and what to do, in one line; `None` if it will, or if
/// the program cannot be read.
pub(crate) fn why_not_preloaded(name: &str) -> Option<String> {
    let path = companion::find(name)?;
    let meta = path.metadata().ok()?;
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let head = read_head(&path)?;
    if let Some(interpreter) = interpreter(&head) {
        return is_static(&read_head(Path::new(&interpreter))?).then(|| text(&interpreter, STATIC));
    }
    let foreign = meta.mode() & SET_USER_ID != 0 && meta.uid() != user
        || meta.mode() & SET_GROUP_ID == SET_GROUP_ID && meta.gid() != group;
    let why = if is_static(&head) { Some(STATIC) } else { foreign.then_some(FOREIGN) };
    why.map(|why| text(&path.display().to_string(), why))
}

const STATIC: &str = "is statically linked, so the shim does not load and its AF_TIPC sockets are the kernel's (link it \
                      dynamically, or use the Rust, C or Python library)";
const FOREIGN: &str = "changes its user or group (set-user-ID), so the loader ignores the shim and its AF_TIPC sockets \
                       are the kernel's (run it as that user)";

fn text(program: &str, why: &str) -> String {
    format!("{program} {why}")
}

fn read_head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The interpreter of a script.
fn interpreter(head: &[u8]) -> Option<String> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8(line.to_vec()).ok()?;
    line.split_whitespace().next().map(str::to_owned)
}

/// Whether the file is an ELF program without a loader. `false` if its program headers cannot be read.
fn is_static(head: &[u8]) -> bool {
    loads_itself(head).unwrap_or(false)
}

fn loads_itself(head: &[u8]) -> Option<bool> {
    let ident = head.get(..6)?.strip_prefix(b"\x7fELF")?;
    let (wide, little) = (*ident.first()? == 2, *ident.get(1)? == 1);
    let number = |at: usize, len: usize| -> Option<usize> {
        let bytes = head.get(at..at.checked_add(len)?)?;
        let join = |sum: usize, byte: &u8| sum << 8 | usize::from(*byte);
        Some(if little { bytes.iter().rev().fold(0, join) } else { bytes.iter().fold(0, join) })
    };
    let (start, size, count) = if wide {
        (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?)
    } else {
        (number(0x1c, 4)?, number(0x2a, 2)?, number(0x2c, 2)?)
    };
    for index in 0..count {
        if number(start.checked_add(index * size)?, 4)? == PT_INTERP as usize {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// An ELF file with these types of program headers.
    fn elf(wide: bool, little: bool, kinds: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 1 + u8::from(wide), 2 - u8::from(little)]);
        let mut put = |at: usize, len: usize, value: usize| {
            let bytes = value.to_le_bytes();
            for (index, byte) in bytes[..len].iter().enumerate() {
                file[at + if little { index } else { len - 1 - index }] = *byte;
            }
        };
        let [start, size, count] = if wide { [0x20, 0x36, 0x38] } else { [0x1c, 0x2a, 0x2c] };
        put(start, if wide { 8 } else { 4 }, 64);
        put(size, 2, 32);
        put(count, 2, kinds.len());
        for kind in kinds {
            file.extend_from_slice(&if little { kind.to_le_bytes() } else { kind.to_be_bytes() });
            file.resize(file.len() + 28, 0);
        }
        file
    }

    #[test]
    fn programs_without_a_loader_are_static() {
        for (wide, little) in [(true, true), (true, false), (false, true), (false, false)] {
            assert!(is_static(&elf(wide, little, &[1, 1, 6])), "{wide} {little}");
            assert!(!is_static(&elf(wide, little, &[6, PT_INTERP, 1])), "{wide} {little}");
            let whole = elf(wide, little, &[1, PT_INTERP]);
            for len in 0..whole.len() - 28 {
                assert!(!is_static(&whole[..len]), "cut at {len}");
            }
        }
        assert!(!is_static(b"#!/bin/sh\n"));
    }

    #[test]
    fn reason_names_the_program_and_a_remedy() {
        let folder = std::env::temp_dir().join(format!("utipc-program-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let fixed = write("fixed", &elf(true, true, &[1]));
        let script = write("script", format!("#! {fixed} -x\nmore").as_bytes());
        let normal = write("normal", &elf(true, true, &[PT_INTERP]));
        for name in [&fixed, &script] {
            let why = why_not_preloaded(name).unwrap();
            assert!(
                why.starts_with(&fixed) && why.contains("statically linked") && why.ends_with(')'),
                "{why}"
            );
        }
        assert_eq!(why_not_preloaded(&normal), None);
        assert_eq!(why_not_preloaded("/nonexistent/program"), None);
        assert_eq!(why_not_preloaded("sh"), None);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&normal, Some(65534), None).unwrap();
            std::fs::set_permissions(&normal, std::fs::Permissions::from_mode(0o4755)).unwrap();
            let why = why_not_preloaded(&normal).unwrap();
            assert!(why.starts_with(&normal) && why.contains("set-user-ID"), "{why}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
