//! What clients hold, compared with what was published.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use super::{Consumer, Desk, Held};
use crate::message_set::Image;
use crate::values;

/// How what clients hold and what was published differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Item streams compared.
    pub items: u64,
    /// Their fields.
    pub fields: u64,
    /// Item streams whose fields are all equal.
    pub equal: u64,
    /// Item streams without an image, or suspect.
    pub missing: u64,
    /// Item streams that hold an older state than the publisher's last.
    pub behind: u64,
    /// The first differences in words.
    pub differences: Vec<String>,
}

/// Differences that are told.
const DIFFERENCES: usize = 10;

impl Comparison {
    /// Whether everything is there and equal.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.items > 0 && self.equal == self.items && self.missing == 0 && self.behind == 0
    }
}

impl Consumer {
    /// Compares every field of every item stream with what the publisher's messages make of it, and with how many it
    /// sent (name → updates), where that is known. The publisher should rest and its messages should have arrived.
    #[must_use]
    pub fn compare(&self, published: Option<&HashMap<String, u32>>) -> Comparison {
        let mut all = Comparison::default();
        for desk in &self.desks {
            for (place, loaded, image) in self.images(desk) {
                self.compare_one(place, loaded, &image, published, &mut all);
            }
        }
        all
    }

    fn compare_one(
        &self,
        place: usize,
        loaded: bool,
        image: &Image,
        published: Option<&HashMap<String, u32>>,
        all: &mut Comparison,
    ) {
        let Some(item) = self.shared.items.get(place) else { return };
        all.items += 1;
        let mut differs = |why: String| {
            if all.differences.len() < DIFFERENCES {
                all.differences.push(format!("{}: {why}", item.name));
            }
        };
        if !loaded {
            all.missing += 1;
            differs("has no image, or is suspect".into());
            return;
        }
        let set = self.shared.sets.iter().find(|set| set.domain == item.domain);
        let Some((set, n)) = set.and_then(|set| Some((set, image.count(set.sequence?)?))) else {
            differs("does not say how many updates it has seen".into());
            return;
        };
        if let Some(last) = published.and_then(|all| all.get(&item.name))
            && *last != n
        {
            all.behind += 1;
            differs(format!("is at update {n}, the publisher at {last}"));
            return;
        }
        let wanted = set.image(values::seed(item.name.as_bytes()), n);
        all.fields += wanted.fields() as u64;
        match image.difference(&wanted) {
            None => all.equal += 1,
            Some(why) => differs(why),
        }
    }

    fn images(&self, desk: &Desk) -> Vec<Held> {
        let mut told = desk.told();
        told.images = None;
        desk.want_images.store(true, Ordering::Relaxed);
        desk.waker.wake();
        loop {
            match told.images.take() {
                Some(images) => return images,
                None if self.threads.iter().all(JoinHandle::is_finished) => return Vec::new(),
                None => {
                    let waited = desk.answered.wait_timeout(told, Duration::from_millis(100));
                    told = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                }
            }
        }
    }
}
