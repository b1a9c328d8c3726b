//! Runs: consecutive frames of a batch with the same target and size, which one segmented send carries.

use utipc_core::outbox::{BearerId, FrameBatch, FrameRef, Target};
use utipc_os::mmsg::{Datagram, Frames};
use utipc_os::offload::gso;
use utipc_os::sockaddr::SockAddr;

/// The frames of a batch, by number.
pub(crate) struct Batch<'a>(pub(crate) &'a FrameBatch);

impl Frames for Batch<'_> {
    fn pieces(&self, index: usize) -> [&[u8]; 2] {
        self.0.frames().get(index).map(|frame| self.0.pieces(frame)).unwrap_or_default()
    }
}

/// Consecutive frames to one target, all of one size; the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) to: Target,
    /// Index of the first frame in the batch.
    pub(crate) first: usize,
    count: usize,
    len: usize,
    /// Size of each frame but the last.
    size: usize,
}

impl Run {
    fn new(index: usize, frame: &FrameRef) -> Run {
        let len = frame.len();
        Run { to: frame.to, first: index, count: 1, len, size: len }
    }

    /// Adds frame `index` if one segmented send can carry it too; false if not.
    fn absorb(&mut self, index: usize, frame: &FrameRef) -> bool {
        let len = frame.len();
        let fits = index == self.first + self.count
            && len <= self.size
            && self.len == self.size * self.count
            && self.count < gso::MAX_SEGMENTS
            && self.len + len <= gso::MAX_BYTES
            && frame.to == self.to;
        if fits {
            self.len += len;
            self.count += 1;
        }
        fits
    }

    /// Number of frames.
    pub(crate) fn frames(&self) -> u64 {
        self.count as u64
    }

    /// The segment size to request from the kernel, bytes; zero for a single frame.
    pub(crate) fn segment(&self) -> u16 {
        if self.count == 1 { 0 } else { u16::try_from(self.size).unwrap_or(0) }
    }

    /// The send of this run to one address.
    pub(crate) fn datagram(&self, to: SockAddr) -> Datagram {
        Datagram { to, first: self.first, count: self.count, len: self.len, segment: self.segment() }
    }
}

/// Calls `each` with the frames of `batch` for bearer `id`, in runs if `join`. Returns how many frames were left out:
/// those above `mtu` bytes and empty ones.
pub(crate) fn for_each(
    batch: &FrameBatch,
    id: BearerId,
    mtu: usize,
    join: bool,
    mut each: impl FnMut(&Run),
) -> u64 {
    let mut refused = 0;
    let mut current: Option<Run> = None;
    for (index, frame) in batch.frames().iter().enumerate().filter(|(_, frame)| frame.bearer == id) {
        if frame.is_empty() || frame.len() > mtu {
            refused += 1;
            continue;
        }
        if let Some(run) = &mut current {
            if join && run.absorb(index, frame) {
                continue;
            }
            each(run);
        }
        current = Some(Run::new(index, frame));
    }
    if let Some(run) = &current {
        each(run);
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_core::wire::MediaAddr;

    fn to(host: u8) -> Target {
        Target::Unicast(MediaAddr::Udp(([127, 0, 0, host], 6118).into()))
    }

    fn runs_of(frames: &[(u8, Target, usize)], join: bool) -> (Vec<(Target, usize, u16)>, u64) {
        let mut batch = FrameBatch::default();
        for (bearer, to, len) in frames {
            batch.push(*bearer, *to, &vec![0; *len]);
        }
        let mut runs = Vec::new();
        let refused = for_each(&batch, 0, 1472, join, |run| runs.push((run.to, run.len, run.segment())));
        (runs, refused)
    }

    #[test]
    fn consecutive_equal_frames_join_and_a_shorter_one_ends_the_run() {
        let all = Target::Broadcast;
        let frames =
            [(0, to(1), 100), (0, to(1), 100), (0, to(1), 40), (0, to(1), 40), (0, to(2), 40), (0, all, 40)];
        let (runs, refused) = runs_of(&frames, true);
        assert_eq!(runs, [(to(1), 240, 100), (to(1), 40, 0), (to(2), 40, 0), (all, 40, 0)]);
        assert_eq!(refused, 0);
        assert_eq!(runs_of(&frames, false).0.len(), 6);
    }

    #[test]
    fn longer_frame_starts_a_run_and_frames_of_other_bearers_or_sizes_are_left_out() {
        let frames =
            [(0, to(1), 50), (0, to(1), 60), (1, to(1), 60), (0, to(1), 60), (0, to(1), 1473), (0, to(1), 0)];
        let (runs, refused) = runs_of(&frames, true);
        // The frame for bearer 1 separates two of bearer 0.
        assert_eq!(runs, [(to(1), 50, 0), (to(1), 60, 0), (to(1), 60, 0)]);
        assert_eq!(refused, 2);
    }

    #[test]
    fn run_does_not_exceed_what_one_send_carries() {
        let (runs, _) = runs_of(&[(0, to(1), 1472); 100], true);
        assert!(runs.iter().all(|(_, len, _)| *len <= gso::MAX_BYTES));
        assert_eq!(runs.iter().map(|(_, len, _)| len).sum::<usize>(), 147_200);
        let (runs, _) = runs_of(&[(0, to(1), 24); 100], true);
        assert_eq!(runs.iter().map(|run| run.1).collect::<Vec<_>>(), [64 * 24, 36 * 24]);
    }
}
