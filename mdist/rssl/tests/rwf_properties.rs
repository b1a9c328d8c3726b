//! Properties from fixed seeds: written values are read back equal, and no input makes a reader panic.

use common::random::Random;
use common::tree::{Round, Tree, round_trip};
use rssl::Error;
use rssl::rwf::sets::{write_field_sets, write_value};
use rssl::rwf::{
    DataType, FieldList, FieldListWriter, FieldSets, Message, NoNames, Printed, Refresh, Update, Value, peek,
    peek_payload, rmtes,
};
use rssl::wire::{Writer, to_vec};

mod common {
    pub(crate) mod random;
    pub(crate) mod tree;
}

/// The bytes of a container that fits the length field of its parent.
fn container(random: &mut Random) -> (DataType, Tree, Vec<u8>) {
    loop {
        let container = random.container();
        let tree = random.tree(container, 0);
        match to_vec(|w| tree.write(w)) {
            Ok(bytes) => return (container, tree, bytes),
            Err(Error::TooLong { .. }) => {}
            Err(e) => panic!("{e}: {tree:?}"),
        }
    }
}

#[test]
fn containers_round_trip() {
    let mut most = 0;
    for seed in 0..3000 {
        let (container, tree, bytes) = container(&mut Random::new(seed));
        let read = Tree::decode(container, &bytes).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(read, tree, "seed {seed}");
        let refresh = Refresh { container, payload: &bytes, ..Refresh::default() };
        let message = refresh.to_vec().unwrap();
        assert_eq!(round_trip(&message), Ok(Round { header: true, payload: true, saved: 0 }), "seed {seed}");
        // A buffer that is one byte too small, and one that is large enough.
        let mut exact = vec![0; message.len()];
        assert_eq!(refresh.encode(&mut Writer::new(&mut exact)), Ok(()));
        let n = exact.len() - 1;
        assert_eq!(refresh.encode(&mut Writer::new(&mut exact[..n])), Err(Error::Full));
        let again = tree.write(&mut Writer::new(&mut vec![0; bytes.len().saturating_sub(1)]));
        assert!(bytes.is_empty() || again == Err(Error::Full), "seed {seed}");
        most = most.max(bytes.len());
    }
    assert!(most > 2000, "the generator makes great containers too");
}

#[test]
fn set_values_round_trip() {
    let types: Vec<DataType> = (3..=19).filter(|id| ![7].contains(id)).chain(64..=84).map(DataType).collect();
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let definition: Vec<(i16, DataType)> =
            (0..random.below(9)).map(|_| (random.next() as i16, types[random.below(types.len())])).collect();
        let values: Vec<Vec<u8>> = definition
            .iter()
            .map(|(_, data_type)| {
                let narrow = match data_type.0 {
                    64..=71 => 1 << ((data_type.0 - 64) / 2),
                    _ => 8,
                };
                match data_type.base() {
                    // One bit less than the size, for the sign.
                    DataType::INT => rssl::rwf::int::to_bytes(random.signed() >> (64 - 8 * narrow)).to_vec(),
                    DataType::UINT => rssl::rwf::uint::to_bytes(random.next() >> (64 - 8 * narrow)).to_vec(),
                    DataType::REAL => {
                        let mut real = random.real();
                        real.mantissa >>= if *data_type == DataType::REAL_4RB { 33 } else { 0 };
                        real.to_bytes().to_vec()
                    }
                    _ => {
                        let n = [4, 8, 0, 0, 4, 3, 5, 7, 9, 11, 12, 7, 8]
                            .get(usize::from(data_type.0.wrapping_sub(72)))
                            .copied()
                            .unwrap_or_else(|| random.below(300));
                        (0..n).map(|_| random.next() as u8).collect()
                    }
                }
            })
            .collect();
        let id = random.below(16) as u16;
        let definitions = to_vec(|w| write_field_sets(w, &[(id, &definition)])).unwrap();
        let bytes = to_vec(|w| {
            let mut list = FieldListWriter::with_set(w, None, id, |w| {
                definition.iter().zip(&values).try_for_each(|((_, t), v)| write_value(w, *t, v))
            })?;
            list.uint(-1, 5)?;
            list.finish()
        })
        .unwrap();
        let sets = FieldSets::decode(&definitions).unwrap();
        let list = FieldList::decode(&bytes, Some(&sets)).unwrap();
        let mut fields = list.entries();
        for ((id, data_type), value) in definition.iter().zip(&values) {
            let field = fields.next().unwrap().unwrap();
            assert_eq!((field.id, field.set_type), (*id, *data_type), "seed {seed}");
            if matches!(data_type.base(), DataType::INT | DataType::UINT | DataType::REAL) {
                let (read, written) =
                    (Value::decode(*data_type, field.data), Value::decode(*data_type, value));
                assert_eq!(read, written, "seed {seed}");
            } else {
                assert_eq!(field.data, value, "seed {seed}");
            }
        }
        assert_eq!(fields.next().unwrap().map(|f| (f.id, f.data)), Ok((-1, &[5][..])));
        assert!(fields.next().is_none());
    }
}

/// Reads everything that can be read from some bytes.
fn read_all(bytes: &[u8]) {
    let _ = peek(bytes);
    let _ = peek_payload(bytes);
    if Message::decode(bytes).is_ok() {
        let _ = round_trip(bytes);
    }
    assert!(!Printed::new(bytes, &NoNames).to_string().is_empty());
}

#[test]
fn broken_messages_are_errors_or_other_messages() {
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        let (container, _, payload) = container(&mut random);
        let update = Update { container, payload: &payload, ..Update::default() };
        let mut bytes = update.to_vec().unwrap();
        if seed < 150 {
            (0..bytes.len()).for_each(|n| read_all(&bytes[..n]));
        }
        for _ in 0..6 {
            let (at, bit) = (random.below(bytes.len()), random.below(8));
            match random.below(3) {
                0 => bytes[at] ^= 1 << bit,
                1 => bytes[at] = [0, 0xFF, 0xFE, 0x80, 0x7F][random.below(5)],
                _ => bytes.truncate(at.max(1)),
            }
            read_all(&bytes);
        }
    }
}

#[test]
fn random_bytes_do_not_panic() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut bytes = random.bytes();
        read_all(&bytes);
        for id in 0..=142 {
            if let Ok(value) = Value::decode(DataType(id), &bytes) {
                let _ = value.to_string();
            }
            let _ = Tree::decode(DataType(id), &bytes);
        }
        let shown = rmtes::Text(&bytes).to_string();
        assert!(shown.len() <= 4 * bytes.len());
        let mut cached = b"what was there".to_vec();
        bytes.splice(..0, *b"\x1B[5`");
        let edited = rmtes::apply_to_vec(&mut cached, &bytes, 1000);
        assert!(edited.is_err() || (14..=1000).contains(&cached.len()), "seed {seed}");
    }
}
