//! The media, and the default properties of their new bearers. Spec: tipc.md §13, §15.

use utipc_core::BearerConfig;
use utipc_core::limits::{
    DEFAULT_PRIORITY, DEFAULT_TOLERANCE_MS, MAX_TOLERANCE_MS, MAX_WINDOW, MIN_BEARER_MTU, MIN_TOLERANCE_MS,
    MIN_WINDOW,
};
use utipc_manage::{Entry, Media, Properties, Refusal};

use super::invalid;

/// The MTU that is reported until one is set, bytes: the largest that a UDP bearer chooses itself.
const UDP_MTU: u32 = 14_000;
/// The smallest MTU of a UDP bearer, bytes: the largest headers before the smallest packet.
const UDP_MIN_MTU: u32 = MIN_BEARER_MTU + 48;
/// The largest MTU of a UDP bearer, bytes.
const UDP_MAX_MTU: u32 = 65_535 - 28;

/// A medium.
#[derive(Clone, Debug)]
struct Medium {
    name: &'static str,
    priority: u8,
    tolerance_ms: u32,
    window: u16,
    mtu: Option<u32>,
}

/// All media, in the order in which they are listed.
#[derive(Clone, Debug)]
pub(super) struct Defaults([Medium; 2]);

impl Default for Defaults {
    fn default() -> Self {
        let medium = |name| Medium {
            name,
            priority: DEFAULT_PRIORITY,
            tolerance_ms: DEFAULT_TOLERANCE_MS,
            window: MAX_WINDOW,
            mtu: None,
        };
        Self([medium("eth"), medium("udp")])
    }
}

impl Medium {
    fn entry(&self) -> Entry {
        let mtu = (self.name == "udp").then(|| self.mtu.unwrap_or(UDP_MTU));
        let properties = Properties {
            priority: Some(self.priority.into()),
            tolerance: Some(self.tolerance_ms),
            window: Some(self.window.into()),
            mtu,
            ..Properties::default()
        };
        Entry::Media(Media { name: self.name.to_owned(), properties })
    }
}

impl Defaults {
    pub(super) fn show(&self) -> Vec<Entry> {
        self.0.iter().map(Medium::entry).collect()
    }

    pub(super) fn get(&self, name: &str) -> Result<Entry, Refusal> {
        self.0.iter().find(|m| m.name == name).map(Medium::entry).ok_or_else(no_media)
    }

    pub(super) fn set(&mut self, name: &str, new: &Properties) -> Result<(), Refusal> {
        check(new)?;
        let medium = self.0.iter_mut().find(|m| m.name == name).ok_or_else(no_media)?;
        if let Some(mtu) = new.mtu {
            if medium.name != "udp" {
                return Err(invalid("MTU property is unsupported"));
            }
            if !(UDP_MIN_MTU..=UDP_MAX_MTU).contains(&mtu) {
                return Err(invalid("MTU value is out-of-range"));
            }
            medium.mtu = Some(mtu);
        }
        medium.priority = new.priority.map_or(medium.priority, |p| p as u8);
        medium.tolerance_ms = new.tolerance.unwrap_or(medium.tolerance_ms);
        medium.window = new.window.map_or(medium.window, |w| w as u16);
        Ok(())
    }

    /// Applies the properties of a medium to a new bearer.
    pub(super) fn apply(&self, name: &str, config: &mut BearerConfig) {
        if let Some(medium) = self.0.iter().find(|m| m.name == name) {
            config.priority = medium.priority;
            config.tolerance_ms = medium.tolerance_ms;
            config.max_window = medium.window;
        }
    }

    /// MTU of new UDP bearers, bytes; `None`: each bearer takes the MTU that fits its interface.
    pub(super) fn udp_mtu(&self) -> Option<usize> {
        self.0.iter().find(|m| m.name == "udp")?.mtu.map(|mtu| mtu as usize)
    }
}

fn no_media() -> Refusal {
    invalid("Media not found")
}

/// Checks the ranges that bearers, links and media share.
pub(super) fn check(new: &Properties) -> Result<(), Refusal> {
    let range = |ok: bool, text: &str| if ok { Ok(()) } else { Err(invalid(text)) };
    range(new.priority.is_none_or(|p| p <= 31), "priority must be 0 to 31")?;
    let tolerance = MIN_TOLERANCE_MS..=MAX_TOLERANCE_MS;
    range(new.tolerance.is_none_or(|t| tolerance.contains(&t)), "tolerance must be 50 to 30000 ms")?;
    let window = u32::from(MIN_WINDOW)..=u32::from(MAX_WINDOW);
    range(new.window.is_none_or(|w| window.contains(&w)), "window must be 50 to 8191 packets")
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_manage::Errno;

    #[test]
    fn new_bearers_begin_with_the_properties_of_their_medium() {
        let mut media = Defaults::default();
        let new = Properties {
            priority: Some(3),
            tolerance: Some(900),
            window: Some(60),
            mtu: Some(1400),
            ..Properties::default()
        };
        media.set("udp", &new).unwrap();
        let Entry::Media(udp) = media.get("udp").unwrap() else { panic!("no medium") };
        assert_eq!(udp.properties, new);
        let mut config =
            BearerConfig::new("udp:U", "127.0.0.1:1".parse().map(utipc_core::MediaAddr::Udp).unwrap(), 1400);
        media.apply("udp", &mut config);
        assert_eq!((config.priority, config.tolerance_ms, config.max_window), (3, 900, 60));
        assert_eq!(media.udp_mtu(), Some(1400));
    }

    #[test]
    fn properties_out_of_range_are_refused() {
        let mut media = Defaults::default();
        let one = |change: fn(&mut Properties)| {
            let mut properties = Properties::default();
            change(&mut properties);
            properties
        };
        for wrong in [
            one(|p| p.priority = Some(32)),
            one(|p| p.tolerance = Some(49)),
            one(|p| p.window = Some(8192)),
            one(|p| p.mtu = Some(10)),
        ] {
            assert_eq!(media.set("udp", &wrong).unwrap_err().errno, Errno::INVALID, "{wrong:?}");
        }
        assert!(media.set("eth", &one(|p| p.mtu = Some(1400))).is_err());
        assert!(media.set("xyz", &Properties::default()).is_err());
    }
}
