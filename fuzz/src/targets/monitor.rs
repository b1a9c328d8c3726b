//! The overlapping-ring monitor, fed with records of peers.

use utipc_core::NodeAddr;
use utipc_core::monitor::{Monitor, MonitorSession};
use utipc_core::wire::DomainRecord;

use crate::source::Source;
use crate::{Seen, magnitude};

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut source = Source::new(data);
    let mut monitor = Monitor::new(NodeAddr(100), source.below(16));
    let mut sessions = [MonitorSession::default(); 16];
    while !source.is_empty() {
        let who = source.below(16);
        let peer = NodeAddr(93 + who as u32);
        match source.below(8) {
            0 | 1 => monitor.peer_up(peer),
            2 => {
                monitor.peer_down(peer);
                sessions[who] = MonitorSession::default();
            }
            3 => monitor.remove_peer(peer),
            4 => {
                let result = monitor.receive(peer, &mut sessions[who], source.bytes(40));
                seen.note(("raw", result.is_ok()));
            }
            5 | 6 => {
                let members = (0..source.below(20)).map(|_| NodeAddr(93 + source.below(18) as u32)).collect();
                let record = DomainRecord {
                    generation: source.u8().into(),
                    acked_generation: source.u8().into(),
                    up_map: (u64::from(source.u16()) << 48) | u64::from(source.u16()),
                    members,
                };
                let result = monitor.receive(peer, &mut sessions[who], &record.to_bytes());
                assert!(result.is_ok(), "{result:?}");
            }
            _ => monitor.set_threshold(source.below(16)),
        }
        let verdict = monitor.verdict(peer, &mut sessions[who]);
        seen.note((verdict.supervised, verdict.probing, verdict.reset, monitor.is_active()));
        let record = monitor.record(&sessions[who]);
        assert!(record.is_empty() || DomainRecord::parse(&record).is_ok(), "{record:02x?}");
        seen.note(("record", magnitude(record.len())));
    }
}
