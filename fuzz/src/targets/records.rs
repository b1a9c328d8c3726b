//! Records inside messages, without the message.

use utipc_core::wire::{
    ByteOrder, DomainRecord, GapRecord, KeyDistribution, MediaAddr, NAME_ITEM_LEN, NameItem, Subscription,
    TopologyEvent, User,
};
use utipc_core::{Message, NodeId, monitor};

use crate::{Seen, magnitude};

/// Offsets of records in captured packets: after the header, the media address of discovery, and at the start.
const OFFSETS: [usize; 3] = [0, 20, 40];

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    for at in OFFSETS {
        if let Some(record) = data.get(at..) {
            records(record, seen);
        }
    }
}

fn records(data: &[u8], seen: &mut Seen) {
    match GapRecord::parse(data) {
        Ok(gaps) => {
            seen.note(("gaps", magnitude(gaps.unicast.len()), magnitude(gaps.broadcast.len())));
            let again = GapRecord::new(&gaps.broadcast, &gaps.unicast);
            assert_eq!(GapRecord::parse(&again.to_bytes()).as_ref(), Ok(&again));
            seen.note(("rises", GapRecord::rises(0, 0, &gaps.unicast)));
        }
        Err(e) => seen.note(("gaps", core::mem::discriminant(&e))),
    }
    let record = DomainRecord::parse(data);
    assert_eq!(record.is_ok(), matches!(monitor::DomainRecord::parse(data), Ok(Some(_))));
    match record {
        Ok(record) => {
            assert_eq!(record.to_bytes(), data);
            seen.note(("domain", magnitude(record.members.len())));
        }
        Err(e) => seen.note(("domain", e.to_string().len())),
    }
    match MediaAddr::from_info(data) {
        Ok(address) => {
            assert_eq!(MediaAddr::from_info(&address.to_info()), Ok(address));
            seen.note(("media", address.to_string().len()));
        }
        Err(e) => seen.note(("media", core::mem::discriminant(&e))),
    }
    let key_message = Message::build(User::Crypto, 0, 40, data);
    if let Ok(key) = KeyDistribution::parse(key_message.view()) {
        assert!((20..=36).contains(&key.key.len()));
        seen.note(("key", key.key.len()));
    }
    for order in [ByteOrder::Big, ByteOrder::Little] {
        if let Ok(event) = TopologyEvent::from_bytes(data, order) {
            assert_eq!(event.to_bytes(order), data);
            seen.note(("event", event.kind as u8));
        }
        if let Some(bytes) = data.first_chunk::<28>() {
            assert_eq!(Subscription::from_bytes(bytes, order).to_bytes(order), *bytes);
        }
    }
    if let Some(bytes) = data.first_chunk::<NAME_ITEM_LEN>() {
        assert_eq!(NameItem::from_bytes(bytes).to_bytes(), *bytes);
    }
    if let Some(id) = data.first_chunk::<16>() {
        let id = NodeId(*id);
        assert!(id.to_string().len() <= 32);
        assert_eq!(id.trial_address().is_none(), id.is_none());
    }
}
