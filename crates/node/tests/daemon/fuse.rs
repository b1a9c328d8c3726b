//! A file of a FUSE server that does not answer: each close of a descriptor of it blocks.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Operations of the kernel's protocol (`linux/fuse.h`).
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
/// Every other operation is not supported.
const ENOSYS: i32 = 38;

/// The server.
pub(crate) struct Fuse {
    device: Arc<File>,
    /// Closes that wait, or `None` if they are answered.
    waiting: Arc<Waiting>,
}

type Waiting = Mutex<Option<Vec<u64>>>;

impl Fuse {
    /// Starts a server, and opens its file; `None` if this process may not mount.
    pub(crate) fn start() -> Option<(Fuse, OwnedFd)> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
        let fuse = Fuse { device: Arc::new(device), waiting: Arc::new(Mutex::new(Some(Vec::new()))) };
        let (device, waiting) = (Arc::clone(&fuse.device), Arc::clone(&fuse.waiting));
        let file = std::thread::spawn(move || mounted(device, waiting)).join().unwrap()?;
        Some((fuse, file.into()))
    }

    /// Lets all closes return.
    pub(crate) fn release(&self) {
        for unique in self.waiting.lock().unwrap().take().into_iter().flatten() {
            answer(&self.device, unique, 0, &[]);
        }
    }
}

/// Mounts the file where only this thread sees it, and opens it. The mount ends with the thread, the file does not.
fn mounted(device: Arc<File>, waiting: Arc<Waiting>) -> Option<File> {
    unshare(CloneFlags::CLONE_NEWNS).ok()?;
    mount(Some("none"), "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).ok()?;
    let place =
        std::env::temp_dir().join(format!("utipc-fuse-{}-{}", std::process::id(), device.as_raw_fd()));
    File::create(&place).ok()?;
    let options = format!("fd={},rootmode=100000,user_id=0,group_id=0", device.as_raw_fd());
    let none = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let mounted = mount(Some("test"), &place, Some("fuse"), none, Some(&*options));
    let file = mounted.ok().and_then(|()| {
        // The device has no requests before the mount: reading it fails.
        std::thread::spawn(move || serve(&device, &waiting));
        File::open(&place).ok()
    });
    let _ = nix::mount::umount2(&place, nix::mount::MntFlags::MNT_DETACH);
    let _ = std::fs::remove_file(&place);
    file
}

fn serve(mut device: &File, waiting: &Waiting) {
    let mut request = vec![0; 1 << 17];
    // Fails once nothing is mounted and open.
    while let Ok(len) = device.read(&mut request) {
        assert!(len >= 40, "a request has a header");
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let unique = u64::from_ne_bytes(request[8..16].try_into().unwrap());
        match word(4) {
            INIT => {
                let mut init = [0; 64];
                init[..4].copy_from_slice(&word(40).to_ne_bytes());
                init[4..8].copy_from_slice(&word(44).to_ne_bytes());
                // Maximum number of bytes of a write.
                init[20..24].copy_from_slice(&4096_u32.to_ne_bytes());
                answer(device, unique, 0, &init);
            }
            OPEN => answer(device, unique, 0, &[0; 16]),
            FLUSH => match &mut *waiting.lock().unwrap() {
                Some(waiting) => waiting.push(unique),
                None => answer(device, unique, 0, &[]),
            },
            _ => answer(device, unique, ENOSYS, &[]),
        }
    }
}

/// Answers a request. The kernel refuses answers to those that need none.
fn answer(mut device: &File, unique: u64, error: i32, data: &[u8]) {
    let mut bytes = (16 + data.len() as u32).to_ne_bytes().to_vec();
    bytes.extend((-error).to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(data);
    let _ = device.write(&bytes);
}
