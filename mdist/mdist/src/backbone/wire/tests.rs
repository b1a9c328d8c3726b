use super::*;
use crate::backbone::SourceId;

fn records() -> Vec<Record> {
    let feed = FeedId(0x0102_0304);
    let answer = |kind, message: &[u8]| {
        Record::Answer(Answer { kind, feed, as_of: 1 << 40, stream: 5, item: -1, message: message.to_vec() })
    };
    vec![
        Record::Hello { version: VERSION, address: u64::MAX, name: "p2ps on host".into() },
        Record::Join { epoch: 7, feed },
        Record::Ask { reissue: false, in_feed: true, message: b"message".to_vec() },
        Record::Welcome { version: VERSION, sink: 9, sender: 1 << 40, name: String::new() },
        Record::Directory { feeds: vec![(1, feed), (65_535, FeedId(0))], payload: b"payload".to_vec() },
        Record::Dictionary { enums: true, first: false, last: true, payload: b"part".to_vec() },
        Record::Joined { epoch: 7, feed, number: u64::MAX, position: 3, window: 8 << 20 },
        answer(AnswerKind::Opened, b""),
        answer(AnswerKind::Image, b"part"),
        answer(AnswerKind::Complete, b"whole"),
        answer(AnswerKind::Notice, b"wait"),
        answer(AnswerKind::Reply, b"ack"),
        answer(AnswerKind::Refused, b"no"),
        Record::Cut { epoch: 2, why: "the window was full for 200 ms".into() },
        Record::Newest { feed, number: 12 },
    ]
}

#[test]
fn records_decode_as_encoded_and_truncation_is_detected() {
    for record in records() {
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Ok(record.clone()));
        for cut in 0..bytes.len() {
            // A cut inside the trailing message gives a shorter message: no panic, not the same record.
            assert_ne!(Record::decode(&bytes[..cut]), Ok(record.clone()));
        }
    }
    assert!(Record::decode(&[99]).unwrap_err().to_string().contains("kind 99"));
}

#[test]
fn entries_decode_as_encoded() {
    let long = vec![7; 70_000];
    let entries = [
        Entry::Message(b"update"),
        Entry::Message(&long[..65_534]),
        Entry::Message(&long[..65_535]),
        Entry::Message(&long),
        Entry::Message(b""),
        Entry::Gone { item: 5, message: b"status" },
        Entry::Gone { item: -1, message: b"" },
        Entry::Cut { sink: 1 << 31 },
        Entry::Image { sink: 3, stream: -5, complete: true, message: b"refresh" },
    ];
    let mut bytes = Vec::new();
    for entry in &entries {
        let before = bytes.len();
        entry.append(&mut bytes);
        assert_eq!(bytes.len() - before, entry.size());
    }
    let mut rest = bytes.as_slice();
    for entry in &entries {
        assert_eq!(Entry::take(&mut rest).as_ref(), Ok(entry));
    }
    assert!(rest.is_empty() && Entry::take(&mut rest).is_err());
}

#[test]
fn headers_decode_as_encoded_and_invalid_ones_are_refused() {
    let part = Some(Part { offset: 60_000, total: 100_000, last: true });
    for (part, unordered) in [(None, false), (part, false), (None, true), (part, true)] {
        let (source, feed) = (SourceId(1), FeedId(2));
        let header = Header { count: 3, source, feed, first: 4, position: 5, part, unordered: false };
        let mut bytes = header.encode();
        if unordered {
            mark_unordered(&mut bytes);
        }
        let header = Header { unordered, ..header };
        assert_eq!(header.encode(), bytes);
        assert_eq!(Header::decode(&bytes), Ok(header));
        for cut in 0..HEADER {
            assert!(Header::decode(&bytes[..cut]).is_err());
        }
    }
    let (source, feed, unordered) = (SourceId(1), FeedId(2), false);
    let header = Header { count: 9, source, feed, first: u64::MAX, position: 5, part: None, unordered };
    assert!(Header::decode(&header.encode()).is_err());
    assert!(Header::decode(&Header { first: 0, ..header }.encode()).is_err());
    assert!(Header::decode(&Header { first: 1, position: u64::MAX, ..header }.encode()).is_err());
    let credit = encode_credit(FeedId(8), 9);
    assert_eq!(decode_credit(&credit), Ok((FeedId(8), 9)));
    assert!(decode_credit(&credit[..12]).is_err() && decode_credit(&header.encode()).is_err());
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    for round in 0..20_000_usize {
        let mut bytes: Vec<u8> = (0..round % 90).map(|_| next()).collect();
        if let (Some(first), true) = (bytes.first_mut(), round % 2 == 0) {
            *first %= 24;
        }
        let _ = (Record::decode(&bytes), Header::decode(&bytes), decode_credit(&bytes));
        let mut rest = bytes.as_slice();
        while Entry::take(&mut rest).is_ok() {}
        let mut records = Records::default();
        records.put(&bytes);
        while let Ok(Some(_)) = records.take() {}
    }
}

#[test]
fn records_are_independent_of_piece_size() {
    let mut stream = Vec::new();
    let all = records();
    all.iter().for_each(|record| Records::append(&mut stream, &record.encode()));
    for size in [1, 2, 3, 7, 50, stream.len()] {
        let (mut records, mut got) = (Records::default(), Vec::new());
        for piece in stream.chunks(size) {
            records.put(piece);
            while let Some(record) = records.take().unwrap() {
                got.push(Record::decode(record).unwrap());
            }
        }
        assert_eq!(got, all);
    }
    let mut records = Records::default();
    records.put(&[255; 4]);
    assert!(records.take().is_err());
}
