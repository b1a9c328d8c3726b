//! Compares the images of consumers with the published values.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use super::{Consumer, StreamImage, ThreadLink};
use crate::message_set::Image;
use crate::values;

/// Result of a comparison of the images of consumers with the published values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Item streams compared.
    pub items: u64,
    /// Fields compared.
    pub fields: u64,
    /// Item streams whose fields are all equal.
    pub equal: u64,
    /// Item streams without an image, or suspect.
    pub missing: u64,
    /// Item streams whose image is older than the publisher's last update.
    pub behind: u64,
    /// The first differences, as text.
    pub differences: Vec<String>,
}

/// Maximum number of differences that are listed.
const MAX_DIFFERENCES: usize = 10;

impl Comparison {
    /// Whether there are items and all of them are equal.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.items > 0 && self.equal == self.items && self.missing == 0 && self.behind == 0
    }
}

impl Consumer {
    /// Compares every field of every item stream with the values that the publisher's messages lead to, and the number
    /// of its updates with `published` (by item name) if that is given. Call it while nothing is published and
    /// everything has arrived.
    #[must_use]
    pub fn compare(&self, published: Option<&HashMap<String, u32>>) -> Comparison {
        let mut all = Comparison::default();
        for link in &self.links {
            for (place, loaded, image) in self.images(link) {
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
        let Some(item) = self.shared.options.items.get(place) else { return };
        all.items += 1;
        let mut differs = |difference: String| {
            if all.differences.len() < MAX_DIFFERENCES {
                all.differences.push(format!("{}: {difference}", item.name));
            }
        };
        if !loaded {
            all.missing += 1;
            differs("has no image, or is suspect".into());
            return;
        }
        let set = self.shared.options.sets.iter().find(|set| set.domain == item.domain);
        let Some((set, n)) = set.and_then(|set| Some((set, image.count(set.sequence?)?))) else {
            differs("has no field that counts updates".into());
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
            Some(difference) => differs(difference),
        }
    }

    /// Asks one thread for the images of its mounts.
    fn images(&self, link: &ThreadLink) -> Vec<StreamImage> {
        let mut report = link.report();
        report.images = None;
        link.want_images.store(true, Ordering::Relaxed);
        link.waker.wake();
        loop {
            match report.images.take() {
                Some(images) => return images,
                None if self.threads.iter().all(JoinHandle::is_finished) => return Vec::new(),
                None => {
                    let waited = link.reported.wait_timeout(report, Duration::from_millis(100));
                    report = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                }
            }
        }
    }
}
