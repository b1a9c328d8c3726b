//! Services: the upstreams that offer them, the choice among these, and the one directory that the sides see.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rssl::rdm::directory::{Action, Load, Service as Listed, ServiceState};
use rssl::rwf::{Domain, Qos};

use super::ids::{ItemId, Token, UpstreamId};
use super::item::{Link, Queue};

/// Maximum number of services of a hub; an id is never used for another name.
pub(super) const MAX_SERVICES: usize = 8192;

/// Maximum number of announcements of an upstream's service whose statuses may follow; those of an older one count as
/// the items' own.
const MAX_ANNOUNCED: usize = 64;

/// The services as the sides show them to consumers: ids and names of the hub, state of all upstreams together.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// The services that are offered, or were offered and may come back.
    pub services: Vec<Listed>,
    /// The difference from the directory before: each changed service id and whether it was added, updated or deleted.
    pub changes: Vec<(Action, u16)>,
}

/// One upstream's offer of a service.
#[derive(Debug)]
pub(super) struct Offer {
    /// Its number among all offers of the hub. A service that is deleted and offered again has another one.
    pub(super) number: u32,
    pub(super) up: UpstreamId,
    /// Whether it comes from a publisher, which opens the items; they cannot be requested.
    pub(super) publishes: bool,
    /// As the upstream describes it, with the upstream's id.
    pub(super) listed: Listed,
    /// Number of requests whose image is not complete.
    pub(super) outstanding: u32,
    /// Number of streams.
    pub(super) open: u32,
    /// The announcement that covers the statuses of its items now; 0: none.
    pub(super) announcement: Token,
    /// The upstream's last announcements: their numbers there, and here.
    pub(super) announced: VecDeque<(u32, Token)>,
}

impl Offer {
    /// An offer without streams.
    pub(super) fn new(number: u32, up: UpstreamId, publishes: bool, listed: Listed) -> Self {
        let announced = VecDeque::new();
        Self { number, up, publishes, listed, outstanding: 0, open: 0, announcement: 0, announced }
    }

    /// Takes the number of the announcement that the upstream's statuses of items belong to from now on; `None`: to
    /// none. `announced`: it is a new one, which has this number here.
    pub(super) fn covers(&mut self, theirs: Option<u32>, announced: Option<Token>) {
        if let (Some(theirs), Some(ours)) = (theirs, announced) {
            self.announced.push_back((theirs, ours));
            if self.announced.len() > MAX_ANNOUNCED {
                self.announced.pop_front();
            }
        }
        let mut known = self.announced.iter().rev();
        self.announcement = known.find(|(number, _)| Some(*number) == theirs).map_or(0, |(_, ours)| *ours);
    }

    pub(super) fn is_up(&self) -> bool {
        self.listed.state.as_ref().is_some_and(|s| s.up)
    }

    /// Whether requests may be sent.
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

/// The upstream that can take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// This upstream, under this service id.
    Offer(UpstreamId, u16),
    /// The window of the chosen upstream is full.
    Busy,
    /// Every upstream has as many streams as it allows.
    Full,
    /// No upstream is up and accepts requests.
    Unavailable,
}

/// One service.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) id: u16,
    pub(super) offers: Vec<Offer>,
    /// The upstream of the last request, which gets the next one if it can take it.
    pub(super) active: Option<UpstreamId>,
    /// Its last known description.
    last: Listed,
    /// As the sides see it; `None`: not in their directory.
    shown: Option<Listed>,
    /// Items to request for consumers: id and age.
    pub(super) consumer_queue: VecDeque<(ItemId, u32)>,
    /// Items to request in a recovery: id and age.
    pub(super) recovery_queue: VecDeque<(ItemId, u32)>,
    /// Number of paced requests whose image is not complete.
    pub(super) recovering: u32,
    /// Whether last values of its items are cached.
    pub(super) cached: bool,
    /// Whether only publishers offer it, or offered it last.
    published: bool,
    /// Number of requested items that no publisher has published yet.
    pub(super) awaited: usize,
}

impl Service {
    /// The offer of an upstream.
    pub(super) fn offer(&mut self, up: UpstreamId) -> Option<&mut Offer> {
        self.offers.iter_mut().find(|o| o.up == up)
    }

    /// The offer that a stream belongs to, unless it has ended.
    pub(super) fn offer_of(&mut self, link: Link) -> Option<&mut Offer> {
        self.offers.iter_mut().find(|o| o.number == link.offer)
    }

    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// Whether its items come from publishers, so that they cannot be requested but only awaited.
    pub(super) fn is_published(&self) -> bool {
        self.published
    }

    pub(super) fn is_up(&self) -> bool {
        self.offers.iter().any(Offer::is_up)
    }

    /// Whether an upstream takes requests: an interactive provider that is up and accepts them.
    pub(super) fn takes_requests(&self) -> bool {
        self.offers.iter().any(|o| !o.publishes && o.is_usable())
    }

    pub(super) fn queue(&self, queue: Queue) -> &VecDeque<(ItemId, u32)> {
        match queue {
            Queue::Consumers => &self.consumer_queue,
            Queue::Recovery => &self.recovery_queue,
        }
    }

    pub(super) fn queue_mut(&mut self, queue: Queue) -> &mut VecDeque<(ItemId, u32)> {
        match queue {
            Queue::Consumers => &mut self.consumer_queue,
            Queue::Recovery => &mut self.recovery_queue,
        }
    }

    /// Chooses the upstream for a request: the one of the last request, else the least loaded, else the lowest id.
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
            None => Pick::Unavailable,
        }
    }

    /// Whether the service offers this domain.
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

    /// The common description of all offers.
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
                // Without an offer requests wait at the hub. Published items are served by the hub, although stock
                // publishers announce that they accept no requests: that holds for themselves.
                accepting: self.offers.is_empty()
                    || self
                        .offers
                        .iter()
                        .any(|o| o.publishes || o.listed.state.as_ref().is_some_and(|s| s.accepting)),
                status: None,
            }),
            groups: Vec::new(),
            // Windows and limits apply between the upstream and this hub; the sides have their own.
            load: load_factor.map(|f| Load { load_factor: Some(f), ..Load::default() }),
            links: from.links.clone(),
        }
    }
}

/// The service has no quality of service that the request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSuchQos;

/// Chooses the quality of service for a request that accepts anything from `best` to `worst`. `None`: the best
/// of the service, so that requests with and without a quality share one item.
///
/// # Errors
/// The service offers no such quality.
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
    let is_best = offered.iter().map(Qos::order).min() == Some(chosen.order());
    Ok((!is_best).then_some(*chosen))
}

/// All services of a hub.
#[derive(Debug, Default)]
pub(super) struct Services {
    pub(super) list: Vec<Service>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<u16, usize>,
    /// Number of the next offer.
    next_offer: u32,
    directory: Arc<Directory>,
}

impl Services {
    pub(super) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// A number for an offer; larger than those of all earlier ones.
    pub(super) fn next_offer(&mut self) -> u32 {
        self.next_offer += 1;
        self.next_offer
    }

    /// The place in `list` of the service with this id.
    pub(super) fn index(&self, id: u16) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn by_id(&mut self, id: u16) -> Option<&mut Service> {
        let at = self.index(id)?;
        self.list.get_mut(at)
    }

    /// The place of the service that has this id at the upstream `up`.
    pub(super) fn offered(&self, up: UpstreamId, service_id: u16) -> Option<usize> {
        self.list.iter().position(|s| s.offers.iter().any(|o| o.up == up && o.listed.id == service_id))
    }

    /// The place of the service with this name. A new one gets the id `preferred`, if that is free. `None`: there are
    /// [`MAX_SERVICES`] already.
    pub(super) fn named(&mut self, name: &str, preferred: u16, cached: bool) -> Option<usize> {
        if let Some(at) = self.by_name.get(name) {
            return Some(*at);
        }
        if self.list.len() >= MAX_SERVICES {
            return None;
        }
        let mut id = preferred;
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
            consumer_queue: VecDeque::new(),
            recovery_queue: VecDeque::new(),
            recovering: 0,
            cached,
            published: false,
            awaited: 0,
        });
        self.by_name.insert(name.to_owned(), at);
        self.by_id.insert(id, at);
        Some(at)
    }

    /// Builds the directory again; returns whether it changed. `deleted` are the services that their last upstream
    /// removed.
    pub(super) fn rebuild_directory(&mut self, deleted: &[usize]) -> bool {
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
