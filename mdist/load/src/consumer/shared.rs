//! State that all threads of a consumer share, and how they read messages.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use rssl::rwf::{FieldList, Map, PostUser, Update};
use rssl::wire::Reader;

use super::{ConsumerOptions, streams};
use crate::message_set::{TIM_TRK_1, Template};

/// State that all threads share.
pub(super) struct Shared {
    pub(super) options: ConsumerOptions,
    pub(super) host: String,
    pub(super) post_user: PostUser,
    /// Bytes of an update without a stamp; 0 if updates differ in length.
    pub(super) plain_len: usize,
    pub(super) sequence_field: Option<i16>,
    /// Offset of the value of that field in a usual update.
    pub(super) sequence_at: usize,
    pub(super) sequence_mark: [u8; 3],
    pub(super) start: Duration,
    pub(super) stop: AtomicBool,
}

impl Shared {
    /// Prepares `options`.
    ///
    /// # Errors
    /// Updates are to be checked and have no field to check.
    pub(super) fn new(options: ConsumerOptions) -> Result<Self> {
        let first = options.sets.first();
        let template = first.and_then(|set| set.updates.first());
        let sequence_field = first.and_then(|set| set.sequence);
        ensure!(
            !options.check || sequence_field.is_some(),
            "the updates have no unsigned field of four bytes that could count them: use other messages, or do not check"
        );
        let plain_len = match (options.check || options.compare, first) {
            (true, Some(set)) if options.sets.len() == 1 => {
                let mut lens =
                    set.updates.iter().map(|update| update.frame_len() - rssl::transport::FRAME_HEADER);
                let len = lens.next().unwrap_or(0);
                if lens.all(|other| other == len) { len } else { 0 }
            }
            _ => 0,
        };
        let [hi, lo] = sequence_field.unwrap_or(0).to_be_bytes();
        Ok(Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            post_user: PostUser { addr: u32::from(std::net::Ipv4Addr::LOCALHOST), id: std::process::id() },
            plain_len,
            sequence_field,
            sequence_at: template.and_then(Template::sequence_at).unwrap_or(3),
            sequence_mark: [hi, lo, 4],
            start: mdist::net::now(),
            stop: AtomicBool::new(false),
            options,
        })
    }

    /// The count of updates in an update, as on the wire.
    #[inline]
    pub(super) fn sequence_of(&self, message: &[u8]) -> Option<u32> {
        let at = self.sequence_at;
        if let Some(&[a, b, c, v0, v1, v2, v3]) = message.get(at.wrapping_sub(3)..at + 4)
            && [a, b, c] == self.sequence_mark
        {
            return Some(u32::from_be_bytes([v0, v1, v2, v3]));
        }
        self.sequence_elsewhere(message)
    }

    #[cold]
    fn sequence_elsewhere(&self, message: &[u8]) -> Option<u32> {
        let update = Update::decode(message).ok()?;
        streams::last_count(self, update.container, update.payload).ok()?
    }

    /// The time in an update's stamp, which is its last field; `None` if it has none.
    pub(super) fn stamp_of(&self, message: &[u8]) -> Option<Duration> {
        let id = TIM_TRK_1.to_be_bytes();
        for len in 1..=8usize {
            let at = message.len().checked_sub(len + 3)?;
            if message.get(at..at + 3) == Some(&[id[0], id[1], len as u8]) {
                // These bytes may be part of another value: decode all fields to find out.
                return self.stamp_in(Update::decode(message).ok()?.payload, TIM_TRK_1);
            }
        }
        None
    }

    /// The time in the stamp `field` of a payload.
    pub(super) fn stamp_in(&self, payload: &[u8], field: i16) -> Option<Duration> {
        let in_list = |list: &[u8]| -> Option<u64> {
            let list = FieldList::decode(list, None).ok()?;
            let entry = list.entries().filter_map(rssl::Result::ok).find(|entry| entry.id == field)?;
            (!entry.data.is_empty() && entry.data.len() <= 8)
                .then(|| entry.data.iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte)))
        };
        let found = in_list(payload).or_else(|| {
            let map = Map::decode(payload).ok()?;
            map.entries().filter_map(rssl::Result::ok).find_map(|entry| in_list(entry.data))
        })?;
        Some(if self.options.nanoseconds {
            Duration::from_nanos(found)
        } else {
            Duration::from_micros(found)
        })
    }

    pub(super) fn stamp(&self, at: Duration) -> u64 {
        (if self.options.nanoseconds { at.as_nanos() } else { at.as_micros() }) as u64
    }

    /// Decodes every field; returns their number.
    pub(super) fn decode(&self, message: &[u8]) -> u64 {
        let Ok(update) = Update::decode(message) else { return 0 };
        let Ok(list) = FieldList::decode(update.payload, None) else { return 0 };
        let mut fields = 0;
        for entry in list.entries().flatten() {
            let mut value = Reader::new(entry.data);
            let _ = std::hint::black_box(value.u8());
            fields += 1;
        }
        fields
    }
}
