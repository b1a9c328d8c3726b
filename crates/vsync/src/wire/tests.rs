use utipc_core::Rng;

use super::*;
use crate::view::{Seat, View};

fn ballot(round: u64) -> Ballot {
    Ballot { round, coordinator: MemberId(7) }
}

fn view() -> View {
    let seat = |n| Seat { id: MemberId(n), weight: n as u16 };
    View { id: ballot(4), seats: vec![seat(1), seat(2), seat(3)] }
}

fn hello() -> Hello {
    Hello {
        config: 9,
        round: 5,
        view: ballot(4),
        rank: 1,
        weight: 2,
        reaches: vec![MemberId(1)],
        ..Hello::default()
    }
}

fn proposal() -> Proposal {
    let cut = Cut {
        view: ballot(4),
        together: vec![MemberId(1), MemberId(2)],
        from: 6,
        runs: vec![Run { rank: 1, count: 3 }],
        ends: vec![3, 6, 0],
    };
    Proposal { view: view(), cuts: vec![cut], joining: vec![MemberId(3)] }
}

fn status() -> Status {
    let runs = vec![Run { rank: 2, count: 1 }];
    let report = Report { stable: 2, base: vec![1, 1, 0], received: vec![3, 2, 1], contiguous: 3, runs };
    Status { hello: hello(), view: Some(view()), accepted: Some((ballot(6), proposal())), report }
}

fn packet() -> Vec<u8> {
    let mut bytes = vec![0; DATA_HEADER];
    bytes.extend_from_slice(&[0, 0, 0, 2, 8, 9, 0, 0, 0, 0]);
    finish_data(bytes, &DataHeader { class: Class::Safe, view: ballot(4), number: 3, ack: 2 }).to_vec()
}

fn examples() -> Vec<Message<'static>> {
    let runs = vec![Run { rank: 0, count: 2 }, Run { rank: 5, count: 1 }];
    vec![
        Message::Hello(hello()),
        Message::Collect { ballot: ballot(1) },
        Message::Status { ballot: ballot(1), status: status().into() },
        Message::Refuse { ballot: ballot(1), round: 8, refusal: Refusal::Outdated },
        Message::Propose { ballot: ballot(6), proposal: proposal().into(), holders: vec![MemberId(2)] },
        Message::Accepted { ballot: ballot(6) },
        Message::NoMajority { ballot: ballot(6) },
        Message::Fetch { view: ballot(4), rank: 2, after: 3, end: 5 },
        Message::Relay { rank: 2, packet: b"packet" },
        Message::Order { view: ballot(4), first: 9, stable: 4, runs },
        Message::Ack { view: ballot(4), place: 10 },
        Message::Chunk { view: ballot(4), index: 1, last: true, bytes: b"state" },
        Message::ChunkAck { view: ballot(4), taken: 2 },
        Message::Bye,
    ]
}

#[test]
fn messages_survive_encoding() {
    for message in examples() {
        assert_eq!(Message::parse(&message.encode()), Ok(message));
    }
    let header = DataHeader { class: Class::Safe, view: ballot(4), number: 3, ack: 2 };
    assert_eq!(Message::parse(&packet()), Ok(Message::Data(header)));
}

#[test]
fn messages_of_a_packet_are_found_in_order() {
    let bytes = packet();
    let first = next_message(&bytes, DATA_HEADER).unwrap();
    assert_eq!(&bytes[first.clone()], &[8, 9]);
    let second = next_message(&bytes, first.end).unwrap();
    assert!(second.is_empty());
    assert_eq!(next_message(&bytes, second.end), None);
}

#[test]
fn truncated_and_extended_messages_are_refused() {
    let open = |message: &Message<'_>| matches!(message, Message::Relay { .. } | Message::Chunk { .. });
    for message in examples() {
        let bytes = message.encode();
        for len in 0..bytes.len() {
            let parsed = Message::parse(&bytes[..len]);
            assert!(parsed.is_err() || open(&message), "{message:?} of {len} bytes");
        }
        let extended = [&bytes[..], &[0]].concat();
        assert!(Message::parse(&extended).is_err() || open(&message), "{message:?}");
    }
}

#[test]
fn other_versions_and_kinds_are_refused_by_name() {
    assert_eq!(Message::parse(&[2, 1, 0, 0]), Err(WireError::Version(2)));
    assert_eq!(Message::parse(&[VERSION, 99, 0, 0]), Err(WireError::Kind(99)));
}

#[test]
fn lists_beyond_their_limits_are_refused() {
    let long = Message::Hello(Hello { reaches: vec![MemberId(1); 65], ..hello() });
    assert_eq!(Message::parse(&long.encode()), Err(WireError::TooLong));
    let runs = vec![Run { rank: 0, count: u16::MAX }];
    let order = Message::Order { view: ballot(4), first: 1, stable: 0, runs };
    assert_eq!(Message::parse(&order.encode()), Err(WireError::TooLong));
    let chunk = Message::Chunk { view: ballot(1), index: 0, last: false, bytes: &[0; MAX_CHUNK + 1] };
    assert_eq!(Message::parse(&chunk.encode()), Err(WireError::TooLong));
}

#[test]
fn largest_control_messages_fit_a_message_of_the_transport() {
    let seats = (0..64).map(|n| Seat { id: MemberId(n), weight: 1 }).collect();
    let members: Vec<MemberId> = (0..64).map(MemberId).collect();
    let runs = vec![Run { rank: 1, count: 1 }; change::MAX_RUNS];
    let view = View { id: ballot(4), seats };
    let cut =
        Cut { view: view.id, together: members.clone(), from: 1, runs: runs.clone(), ends: vec![1; 64] };
    let proposal = Proposal { view: view.clone(), cuts: vec![cut; MAX_CUTS], joining: members.clone() };
    let counts = vec![1; 64];
    let report = Report { stable: 1, base: counts.clone(), received: counts, contiguous: 1, runs };
    let hello = Hello { reaches: members.clone(), view: view.id, ..hello() };
    let status = Status { hello, view: Some(view), accepted: Some((ballot(5), proposal.clone())), report };
    let status = Message::Status { ballot: ballot(6), status: status.into() }.encode();
    assert!(Message::parse(&status).is_ok());
    assert!(status.len() <= 66_000, "{}", status.len());
    let propose =
        Message::Propose { ballot: ballot(6), proposal: proposal.into(), holders: members }.encode();
    assert!(propose.len() <= 66_000, "{}", propose.len());
}

/// Any bytes are parsed or refused, and what is parsed survives encoding.
#[test]
fn damaged_messages_never_panic() {
    let mut rng = Rng::new(1);
    let mut samples: Vec<Vec<u8>> = examples().iter().map(Message::encode).collect();
    samples.push(packet());
    let mut parsed = 0;
    for _ in 0..100_000 {
        let mut bytes = samples[rng.below(samples.len() as u64) as usize].clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = if rng.below(2) == 0 { rng.next_u32() as u8 } else { bytes[at] ^ 1 << rng.below(8) };
        }
        bytes.truncate(bytes.len() - rng.below(2) as usize * rng.below(bytes.len() as u64) as usize);
        if let Ok(message) = Message::parse(&bytes) {
            parsed += 1;
            if !matches!(message, Message::Data(_)) {
                assert_eq!(message.encode(), bytes);
            }
        }
    }
    assert!(parsed > 10_000, "{parsed}");
}
