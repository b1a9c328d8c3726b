//! Cutting a batch into sends: equal frames that follow one another to one target are one run.

use utipc_core::outbox::{BearerId, FrameBatch, FrameRef, Target};
use utipc_os::offload::gso;

/// Frames that lie back to back and go to one target: all of one size, the last maybe shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) to: Target,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Size of each frame but the last.
    size: usize,
    frames: usize,
}

impl Run {
    fn of(frame: &FrameRef) -> Run {
        let len = frame.range.len();
        Run { to: frame.to, offset: frame.range.start, len, size: len, frames: 1 }
    }

    /// Takes `frame` in if one segmented send can carry it too.
    fn absorb(&mut self, frame: &FrameRef) -> bool {
        let fits = frame.to == self.to
            && frame.range.start == self.offset + self.len
            && frame.range.len() <= self.size
            && self.len == self.size * self.frames
            && self.frames < gso::MAX_SEGMENTS
            && self.len + frame.range.len() <= gso::MAX_BYTES;
        if fits {
            self.len += frame.range.len();
            self.frames += 1;
        }
        fits
    }

    /// How many frames.
    pub(crate) fn frames(&self) -> u64 {
        self.frames as u64
    }

    /// The segment size to ask of the kernel; zero for a single frame.
    pub(crate) fn segment(&self) -> u16 {
        if self.frames == 1 { 0 } else { u16::try_from(self.size).unwrap_or(0) }
    }
}

/// Hands the frames of `batch` for bearer `id` to `each`, in runs if `join`, and returns how many
/// were refused: those above `mtu` bytes and empty ones.
pub(crate) fn for_each(
    batch: &FrameBatch,
    id: BearerId,
    mtu: usize,
    join: bool,
    mut each: impl FnMut(&Run),
) -> u64 {
    let mut refused = 0;
    let mut current: Option<Run> = None;
    for frame in batch.frames().iter().filter(|frame| frame.bearer == id) {
        if frame.range.is_empty() || frame.range.len() > mtu {
            refused += 1;
            continue;
        }
        if let Some(run) = &mut current {
            if join && run.absorb(frame) {
                continue;
            }
            each(run);
        }
        current = Some(Run::of(frame));
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

    fn cut(frames: &[(u8, Target, usize)], join: bool) -> (Vec<(Target, usize, u16)>, u64) {
        let mut batch = FrameBatch::default();
        for (bearer, to, len) in frames {
            batch.push(*bearer, *to, &vec![0; *len]);
        }
        let mut runs = Vec::new();
        let refused = for_each(&batch, 0, 1472, join, |run| runs.push((run.to, run.len, run.segment())));
        (runs, refused)
    }

    #[test]
    fn equal_neighbours_join_and_a_shorter_one_ends_the_run() {
        let all = Target::Broadcast;
        let frames =
            [(0, to(1), 100), (0, to(1), 100), (0, to(1), 40), (0, to(1), 40), (0, to(2), 40), (0, all, 40)];
        let (runs, refused) = cut(&frames, true);
        assert_eq!(runs, [(to(1), 240, 100), (to(1), 40, 0), (to(2), 40, 0), (all, 40, 0)]);
        assert_eq!(refused, 0);
        assert_eq!(cut(&frames, false).0.len(), 6);
    }

    #[test]
    fn a_longer_frame_starts_a_run_and_others_bearers_and_sizes_are_left_out() {
        let frames =
            [(0, to(1), 50), (0, to(1), 60), (1, to(1), 60), (0, to(1), 60), (0, to(1), 1473), (0, to(1), 0)];
        let (runs, refused) = cut(&frames, true);
        // The frame for bearer 1 lies between two of ours, so they are not neighbours.
        assert_eq!(runs, [(to(1), 50, 0), (to(1), 60, 0), (to(1), 60, 0)]);
        assert_eq!(refused, 2);
    }

    #[test]
    fn a_run_stays_within_what_one_send_can_carry() {
        let (runs, _) = cut(&[(0, to(1), 1472); 100], true);
        assert!(runs.iter().all(|(_, len, _)| *len <= gso::MAX_BYTES));
        assert_eq!(runs.iter().map(|(_, len, _)| len).sum::<usize>(), 147_200);
        let (runs, _) = cut(&[(0, to(1), 24); 100], true);
        assert_eq!(runs.iter().map(|run| run.1).collect::<Vec<_>>(), [64 * 24, 36 * 24]);
    }
}
