//! The source directory: which services there are, and what they can do. Spec: rssl.md §5.2

use super::{elements, wrong};
use crate::Result;
use crate::rwf::{
    Array, DataType, Element, ElementListWriter, FilterAction, FilterList, FilterListWriter, Map, MapAction,
    MapWriter, OwnedState, Qos, State, uint as number,
};
use crate::wire::Writer;

/// Bits of a request's filter: which parts of services it wants.
pub mod filter {
    /// Name, abilities, dictionaries.
    pub const INFO: u32 = 0x01;
    /// Up or down.
    pub const STATE: u32 = 0x02;
    /// Changes of item groups.
    pub const GROUP: u32 = 0x04;
    /// Limits.
    pub const LOAD: u32 = 0x08;
    /// Anything else.
    pub const DATA: u32 = 0x10;
    /// Communication links.
    pub const LINK: u32 = 0x20;
    /// All that this module reads and writes.
    pub const ALL: u32 = INFO | STATE | GROUP | LOAD | LINK;
}

/// Ids of these parts in messages.
const INFO: u8 = 1;
const STATE: u8 = 2;
const GROUP: u8 = 3;
const LOAD: u8 = 4;
const LINK: u8 = 6;

/// What a message says about a service as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Parts of it changed.
    Update,
    /// It is there, with all that is told of it.
    Add,
    /// It is gone.
    Delete,
}

/// One service. Parts that are not there were not told (or are not to be told).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Number by which keys name it, on this connection only.
    pub id: u16,
    /// What it is.
    pub info: Option<Info>,
    /// Whether it works.
    pub state: Option<ServiceState>,
    /// What happened to groups of its items.
    pub groups: Vec<GroupStatus>,
    /// What it can bear.
    pub load: Option<Load>,
    /// Its communication links; empty also if they were not told.
    pub links: Vec<Link>,
}

/// What a service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name: its identity.
    pub name: String,
    /// Who provides it.
    pub vendor: String,
    /// It comes from the original publisher.
    pub is_source: bool,
    /// Numbers of the domains that it has.
    pub capabilities: Vec<u8>,
    /// Names of the dictionaries that can be asked for from it.
    pub dictionaries_provided: Vec<String>,
    /// Names of the dictionaries that its data need.
    pub dictionaries_used: Vec<String>,
    /// Qualities of service that it offers.
    pub qos: Vec<Qos>,
    /// Requests may give a range of qualities.
    pub supports_qos_range: bool,
    /// Name of the symbol list with its items.
    pub item_list: String,
    /// It takes requests for snapshots beyond its limits.
    pub supports_oob_snapshots: bool,
    /// It takes messages about the state of consumers.
    pub accepting_consumer_status: bool,
}

impl Default for Info {
    fn default() -> Self {
        Info {
            name: String::new(),
            vendor: String::new(),
            is_source: false,
            capabilities: Vec::new(),
            dictionaries_provided: Vec::new(),
            dictionaries_used: Vec::new(),
            qos: vec![Qos::REALTIME_TICK],
            supports_qos_range: false,
            item_list: String::new(),
            supports_oob_snapshots: true,
            accepting_consumer_status: true,
        }
    }
}

/// Whether a service works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceState {
    /// Its source is reachable.
    pub up: bool,
    /// It takes requests.
    pub accepting: bool,
    /// A state for all of its items that were answered before.
    pub status: Option<OwnedState>,
}

impl Default for ServiceState {
    fn default() -> Self {
        ServiceState { up: false, accepting: true, status: None }
    }
}

/// What happened to a group of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// The group's id.
    pub group: Vec<u8>,
    /// The group that its items belong to from now on.
    pub merged_to: Option<Vec<u8>>,
    /// A state for all of its items.
    pub status: Option<OwnedState>,
}

/// What a service can bear; absent: not limited, or not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Items that a client may have open.
    pub open_limit: Option<u64>,
    /// Requests that a client may have unanswered; 0: send none.
    pub open_window: Option<u64>,
    /// How busy it is, 0 least.
    pub load_factor: Option<u64>,
}

/// A communication link of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// It is gone.
    pub gone: bool,
    /// It only broadcasts.
    pub broadcast: bool,
    /// It is up.
    pub up: bool,
    /// 0 none, 1 ok, 2 recovery started, 3 recovery completed.
    pub code: u64,
    /// Explanation.
    pub text: String,
}

/// Reads the payload of a directory refresh or update: for each service the parts that it tells. Parts that this module
/// does not know are skipped.
///
/// # Errors
/// Content that is cut short or of another kind, a service id above 65535, an info without a name.
pub fn decode(payload: &[u8]) -> Result<Vec<(Action, Service)>> {
    let map = Map::decode(payload)?;
    let mut services = Vec::new();
    for entry in map.entries() {
        let entry = entry?;
        let id =
            number::decode(entry.key)?.and_then(|id| u16::try_from(id).ok()).ok_or(wrong("service id"))?;
        let action = match entry.action {
            MapAction::Update => Action::Update,
            MapAction::Add => Action::Add,
            MapAction::Delete => Action::Delete,
        };
        let mut service = Service { id, ..Service::default() };
        if action != Action::Delete {
            if map.container != DataType::FILTER_LIST {
                return Err(wrong("container of services"));
            }
            parts(entry.data, &mut service)?;
        }
        services.push((action, service));
    }
    Ok(services)
}

fn parts(bytes: &[u8], service: &mut Service) -> Result<()> {
    for entry in FilterList::decode(bytes)?.entries() {
        let entry = entry?;
        let clear = entry.action == FilterAction::Clear;
        match (entry.id, entry.container) {
            // What clears limits sets none.
            (LOAD, _) if clear => service.load = Some(Load::default()),
            _ if clear => {}
            (INFO, DataType::ELEMENT_LIST) => service.info = Some(info(entry.data)?),
            (STATE, DataType::ELEMENT_LIST) => service.state = Some(state(entry.data)?),
            (GROUP, DataType::ELEMENT_LIST) => service.groups.push(group(entry.data)?),
            (LOAD, DataType::ELEMENT_LIST) => service.load = Some(load(entry.data)?),
            (LINK, DataType::MAP) => service.links = links(entry.data)?,
            _ => {}
        }
    }
    Ok(())
}

fn text(element: &Element<'_>) -> String {
    String::from_utf8_lossy(element.data).into_owned()
}

fn array<T>(element: &Element<'_>, mut f: impl FnMut(&[u8]) -> Result<Option<T>>) -> Result<Vec<T>> {
    if element.data_type != DataType::ARRAY {
        return Err(wrong("array"));
    }
    let items = Array::decode(element.data)?.items();
    items.filter_map(|item| item.and_then(&mut f).transpose()).collect()
}

fn strings(element: &Element<'_>) -> Result<Vec<String>> {
    array(element, |item| Ok(Some(String::from_utf8_lossy(item).into_owned())))
}

fn info(bytes: &[u8]) -> Result<Info> {
    let mut info = Info::default();
    let mut named = false;
    elements(bytes, |e| {
        let flag = |place: &mut bool| *place = e.uint().map_or(*place, |n| n != 0);
        match e.name {
            b"Name" => {
                info.name = text(e);
                named = true;
            }
            b"Vendor" => info.vendor = text(e),
            b"IsSource" => flag(&mut info.is_source),
            // Domains above 255 do not exist.
            b"Capabilities" => {
                info.capabilities =
                    array(e, |item| Ok(number::decode(item)?.and_then(|n| u8::try_from(n).ok())))?;
            }
            b"DictionariesProvided" => info.dictionaries_provided = strings(e)?,
            b"DictionariesUsed" => info.dictionaries_used = strings(e)?,
            b"QoS" => info.qos = array(e, Qos::decode)?,
            b"SupportsQoSRange" => flag(&mut info.supports_qos_range),
            b"ItemList" => info.item_list = text(e),
            b"SupportsOutOfBandSnapshots" => flag(&mut info.supports_oob_snapshots),
            b"AcceptingConsumerStatus" => flag(&mut info.accepting_consumer_status),
            _ => {}
        }
        Ok(())
    })?;
    if named { Ok(info) } else { Err(wrong("service without a name")) }
}

fn status(element: &Element<'_>) -> Result<Option<OwnedState>> {
    Ok(State::decode(element.data)?.map(|state| state.to_owned()))
}

fn state(bytes: &[u8]) -> Result<ServiceState> {
    let mut state = ServiceState::default();
    elements(bytes, |e| {
        match e.name {
            b"ServiceState" => state.up = e.uint().unwrap_or(0) != 0,
            b"AcceptingRequests" => state.accepting = e.uint().unwrap_or(1) != 0,
            b"Status" => state.status = status(e)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(state)
}

fn group(bytes: &[u8]) -> Result<GroupStatus> {
    let mut group = GroupStatus::default();
    elements(bytes, |e| {
        match e.name {
            b"Group" => group.group = e.data.to_vec(),
            b"MergedToGroup" => group.merged_to = Some(e.data.to_vec()),
            b"Status" => group.status = status(e)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(group)
}

fn load(bytes: &[u8]) -> Result<Load> {
    let mut load = Load::default();
    elements(bytes, |e| {
        match e.name {
            b"OpenLimit" => load.open_limit = e.uint(),
            b"OpenWindow" => load.open_window = e.uint(),
            b"LoadFactor" => load.load_factor = e.uint(),
            _ => {}
        }
        Ok(())
    })?;
    Ok(load)
}

fn links(bytes: &[u8]) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    for entry in Map::decode(bytes)?.entries() {
        let entry = entry?;
        let name = String::from_utf8_lossy(entry.key).into_owned();
        let mut link = Link { name, gone: entry.action == MapAction::Delete, ..Link::default() };
        elements(entry.data, |e| {
            match e.name {
                b"Type" => link.broadcast = e.uint() == Some(2),
                b"LinkState" => link.up = e.uint().unwrap_or(0) != 0,
                b"LinkCode" => link.code = e.uint().unwrap_or(0),
                b"Text" => link.text = text(e),
                _ => {}
            }
            Ok(())
        })?;
        links.push(link);
    }
    Ok(links)
}

/// Writes the payload of a directory refresh: all services, as far as `filter` wants them.
///
/// # Errors
/// [`crate::Error::Full`], or texts that are too long.
pub fn encode_all(w: &mut Writer<'_>, filter: u32, services: &[Service]) -> Result<()> {
    write(w, filter, services.iter().map(|service| (Action::Add, service)))
}

/// Writes the payload of a directory refresh or update: of each service the parts that it has and `filter` wants.
///
/// # Errors
/// As [`encode_all`].
pub fn encode(w: &mut Writer<'_>, filter: u32, services: &[(Action, Service)]) -> Result<()> {
    write(w, filter, services.iter().map(|(action, service)| (*action, service)))
}

fn write<'a>(
    w: &mut Writer<'_>,
    filter: u32,
    services: impl Iterator<Item = (Action, &'a Service)>,
) -> Result<()> {
    let mut map = MapWriter::new(w, DataType::UINT, DataType::FILTER_LIST)?;
    for (action, service) in services {
        let action = match action {
            Action::Update => MapAction::Update,
            Action::Add => MapAction::Add,
            Action::Delete => MapAction::Delete,
        };
        map.uint_entry(action, service.id.into(), |w| write_parts(w, filter, service))?;
    }
    map.finish()
}

fn write_parts(w: &mut Writer<'_>, wanted: u32, service: &Service) -> Result<()> {
    let mut list = FilterListWriter::new(w, DataType::ELEMENT_LIST)?;
    if let Some(info) = service.info.as_ref().filter(|_| wanted & filter::INFO != 0) {
        list.entry(FilterAction::Set, INFO, |w| write_info(w, info))?;
    }
    if let Some(state) = service.state.as_ref().filter(|_| wanted & filter::STATE != 0) {
        list.entry(FilterAction::Set, STATE, |w| {
            let mut list = ElementListWriter::new(w)?;
            list.uint("ServiceState", state.up.into())?;
            list.uint("AcceptingRequests", state.accepting.into())?;
            if let Some(status) = &state.status {
                list.state("Status", &status.borrow())?;
            }
            list.finish()
        })?;
    }
    if wanted & filter::GROUP != 0 {
        for group in &service.groups {
            list.entry(FilterAction::Update, GROUP, |w| {
                let mut list = ElementListWriter::new(w)?;
                list.buffer("Group", &group.group)?;
                if let Some(to) = &group.merged_to {
                    list.buffer("MergedToGroup", to)?;
                }
                if let Some(status) = &group.status {
                    list.state("Status", &status.borrow())?;
                }
                list.finish()
            })?;
        }
    }
    if let Some(load) = service.load.filter(|_| wanted & filter::LOAD != 0) {
        list.entry(FilterAction::Set, LOAD, |w| {
            let mut list = ElementListWriter::new(w)?;
            for (name, value) in [
                ("OpenLimit", load.open_limit),
                ("OpenWindow", load.open_window),
                ("LoadFactor", load.load_factor),
            ] {
                if let Some(value) = value {
                    list.uint(name, value)?;
                }
            }
            list.finish()
        })?;
    }
    if !service.links.is_empty() && wanted & filter::LINK != 0 {
        list.entry_with(FilterAction::Set, LINK, DataType::MAP, None, |w| write_links(w, &service.links))?;
    }
    list.finish()
}

fn write_info(w: &mut Writer<'_>, info: &Info) -> Result<()> {
    let mut list = ElementListWriter::new(w)?;
    list.ascii("Name", &info.name)?;
    if !info.vendor.is_empty() {
        list.ascii("Vendor", &info.vendor)?;
    }
    list.uint("IsSource", info.is_source.into())?;
    let capabilities: Vec<u64> = info.capabilities.iter().map(|domain| u64::from(*domain)).collect();
    list.array_uint("Capabilities", &capabilities)?;
    if !info.dictionaries_provided.is_empty() {
        list.array_ascii("DictionariesProvided", &info.dictionaries_provided)?;
    }
    if !info.dictionaries_used.is_empty() {
        list.array_ascii("DictionariesUsed", &info.dictionaries_used)?;
    }
    // Stock examples take the first without looking whether there is one.
    let default = [Qos::REALTIME_TICK];
    list.array_qos("QoS", if info.qos.is_empty() { &default } else { &info.qos })?;
    list.uint("SupportsQoSRange", info.supports_qos_range.into())?;
    if !info.item_list.is_empty() {
        list.ascii("ItemList", &info.item_list)?;
    }
    list.uint("SupportsOutOfBandSnapshots", info.supports_oob_snapshots.into())?;
    list.uint("AcceptingConsumerStatus", info.accepting_consumer_status.into())?;
    list.finish()
}

fn write_links(w: &mut Writer<'_>, links: &[Link]) -> Result<()> {
    let mut map = MapWriter::new(w, DataType::ASCII_STRING, DataType::ELEMENT_LIST)?;
    for link in links {
        let action = if link.gone { MapAction::Delete } else { MapAction::Add };
        map.entry(action, link.name.as_bytes(), |w| {
            let mut list = ElementListWriter::new(w)?;
            list.uint("Type", if link.broadcast { 2 } else { 1 })?;
            list.uint("LinkState", link.up.into())?;
            list.uint("LinkCode", link.code)?;
            list.ascii("Text", &link.text)?;
            list.finish()
        })?;
    }
    map.finish()
}

/// Name of the generic message by which a distributor tells a provider which of its services serve actively.
pub const CONSUMER_STATUS: &[u8] = b"ConsumerStatus";

/// Reads the payload of [`CONSUMER_STATUS`]: service ids and their mode (0 active without standby, 1 active with
/// standby, 2 standby).
///
/// # Errors
/// Content that is cut short, or a service id above 65535.
pub fn consumer_status(payload: &[u8]) -> Result<Vec<(u16, u64)>> {
    let mut services = Vec::new();
    for entry in Map::decode(payload)?.entries() {
        let entry = entry?;
        let id =
            number::decode(entry.key)?.and_then(|id| u16::try_from(id).ok()).ok_or(wrong("service id"))?;
        elements(entry.data, |e| {
            if e.name == b"SourceMirroringMode" {
                services.push((id, e.uint().unwrap_or(0)));
            }
            Ok(())
        })?;
    }
    Ok(services)
}

/// Writes the payload of [`CONSUMER_STATUS`].
///
/// # Errors
/// [`crate::Error::Full`].
pub fn encode_consumer_status(w: &mut Writer<'_>, services: &[(u16, u64)]) -> Result<()> {
    let mut map = MapWriter::new(w, DataType::UINT, DataType::ELEMENT_LIST)?;
    for (id, mode) in services {
        map.uint_entry(MapAction::Add, (*id).into(), |w| {
            let mut list = ElementListWriter::new(w)?;
            list.uint("SourceMirroringMode", *mode)?;
            list.finish()
        })?;
    }
    map.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rwf::{DataState, StreamState};
    use crate::wire::to_vec;

    fn whole() -> Service {
        let status = State::new(StreamState::Open, DataState::Suspect, 0, b"down").to_owned();
        Service {
            id: 300,
            info: Some(Info {
                name: "DIRECT_FEED".to_owned(),
                vendor: "v".to_owned(),
                is_source: true,
                capabilities: vec![5, 6, 200],
                dictionaries_provided: vec!["RWFFld".to_owned()],
                dictionaries_used: vec!["RWFFld".to_owned(), "RWFEnum".to_owned()],
                item_list: "_ITEMS".to_owned(),
                accepting_consumer_status: false,
                ..Info::default()
            }),
            state: Some(ServiceState { up: true, accepting: false, status: Some(status.clone()) }),
            groups: vec![
                GroupStatus { group: vec![0, 1], merged_to: Some(vec![0, 2]), status: None },
                GroupStatus { group: vec![0, 3], merged_to: None, status: Some(status) },
            ],
            load: Some(Load { open_limit: Some(1000), open_window: Some(0), load_factor: None }),
            links: vec![Link {
                name: "l".to_owned(),
                up: true,
                code: 1,
                text: "t".to_owned(),
                ..Link::default()
            }],
        }
    }

    #[test]
    fn services_come_back_as_far_as_they_are_wanted() {
        let gone = Service { id: 7, ..Service::default() };
        let services = [(Action::Add, whole()), (Action::Update, whole()), (Action::Delete, gone)];
        let payload = to_vec(|w| encode(w, filter::ALL, &services)).unwrap();
        assert_eq!(decode(&payload).unwrap(), services);
        let payload = to_vec(|w| encode_all(w, filter::STATE | filter::LOAD, &[whole()])).unwrap();
        let some = Service { info: None, groups: vec![], links: vec![], ..whole() };
        assert_eq!(decode(&payload).unwrap(), [(Action::Add, some)]);
        let none = to_vec(|w| encode_all(w, filter::ALL, &[])).unwrap();
        assert_eq!(decode(&none).unwrap(), []);
        assert_eq!(decode(&[]).unwrap(), []);
    }

    #[test]
    fn every_cut_is_an_error_and_not_a_panic() {
        let payload = to_vec(|w| encode_all(w, filter::ALL, &[whole()])).unwrap();
        for n in 1..payload.len() {
            assert!(decode(&payload[..n]).is_err(), "{n}");
        }
    }

    #[test]
    fn consumer_status_comes_back() {
        let payload = to_vec(|w| encode_consumer_status(w, &[(1, 2), (500, 0)])).unwrap();
        assert_eq!(consumer_status(&payload), Ok(vec![(1, 2), (500, 0)]));
    }
}
