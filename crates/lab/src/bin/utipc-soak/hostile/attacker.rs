//! A hostile process: attacks with every means of an attached process, until its time is over. Its choices come
//! from a seed.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};
use utipc_bench_kit::counts;
use utipc_bench_kit::numbered::Random;

use super::grammar::{self, Known};
use super::junk::Junk;
use crate::Part;

/// Descriptors from the daemon that a process keeps.
const KEPT_MAX: usize = 40;

/// Maximum number of descriptors that the kernel lets a packet have.
const PASSED_MAX: u64 = 253;

/// Longest wait for one reply.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The task of a hostile process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Attacker {
    /// The daemon's socket.
    pub(super) socket: PathBuf,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    /// Attacks on an attachment that it has inherited as its input.
    pub(super) inherited: bool,
    /// Types of services of others.
    pub(super) services: Vec<u64>,
}

counts! {
    /// Counts of what a process has done.
    pub(crate) struct Done {
        attachments,
        packets,
        replies,
        descriptors,
        writes,
    }
}

/// One attachment.
pub(super) struct Link<'a> {
    channel: OwnedFd,
    pub(super) known: Known,
    /// Descriptors that the daemon has sent: memory, near ends, far ends, inheritances.
    pub(super) kept: Vec<OwnedFd>,
    random: &'a mut Random,
    junk: &'a mut Junk,
    pub(super) done: &'a mut Done,
}

/// Attacks until the time is over; prints what it did.
pub(crate) fn attack(attacker: &Attacker) -> Result<()> {
    let end = Instant::now() + Duration::from_secs_f64(attacker.seconds);
    let (mut random, mut junk, mut done) = (Random(attacker.seed << 20), Junk::default(), Done::default());
    while Instant::now() < end {
        let channel = if attacker.inherited {
            std::io::stdin().as_fd().try_clone_to_owned().context("copy the inherited attachment")?
        } else {
            match connect(&attacker.socket) {
                Some(channel) => channel,
                None => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
            }
        };
        let known = Known { services: attacker.services.clone(), ..Known::default() };
        let mut link =
            Link { channel, known, kept: Vec::new(), random: &mut random, junk: &mut junk, done: &mut done };
        link.done.attachments += 1;
        link.run(attacker, end);
    }
    println!("{}", serde_json::to_string(&done)?);
    // Closing what lingers could wait for ever, exiting does not.
    std::process::exit(0);
}

/// Connects to the daemon; `None` if it does not accept now.
pub(super) fn connect(path: &Path) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
    Some(socket)
}

impl Link<'_> {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn run(&mut self, attacker: &Attacker, end: Instant) {
        if !attacker.inherited {
            let takes_lanes = self.below(4) > 0;
            let mut greeting = grammar::greeting(self.random, takes_lanes);
            if self.below(12) == 0 {
                self.damage(&mut greeting);
            }
            let passed = if self.below(30) == 0 { 3 } else { 0 };
            self.send(&greeting, passed);
            self.read();
            self.open_lanes();
        }
        for _ in 0..self.below(400) {
            if Instant::now() > end || !self.act(attacker) {
                return;
            }
        }
        if self.below(20) == 0 && !attacker.inherited {
            self.hand_down(attacker);
        }
    }

    /// One attack; false if the attachment has ended.
    fn act(&mut self, attacker: &Attacker) -> bool {
        match self.below(40) {
            0..=23 => {
                let packet = grammar::any(self.random, &self.known);
                self.send(&packet, 0) && self.read()
            }
            24..=26 => self.scribble(),
            27 => self.flood(),
            28 => {
                // Descriptors with a request that takes none.
                let (packet, count) = (grammar::any(self.random, &self.known), 1 + self.below(PASSED_MAX));
                self.send(&packet, count) && self.read()
            }
            29..=31 => self.pass_one(),
            32 => self.put_into_kept(),
            33 => self.disturb_kept(),
            34 => self.open_lanes(),
            35 if self.below(10) == 0 && !attacker.inherited => false,
            37 if self.below(4) == 0 && !attacker.inherited => self.fill_rings(),
            36 if self.below(4) == 0 => {
                let mut packet = grammar::any(self.random, &self.known);
                self.damage(&mut packet);
                self.send(&packet, 0) && self.read()
            }
            _ => {
                let packet = grammar::request(self.random, &self.known, grammar::OPEN);
                self.send(&packet, 0) && self.read()
            }
        }
    }

    /// A packet with this many descriptors; false if the attachment has ended.
    pub(super) fn send(&mut self, packet: &[u8], descriptors: u64) -> bool {
        let junk: Vec<OwnedFd> =
            (0..descriptors.min(4)).filter_map(|_| self.junk.make(self.random)).collect();
        let mut fds: Vec<BorrowedFd<'_>> = junk.iter().map(AsFd::as_fd).collect();
        fds.extend(self.kept.iter().map(AsFd::as_fd));
        fds.push(self.channel.as_fd());
        let fds: Vec<_> = fds.into_iter().cycle().take(descriptors as usize).collect();
        let sent = send(&self.channel, packet, &fds);
        self.done.packets += 1;
        self.done.descriptors += fds.len() as u64;
        drop(fds);
        self.junk.close(junk);
        sent
    }

    /// Reads what the daemon has sent; false if it has hung up.
    pub(super) fn read(&mut self) -> bool {
        let mut set = [PollFd::new(&self.channel, PollFlags::IN)];
        if poll(&mut set, Some(&PATIENCE)).is_err() || !set[0].revents().contains(PollFlags::IN) {
            return true;
        }
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = vec![0; 80_000];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let Ok(message) =
            rustix::net::recvmsg(&self.channel, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)
        else {
            return true;
        };
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = part {
                self.kept.extend(fds);
            }
        }
        while self.kept.len() > KEPT_MAX {
            let at = self.below(self.kept.len() as u64) as usize;
            let old = self.kept.swap_remove(at);
            self.junk.close(vec![old]);
        }
        if message.bytes == 0 {
            return false;
        }
        self.done.replies += 1;
        let _ = grammar::learn(&mut self.known, buffer.get(..message.bytes).unwrap_or_default());
        true
    }

    /// Sockets with bindings and descriptors, and lanes from one to the other; the memory of these lanes and of the
    /// binding table.
    fn open_lanes(&mut self) -> bool {
        use grammar::{BIND, FETCH_PAIR, FETCH_TABLE, FORK, KEEP, OPEN, WANT_LANE};
        for kind in [OPEN, OPEN, BIND, KEEP, WANT_LANE, WANT_LANE, FETCH_PAIR, FETCH_PAIR, FETCH_TABLE, FORK]
        {
            let packet = grammar::request(self.random, &self.known, kind);
            if !(self.send(&packet, 0) && self.read()) {
                return false;
            }
        }
        true
    }

    /// Overwrites words of the shared memory.
    fn scribble(&mut self) -> bool {
        let Some(at) = self.any_kept() else { return true };
        let Some(Ok(copy)) = self.kept.get(at).map(AsFd::as_fd).map(|fd| fd.try_clone_to_owned()) else {
            return true;
        };
        let file = File::from(copy);
        let Ok(size) = file.metadata().map(|about| about.len()) else { return true };
        // Headers are at the start, rings anywhere.
        for near in [4096, 65_536, size] {
            for _ in 0..self.below(400) {
                let place = self.below(near.min(size).max(8) / 8) * 8;
                let word = match self.below(4) {
                    0 => 0,
                    1 => u64::MAX,
                    2 => 1 << self.below(64),
                    _ => self.random.draw(),
                };
                if file.write_at(&word.to_le_bytes(), place).is_err() {
                    return true;
                }
                self.done.writes += 1;
            }
        }
        true
    }

    /// Requests whose replies it does not read.
    fn flood(&mut self) -> bool {
        for _ in 0..self.below(600) {
            let kinds = [grammar::FETCH_TABLE, grammar::OPEN, grammar::BIND, grammar::KEEP];
            let packet = match self.random.below(8) {
                n @ 0..4 => grammar::request(self.random, &self.known, kinds[n as usize]),
                _ => grammar::any(self.random, &self.known),
            };
            if !self.send(&packet, 0) {
                return false;
            }
        }
        (0..self.below(200)).all(|_| self.read())
    }

    /// A request that takes a descriptor, with a descriptor of any kind.
    fn pass_one(&mut self) -> bool {
        let kind = if self.below(3) == 0 { grammar::CLAIM } else { grammar::ADOPT };
        let packet = grammar::request(self.random, &self.known, kind);
        if self.below(2) == 0 {
            return self.send(&packet, 1) && self.read();
        }
        // One of the daemon's own.
        let Some(at) = self.any_kept() else { return true };
        let sent = send(&self.channel, &packet, &[self.kept[at].as_fd()]);
        self.done.descriptors += 1;
        sent && self.read()
    }

    /// Packets and descriptors through the other channels that the daemon reads: near ends, inheritances.
    fn put_into_kept(&mut self) -> bool {
        let Some(at) = self.any_kept() else { return true };
        let junk: Vec<OwnedFd> = (0..2).filter_map(|_| self.junk.make(self.random)).collect();
        let mut fds: Vec<BorrowedFd<'_>> = junk.iter().map(AsFd::as_fd).collect();
        // A cycle: the descriptor inside itself.
        fds.push(self.kept[at].as_fd());
        let len = [0, 1, 8, 4000][self.random.below(4) as usize];
        for _ in 0..self.random.below(80) {
            if !send(&self.kept[at], &vec![7; len], &fds) {
                break;
            }
        }
        self.done.descriptors += fds.len() as u64;
        drop(fds);
        self.junk.close(junk);
        true
    }

    /// Reads, shuts down and changes what the daemon polls.
    fn disturb_kept(&mut self) -> bool {
        use rustix::fs::{OFlags, fcntl_setfl};
        let Some(at) = self.any_kept() else { return true };
        let fd = &self.kept[at];
        match self.random.below(4) {
            0 => {
                for _ in 0..self.random.below(2000) {
                    let _ = rustix::net::shutdown(fd, Shutdown::Both);
                }
            }
            1 => {
                let _ = fcntl_setfl(fd, OFlags::empty());
            }
            2 => {
                let _ = fcntl_setfl(fd, OFlags::NONBLOCK | OFlags::APPEND);
            }
            _ => {
                let _ = rustix::net::recv(fd, &mut [0; 4096][..], RecvFlags::DONTWAIT);
            }
        }
        true
    }

    /// A child that has a copy of the attachment and also attacks with it.
    fn hand_down(&mut self, attacker: &Attacker) {
        let Ok(copy) = self.channel.try_clone() else { return };
        let (seed, socket) = (self.random.draw() >> 21, attacker.socket.clone());
        let task = Attacker { socket, seed, seconds: 0.2, inherited: true, services: Vec::new() };
        let Ok(mut child) = Part::Attacker(task).command() else { return };
        child.stdin(Stdio::from(copy)).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(mut child) = child.spawn() {
            for _ in 0..self.below(60) {
                let packet = grammar::any(self.random, &self.known);
                if !self.send(&packet, 0) {
                    break;
                }
            }
            let _ = child.wait();
        }
    }

    fn damage(&mut self, packet: &mut Vec<u8>) {
        let other = grammar::any(self.random, &self.known);
        grammar::damage(self.random, packet, &other);
    }

    fn any_kept(&mut self) -> Option<usize> {
        let count = self.kept.len() as u64;
        (count > 0).then(|| self.below(count) as usize)
    }
}

/// Sends a packet without waiting; false if the other end has hung up.
fn send(to: impl AsFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX as usize))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    use rustix::io::Errno;
    let sent = rustix::net::sendmsg(to, &[IoSlice::new(packet)], &mut control, flags);
    !matches!(sent, Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
}
