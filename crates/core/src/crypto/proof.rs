//! Proof that a peer's frames are no recordings: question and answer behind the message of an encrypted frame
//! (decision 40). Linux ignores what follows a message.

use crate::wire::View;

/// Bytes of question, answers and number behind a message.
const LEN: usize = 32;

/// What follows a message that makes or keeps contact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// The sender's question: a random number of its own, another one after each start.
    pub(super) question: u64,
    /// The receiver's question that the sender heard in the frame with the highest number, and in the last frame.
    pub(super) answers: [u64; 2],
    /// The highest number that the sender has received from the receiver.
    pub(super) seen: u64,
}

impl Proof {
    /// Reads what follows the message in a decrypted frame of a utipc node.
    pub(super) fn read(view: View<'_>, text: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = text.get(view.size().next_multiple_of(4)..)?.try_into().ok()?;
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let [question, best, last, seen] = numbers else { return None };
        let number = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes);
        let answers = [number(best), number(last)];
        Some(Self { question: number(question), answers, seen: number(seen) })
    }

    pub(super) fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let numbers = [self.question, self.answers[0], self.answers[1], self.seen];
        for (to, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *to = number.to_be_bytes();
        }
        bytes
    }
}

/// The questions of a peer, for the answers to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// The number of the frame with the highest one, and its question.
    best: (u64, u64),
    last: u64,
}

impl Heard {
    /// Notes the question of a frame with this number. A recording has a lower number than the last frame of its
    /// sender, so it does not replace the question in that.
    pub(super) fn note(&mut self, number: u64, question: u64) {
        self.best = self.best.max((number, question));
        self.last = question;
    }

    pub(super) fn answers(self) -> [u64; 2] {
        [self.best.1, self.last]
    }
}
