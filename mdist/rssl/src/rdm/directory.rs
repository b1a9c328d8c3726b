//! The source directory: services, their capabilities and states. Spec: rssl.md §5.2

use super::{elements, wrong};
use crate::Result;
use crate::rwf::{
    Array, DataType, Element, ElementListWriter, FilterAction, FilterList, FilterListWriter, Map, MapAction,
    MapWriter, OwnedState, Qos, State, uint as number,
};
use crate::wire::Writer;

/// Bits of a request's filter: the requested parts of services.
pub mod filter {
    /// Name, capabilities, dictionaries.
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
    /// All parts that this module supports.
    pub const ALL: u32 = INFO | STATE | GROUP | LOAD | LINK;
}

/// Ids of the parts in messages.
const INFO: u8 = 1;
const STATE: u8 = 2;
const GROUP: u8 = 3;
const LOAD: u8 = 4;
const LINK: u8 = 6;

/// The action of a message on a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Parts of the service changed.
    Update,
    /// The service is added, or replaced, with the parts of this message.
    Add,
    /// The service is removed.
    Delete,
}

/// One service. Absent parts were not received, or are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Id in keys, valid on this connection only.
    pub id: u16,
    /// Description.
    pub info: Option<Info>,
    /// State.
    pub state: Option<ServiceState>,
    /// Change of an item group.
    pub groups: Vec<GroupStatus>,
    /// Limits.
    pub load: Option<Load>,
    /// Communication links; also empty if they were not received.
    pub links: Vec<Link>,
}

crate::with_defaults! {
    /// Description of a service.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Info {
        /// Name, which identifies it.
        pub name: String = String::new(),
        /// Vendor.
        pub vendor: String = String::new(),
        /// Whether the service comes from the original publisher.
        pub is_source: bool = false,
        /// Ids of its domains.
        pub capabilities: Vec<u8> = Vec::new(),
        /// Names of the dictionaries that it provides.
        pub dictionaries_provided: Vec<String> = Vec::new(),
        /// Names of the dictionaries that its data use.
        pub dictionaries_used: Vec<String> = Vec::new(),
        /// Qualities of service that it offers.
        pub qos: Vec<Qos> = vec![Qos::REALTIME_TICK],
        /// Whether requests may give a range of qualities.
        pub supports_qos_range: bool = false,
        /// Name of the symbol list with its items.
        pub item_list: String = String::new(),
        /// Whether the service accepts snapshot requests beyond its limits.
        pub supports_oob_snapshots: bool = true,
        /// Whether the service accepts messages about the state of consumers.
        pub accepting_consumer_status: bool = true,
    }
}

crate::with_defaults! {
    /// State of a service.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ServiceState {
        /// Whether the source is reachable.
        pub up: bool = false,
        /// Whether the service accepts requests.
        pub accepting: bool = true,
        /// State for all of its open items.
        pub status: Option<OwnedState> = None,
    }
}

/// Change of an item group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Id of the group.
    pub group: Vec<u8>,
    /// New group of its items.
    pub merged_to: Option<Vec<u8>>,
    /// State for all of its items.
    pub status: Option<OwnedState>,
}

/// Limits of a service; absent: unlimited, or not received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Open items per client.
    pub open_limit: Option<u64>,
    /// Unanswered requests per client; 0: send no requests.
    pub open_window: Option<u64>,
    /// Load factor; 0 is the least.
    pub load_factor: Option<u64>,
}

/// A communication link of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// The service is removed.
    pub gone: bool,
    /// Whether it is a broadcast link.
    pub broadcast: bool,
    /// Whether it is up.
    pub up: bool,
    /// 0 none, 1 ok, 2 recovery started, 3 recovery completed.
    pub code: u64,
    /// Explanation.
    pub text: String,
}

/// Reads the payload of a directory refresh or update: the services with the parts present. Unknown parts are skipped.
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
            // A Clear removes all limits, as if none had been received.
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

/// Writes the payload of a directory refresh: all services with the parts in `filter`.
///
/// # Errors
/// [`crate::Error::Full`], or texts that are too long.
pub fn encode_all(w: &mut Writer<'_>, filter: u32, services: &[Service]) -> Result<()> {
    write(w, filter, services.iter().map(|service| (Action::Add, service)))
}

/// Writes the payload of a directory refresh or update: the parts of each service that are present and in `filter`.
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
    // Stock examples use the first one without checking that it exists.
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

/// Name of the generic message in which a distributor reports to a provider which of its services are active.
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
    fn services_round_trip_with_the_parts_in_the_filter() {
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
    fn every_prefix_is_an_error() {
        let payload = to_vec(|w| encode_all(w, filter::ALL, &[whole()])).unwrap();
        for n in 1..payload.len() {
            assert!(decode(&payload[..n]).is_err(), "{n}");
        }
    }

    #[test]
    fn consumer_status_round_trips() {
        let payload = to_vec(|w| encode_consumer_status(w, &[(1, 2), (500, 0)])).unwrap();
        assert_eq!(consumer_status(&payload), Ok(vec![(1, 2), (500, 0)]));
    }
}
