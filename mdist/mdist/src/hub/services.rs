//! Services: who offers them, who is chosen, and the one directory that the sides see.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rssl::rdm::directory::{Action, Load, Service as Listed, ServiceState};
use rssl::rwf::{Domain, Qos};

use super::ids::{ItemId, UpstreamId};

/// Most services that a hub tells apart; ids are never used for another name.
pub(super) const MAX_SERVICES: usize = 8192;

/// The services as the sides show them to their clients: ids and names of the hub, state of all upstreams together.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Every service that is offered, or was and may come back.
    pub services: Vec<Listed>,
    /// What is different from the directory before: the id of each service and whether it was added, updated, deleted.
    pub changes: Vec<(Action, u16)>,
}

/// One upstream's offer of a service.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) up: UpstreamId,
    /// It comes from a publisher: its items are not asked for, they appear.
    pub(super) publishes: bool,
    /// As the upstream describes it; the id in it is the upstream's.
    pub(super) listed: Listed,
    /// Requests whose image is not complete.
    pub(super) outstanding: u32,
    /// Streams.
    pub(super) open: u32,
}

impl Offer {
    pub(super) fn is_up(&self) -> bool {
        self.listed.state.as_ref().is_some_and(|s| s.up)
    }

    /// Requests may be sent.
    pub(super) fn is_usable(&self) -> bool {
        self.is_up() && self.listed.state.as_ref().is_some_and(|s| s.accepting) && self.window() > 0
    }

    fn window(&self) -> u32 {
        self.listed.load.as_ref().and_then(|l| l.open_window).map_or(u32::MAX, narrow)
    }

    fn limit(&self) -> u32 {
        self.listed.load.as_ref().and_then(|l| l.open_limit).map_or(u32::MAX, narrow)
    }

    fn load_factor(&self) -> u64 {
        self.listed.load.as_ref().and_then(|l| l.load_factor).unwrap_or(0)
    }

    fn carries(&self, domain: Domain) -> bool {
        let info = self.listed.info.as_ref();
        info.is_none_or(|i| i.capabilities.is_empty() || i.capabilities.contains(&domain.0))
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Who can take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// This upstream, under this service id.
    Offer(UpstreamId, u16),
    /// The chosen one has enough to do for now.
    Busy,
    /// Everyone has as many items as it allows.
    Full,
    /// Nobody is up and accepts requests.
    Nobody,
}

/// One service.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) id: u16,
    pub(super) offers: Vec<Offer>,
    /// Who got the last request, and gets the next while it can.
    pub(super) active: Option<UpstreamId>,
    /// What was last known of it.
    last: Listed,
    /// As the sides see it; `None`: not in their directory.
    shown: Option<Listed>,
    pub(super) fresh: VecDeque<(ItemId, u32)>,
    pub(super) recover: VecDeque<(ItemId, u32)>,
    /// Paced requests whose image is not complete.
    pub(super) recovering: u32,
    pub(super) cached: bool,
    /// Nobody but publishers offers it, or offered it last.
    published: bool,
    /// Items that somebody wants and nobody has published yet.
    pub(super) awaited: usize,
}

impl Service {
    pub(super) fn offer(&mut self, up: UpstreamId) -> Option<&mut Offer> {
        self.offers.iter_mut().find(|o| o.up == up)
    }

    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// Its items come from publishers: they cannot be asked for, only waited for.
    pub(super) fn is_published(&self) -> bool {
        self.published
    }

    pub(super) fn is_up(&self) -> bool {
        self.offers.iter().any(Offer::is_up)
    }

    /// Chooses who takes a request: the one that took the last, else the least loaded, else the one with the lowest id.
    pub(super) fn pick(&self, domain: Domain) -> Pick {
        let mut full = false;
        let mut best: Option<&Offer> = None;
        let rank = |o: &Offer| (Some(o.up) != self.active, o.load_factor(), o.up);
        for offer in self.offers.iter().filter(|o| !o.publishes && o.is_usable() && o.carries(domain)) {
            if offer.open >= offer.limit() {
                full = true;
            } else if best.is_none_or(|b| rank(offer) < rank(b)) {
                best = Some(offer);
            }
        }
        match best {
            Some(offer) if offer.outstanding < offer.window() => Pick::Offer(offer.up, offer.listed.id),
            Some(_) => Pick::Busy,
            None if full => Pick::Full,
            None => Pick::Nobody,
        }
    }

    /// Whether a request of this domain can ever be answered.
    pub(super) fn carries(&self, domain: Domain) -> bool {
        match self.offers.is_empty() {
            true => self
                .last
                .info
                .as_ref()
                .is_none_or(|i| i.capabilities.is_empty() || i.capabilities.contains(&domain.0)),
            false => self.offers.iter().any(|o| o.carries(domain)),
        }
    }

    /// See [`choose_qos`].
    pub(super) fn choose_qos(&self, best: Option<Qos>, worst: Option<Qos>) -> Result<Option<Qos>, NoSuchQos> {
        choose_qos(&self.last, best, worst)
    }

    /// The service as all offers together make it.
    fn merged(&self) -> Listed {
        let chosen = self.offers.iter().find(|o| Some(o.up) == self.active);
        let chosen =
            chosen.or_else(|| self.offers.iter().min_by_key(|o| (!o.is_up(), o.load_factor(), o.up)));
        let from = chosen.map_or(&self.last, |o| &o.listed);
        let load_factor = from.load.as_ref().and_then(|l| l.load_factor);
        Listed {
            id: self.id,
            info: from.info.clone().or_else(|| self.last.info.clone()),
            state: Some(ServiceState {
                up: self.is_up(),
                // With nobody there requests wait at the hub, and what is published is served by the hub: stock publishers
                // say that they accept no requests, meaning themselves.
                accepting: self.offers.is_empty()
                    || self
                        .offers
                        .iter()
                        .any(|o| o.publishes || o.listed.state.as_ref().is_some_and(|s| s.accepting)),
                status: None,
            }),
            groups: Vec::new(),
            // Windows and limits are the upstream's towards this hub; the sides have their own.
            load: load_factor.map(|f| Load { load_factor: Some(f), ..Load::default() }),
            links: from.links.clone(),
        }
    }
}

/// The service has no quality that a request allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSuchQos;

/// The quality that a request for something between `best` and `worst` gets of a service: `None` where it is the service's
/// best, so that requests with and without a wish for it share one item.
pub(crate) fn choose_qos(
    service: &Listed,
    best: Option<Qos>,
    worst: Option<Qos>,
) -> Result<Option<Qos>, NoSuchQos> {
    let Some(best) = best.filter(|qos| qos.order() != Qos::default().order()) else { return Ok(None) };
    let default = [Qos::REALTIME_TICK];
    let offered = match service.info.as_ref().map(|info| &info.qos[..]) {
        Some(qos) if !qos.is_empty() => qos,
        _ => &default,
    };
    let fits = |qos: &Qos| match &worst {
        Some(worst) => qos.is_between(&best, worst),
        None => qos.order() == best.order(),
    };
    let chosen = offered.iter().filter(|qos| fits(qos)).min_by_key(|qos| qos.order()).ok_or(NoSuchQos)?;
    let best = offered.iter().map(Qos::order).min() == Some(chosen.order());
    Ok((!best).then_some(*chosen))
}

/// All services of a hub.
#[derive(Debug, Default)]
pub(super) struct Services {
    pub(super) list: Vec<Service>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<u16, usize>,
    directory: Arc<Directory>,
}

impl Services {
    pub(super) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    pub(super) fn index(&self, id: u16) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn by_id(&mut self, id: u16) -> Option<&mut Service> {
        let at = self.index(id)?;
        self.list.get_mut(at)
    }

    /// The service that `up` calls `theirs`.
    pub(super) fn offered(&self, up: UpstreamId, theirs: u16) -> Option<usize> {
        self.list.iter().position(|s| s.offers.iter().any(|o| o.up == up && o.listed.id == theirs))
    }

    /// The service with this name; a new one gets the id that its upstream uses, if that is free. `None`: too many.
    pub(super) fn named(&mut self, name: &str, wish: u16, cached: bool) -> Option<usize> {
        if let Some(at) = self.by_name.get(name) {
            return Some(*at);
        }
        if self.list.len() >= MAX_SERVICES {
            return None;
        }
        let mut id = wish;
        while self.by_id.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        let at = self.list.len();
        self.list.push(Service {
            id,
            offers: Vec::new(),
            active: None,
            last: Listed::default(),
            shown: None,
            fresh: VecDeque::new(),
            recover: VecDeque::new(),
            recovering: 0,
            cached,
            published: false,
            awaited: 0,
        });
        self.by_name.insert(name.to_owned(), at);
        self.by_id.insert(id, at);
        Some(at)
    }

    /// Renews the directory; `deleted` are services that their last upstream took out. Whether anything changed.
    pub(super) fn show(&mut self, deleted: &[usize]) -> bool {
        let mut changes = Vec::new();
        for (at, service) in self.list.iter_mut().enumerate() {
            let merged = service.merged();
            if !service.offers.is_empty() {
                service.last = merged.clone();
                service.published = service.offers.iter().all(|o| o.publishes);
            }
            if service.offers.is_empty() && deleted.contains(&at) {
                if service.shown.take().is_some() {
                    changes.push((Action::Delete, service.id));
                }
            } else if service.shown.is_none() {
                if merged.info.is_some() && !service.offers.is_empty() {
                    service.shown = Some(merged);
                    changes.push((Action::Add, service.id));
                }
            } else if service.shown.as_ref() != Some(&merged) {
                service.shown = Some(merged);
                changes.push((Action::Update, service.id));
            }
        }
        let changed = !changes.is_empty();
        if changed {
            let services = self.list.iter().filter_map(|s| s.shown.clone()).collect();
            self.directory = Arc::new(Directory { services, changes });
        }
        changed
    }
}
