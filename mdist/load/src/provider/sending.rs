//! Images and updates to the peer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use rssl::rwf::{DataState, Key, Qos, Refresh, RefreshFlags, State, StreamState, code};
use rssl::wire::to_vec;

use super::items::OpenItem;
use super::service_events::GROUP;
use super::stamps::StampSchedule;
use super::state::{PendingImage, Role, SessionState};
use crate::pace::{Burst, Pace};
use crate::values;

/// Bytes of output above which nothing more is written before some of it is sent.
pub(super) const FULL: usize = 256 * 1024;
/// Stream id of the first item that a publisher opens by itself; the following ones go down.
const FIRST_PUBLISHED: i32 = -6;
/// Encoded images that are cached.
const MAX_CACHED_IMAGES: usize = 16;

impl SessionState {
    /// Writes the changes of the service since the last call.
    pub(super) fn announcements(
        &mut self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        while let (Some(stream), Some(event)) = (self.directory, self.shared.events.get(self.announced)) {
            write(&event.update(stream, self.shared.options.service_id)?, out)?;
            self.announced += 1;
        }
        Ok(())
    }

    /// Writes pending images while the output has space.
    pub(super) fn images(
        &mut self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        while out.len() < FULL {
            let Some(pending) = self.pending_images.pop_front().or_else(|| self.next_published()) else {
                return Ok(());
            };
            let seed = values::seed(&pending.name);
            let n = self.items.get(pending.stream).map_or(0, |item| item.n);
            let Some(set) = self.shared.options.sets.get(usize::from(pending.set)) else { continue };
            let (domain, container) = (set.domain, set.refresh.container());
            let payload = self.image(pending.set, seed, n)?;
            let solicited = self.role == Role::Interactive;
            let mut flags = RefreshFlags::COMPLETE.with(RefreshFlags::CLEAR_CACHE);
            if solicited {
                flags.insert(RefreshFlags::SOLICITED);
            }
            if pending.private {
                flags.insert(RefreshFlags::PRIVATE);
            }
            let stream_state = if pending.streaming { StreamState::Open } else { StreamState::NonStreaming };
            let refresh = Refresh {
                domain,
                stream: pending.stream,
                flags,
                container,
                state: State::new(stream_state, DataState::Ok, code::NONE, b""),
                group: &GROUP,
                qos: Some(Qos::REALTIME_TICK),
                key: Some(Key::item(
                    pending.service.unwrap_or(self.shared.options.service_id),
                    &pending.name,
                )),
                payload: &payload,
                ..Refresh::default()
            };
            write(&to_vec(|w| refresh.encode(w))?, out)?;
            self.counts.refreshes += 1;
            if pending.streaming && self.items.get(pending.stream).is_none() {
                self.items.add(OpenItem { stream: pending.stream, seed, n, set: pending.set }, &pending.name);
            }
        }
        Ok(())
    }

    /// The next item to publish without a request.
    fn next_published(&mut self) -> Option<PendingImage> {
        if self.role != Role::Publisher || !self.ready {
            return None;
        }
        let place = self.to_publish.next()?;
        let item = self.shared.options.items.get(place)?;
        Some(PendingImage {
            stream: FIRST_PUBLISHED - i32::try_from(place).ok()?,
            service: Some(self.shared.options.service_id),
            name: item.name.as_bytes().into(),
            set: self.shared.options.sets.iter().position(|set| set.domain == item.domain)? as u8,
            streaming: true,
            private: false,
        })
    }

    fn image(&mut self, set: u8, seed: u32, n: u32) -> Result<Arc<[u8]>> {
        let Some(messages) = self.shared.options.sets.get(usize::from(set)) else {
            bail!("no such message set")
        };
        if let Some(cached) = self.images.get(&(set, n)) {
            return Ok(cached.clone());
        }
        let payload: Arc<[u8]> = messages.image(seed, n).body().encode()?.into();
        if !messages.running {
            if self.images.len() >= MAX_CACHED_IMAGES {
                self.images.clear();
            }
            self.images.insert((set, n), payload.clone());
        }
        Ok(payload)
    }

    /// Writes the updates that are due while the output has space.
    pub(super) fn updates(
        &mut self,
        now: Duration,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let rate = self.shared.rate();
        if self.items.len() == 0 || !self.ready {
            return Ok(());
        }
        let pace = match &mut self.pace {
            Some(pace) if pace.rate() == rate => pace,
            _ => {
                if let Some(old) = self.pace.take() {
                    self.counts.missed += old.missed();
                }
                // Stop at the end of a round: all items then have the same number of updates and totals can be
                // compared.
                let count = if rate == 0 { self.items.rest_of_round() } else { 0 };
                self.left = (count > 0).then_some(Burst { count, scheduled: now });
                self.stamps = StampSchedule::new(
                    rate,
                    if rate == 0 { 0 } else { self.shared.options.stamps },
                    now.as_nanos() as u64,
                );
                self.pace.insert(Pace::new(rate, self.shared.options.ticks, now))
            }
        };
        while out.len() < FULL {
            let Some(mut burst) = self.left.take().or_else(|| pace.due(now)) else { break };
            while burst.count > 0 && out.len() < FULL {
                let plain = burst.count.min(self.stamps.until);
                let done = self.items.updates(&self.shared.options.sets, plain, FULL, out);
                burst.count -= done;
                self.counts.updates += done;
                self.stamps.until = self.stamps.until.saturating_sub(done);
                if done < plain || burst.count == 0 {
                    continue;
                }
                self.stamps.advance();
                let at =
                    if self.shared.options.stamp_when_sent { mdist::net::now() } else { burst.scheduled };
                if let Some(update) =
                    self.items.stamped_update(&self.shared.options.sets, at, self.shared.options.nanoseconds)
                {
                    write(&update, out)?;
                    self.counts.stamps += 1;
                }
                burst.count -= 1;
                self.counts.updates += 1;
            }
            if burst.count > 0 {
                self.left = Some(burst);
            }
        }
        Ok(())
    }
}
