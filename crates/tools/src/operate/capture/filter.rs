//! Which records of a capture are wanted.

use anyhow::{Result, bail};
use utipc_manage::capture::{Origin, Place, Record};

use super::header;
use crate::operate::snapshot::Snapshot;

/// The conditions on a record; all given ones must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// The bearer of a link, and the media address of its peer.
    pub(super) link: Option<(String, String)>,
    pub(super) ports: Vec<u32>,
    pub(super) services: Vec<u32>,
}

impl Filter {
    /// The frames of the link with this name.
    ///
    /// # Errors
    /// The link does not exist.
    pub(super) fn set_link(&mut self, name: &str, shot: &Snapshot) -> Result<()> {
        let Some(link) = shot.links.iter().find(|link| link.name == name) else {
            bail!("there is no link {name} (see `utipc link list`)");
        };
        self.link = Some((link.bearer.clone(), link.peer_media.clone()));
        Ok(())
    }

    /// Whether the record is wanted.
    pub(super) fn takes(&self, record: &Record) -> bool {
        if let Some((bearer, peer)) = &self.link {
            let Origin::Bearer { name, path, .. } = &record.origin else { return false };
            if name != bearer || !path.iter().any(|place| text(place) == *peer) {
                return false;
            }
        }
        if self.ports.is_empty() && self.services.is_empty() || record.missed > 0 {
            return true;
        }
        let mut takes = false;
        header::for_each(&record.frame, &mut |header| {
            let ports = header.ports.unwrap_or_default();
            let port = self.ports.is_empty() || self.ports.iter().any(|port| ports.contains(port));
            let service = self.services.is_empty()
                || header.service.is_some_and(|found| self.services.contains(&found));
            takes |= header.ports.is_some() && port && service;
        });
        let of_lane = match &record.origin {
            Origin::Lane(ports) => {
                self.services.is_empty() && self.ports.iter().any(|port| ports.contains(port))
            }
            Origin::Bearer { .. } => false,
        };
        takes || of_lane
    }
}

/// A media address as the node shows it.
pub(super) fn text(place: &Place) -> String {
    match place {
        Place::Ethernet([a, b, c, d, e, f]) => format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"),
        Place::Udp(at) => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::to_service;
    use super::*;
    use crate::operate::snapshot::Link;

    fn record(origin: Origin, frame: Vec<u8>) -> Record {
        Record { time: 0, origin, len: frame.len() as u32, frame, dropped: 0, missed: 0 }
    }

    fn from(peer: &str) -> Origin {
        let place = |at: &str| Place::Udp(at.parse().unwrap());
        Origin::Bearer { name: "udp:U".to_owned(), sent: false, path: [place(peer), place("10.0.0.1:6118")] }
    }

    #[test]
    fn filters_choose_links_ports_and_services() {
        let frame = to_service(7, 1000, b"x");
        let (near, far) =
            (record(from("10.0.0.2:6118"), frame.clone()), record(from("10.0.0.3:6118"), frame));
        let lane = record(Origin::Lane([7, 9]), to_service(7, 1000, b"x"));
        let mut link = Filter::default();
        let found = Link {
            name: "a-b".to_owned(),
            bearer: "udp:U".to_owned(),
            peer_media: "10.0.0.2:6118".to_owned(),
            ..Link::default()
        };
        let shot = Snapshot { links: vec![found], ..Snapshot::default() };
        assert!(link.set_link("c-d", &shot).unwrap_err().to_string().contains("link list"));
        link.set_link("a-b", &shot).unwrap();
        assert!(link.takes(&near) && !link.takes(&far) && !link.takes(&lane));
        let ports = |port| Filter { ports: vec![port], ..Filter::default() };
        assert!(ports(7).takes(&near) && !ports(8).takes(&near));
        assert!(ports(9).takes(&lane), "the reader of a lane");
        let services = |service| Filter { services: vec![service], ..Filter::default() };
        assert!(services(1000).takes(&lane) && !services(1001).takes(&lane));
        assert!(Filter::default().takes(&record(from("10.0.0.2:6118"), b"no TIPC".to_vec())));
    }
}
