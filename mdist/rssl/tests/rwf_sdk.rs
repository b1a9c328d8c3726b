//! The codec on the expected bytes of the Real-Time-SDK's own tests: messages, containers and scripts of the checkout
//! `UTIPC_RTSDK`.

use std::path::{Path, PathBuf};

use common::pulling::feed;
use common::tree::{Tree, round_trip};
use rssl::rwf::{Array, DataType, Message, NoNames, Printed};
use rssl::transport::{Channel, ClientOptions};

mod common {
    pub(crate) mod pulling;
    pub(crate) mod tree;
}

fn sdk(files: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("UTIPC_RTSDK") else {
        println!("skipped: UTIPC_RTSDK names no checkout of the Real-Time-SDK");
        return None;
    };
    Some(Path::new(&root).join("Java/Eta").join(files))
}

const DATA: &str = "Core/src/test/resources/com/refinitiv/eta/data";

/// The bytes of an annotated file: lines of two or four hexadecimal digits each, at most 20 bytes, after an optional
/// offset, before a column of text.
fn bytes(path: &Path) -> Vec<u8> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    for line in String::from_utf8_lossy(&file).lines() {
        let line = match line.split_once(": ") {
            Some((offset, rest)) if offset.len() == 4 => rest,
            _ => line,
        };
        let most = if line.split_whitespace().next().is_some_and(|t| t.len() == 2) { 16 } else { 20 };
        let before = bytes.len();
        for token in line.split_whitespace() {
            if !matches!(token.len(), 2 | 4) || bytes.len() - before >= most {
                break;
            }
            match (0..token.len()).step_by(2).map(|at| u8::from_str_radix(&token[at..at + 2], 16)).collect() {
                Ok::<Vec<u8>, _>(token) => bytes.extend(token),
                Err(_) => break,
            }
        }
    }
    bytes
}

#[test]
fn messages_of_every_class_round_trip() {
    let Some(directory) = sdk(DATA) else { return };
    for name in [
        "001_requestMsg",
        "001_requestMsgWithIdAndEncAttrib",
        "002_refreashMsg",
        "003_closeMsg",
        "004_updateMsg",
        "005_statusMsg",
        "018_genericMsg",
        "022_ackMsg",
        "023_postMsg",
    ] {
        let bytes = bytes(&directory.join(format!("RsslEncodersJunit/{name}.txt")));
        let round = round_trip(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(round.header || round.saved > 0, "{name}: only longer forms of lengths may differ");
        let shown = Printed::new(&bytes, &NoNames).to_string();
        assert!(!shown.contains("malformed"), "{name}: {shown}");
        println!("{name}: {} bytes, {round:?}\n{shown}", bytes.len());
    }
}

#[test]
fn containers_round_trip() {
    let Some(directory) = sdk(DATA) else { return };
    for (name, container) in [
        ("001_elementList_one_entry", DataType::ELEMENT_LIST),
        ("002_elementList_oneEntry_emptyPreEncodedAscii", DataType::ELEMENT_LIST),
        ("003_elementList_oneEntry_preencodedAscii", DataType::ELEMENT_LIST),
        ("004_elementList_wthrreEntries_middleEntryHasElementList", DataType::ELEMENT_LIST),
        ("005_elementList_secondEntryElementList_rollback", DataType::ELEMENT_LIST),
        ("006_encodeFieldList_wEntries_andRollBack", DataType::FIELD_LIST),
        ("007_elementList_entries_wdate_time_enum", DataType::ELEMENT_LIST),
        ("015_filter_list_wEntries", DataType::FILTER_LIST),
    ] {
        let bytes = bytes(&directory.join(format!("RsslEncodersJunit/{name}.txt")));
        let tree = Tree::decode(container, &bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let again = rssl::wire::to_vec(|w| tree.write(w)).unwrap();
        assert_eq!(Tree::decode(container, &again), Ok(tree));
        println!("{name}: {} bytes, {} of ours", bytes.len(), again.len());
    }
    for name in [
        "008_array_entries_ascii",
        "009_array_entries_uint",
        "010_array_entries_encData_len2",
        "011_array_entries_encData_len0",
        "012_array_entry_blankEncData_len4",
        "013_array_entry_blankEncData_len0",
        "016_array_entries_ls_uint",
    ] {
        let bytes = bytes(&directory.join(format!("RsslEncodersJunit/{name}.txt")));
        let array = Array::decode(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(array.items().all(|item| item.is_ok()), "{name}: {array}");
        println!("{name}: {array}");
    }
}

#[test]
fn malformed_headers_are_refused() {
    let Some(directory) = sdk(DATA) else { return };
    for name in [
        "CloseMsgInvalidExtHdr",
        "RequestMsgInvalidExtHdr",
        "RequestMsgInvalidMsgKeyLen",
        "RequestMsgInvalidMsgKeyNameLen",
    ] {
        let bytes = bytes(&directory.join(format!("RsslDecodersJunit/{name}.txt")));
        let error = Message::decode(&bytes).expect_err(name);
        println!("{name}: {error}");
    }
}

#[test]
fn provider_scripts_round_trip() {
    let Some(directory) = sdk("ValueAdd/src/test/resources/com/refinitiv/eta/valueadd/ReactorJunit") else {
        return;
    };
    let mut messages = 0;
    for file in std::fs::read_dir(directory).expect("read the directory of scripts") {
        let path = file.unwrap().path();
        let mut client = Channel::client(ClientOptions::default());
        let seen =
            feed(&mut client, &bytes(&path), 1 << 16).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for message in &seen.messages {
            let round = round_trip(message).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(round.header || round.saved > 0, "{}", path.display());
            assert!(!Printed::new(message, &NoNames).to_string().contains("malformed"));
        }
        messages += seen.messages.len();
        println!("{}: {} messages", path.display(), seen.messages.len());
    }
    println!("{messages} messages in all");
}
