//! A frame: every parser, the printer, and re-encoding to the same bytes.

use utipc_core::wire::{Body, Decoded, Dump, Encrypted, ErrorCode, reverse};
use utipc_core::{Message, NodeAddr, View};

use crate::{Seen, magnitude};

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let line = Dump(data).to_string();
    assert!(!line.contains('\n') && !line.is_empty(), "{line:?}");
    if Encrypted::is_encrypted(data) {
        match Encrypted::parse(data) {
            Ok(packet) => assert_eq!(packet.to_bytes(), data),
            Err(e) => seen.note(("encrypted", core::mem::discriminant(&e))),
        }
    }
    match View::parse(data) {
        Ok(view) => message(view, 0, seen),
        Err(e) => seen.note(("structure", core::mem::discriminant(&e))),
    }
    let owned = Message::from_vec(data.to_vec());
    assert_eq!(owned.is_ok(), View::parse(data).is_ok());
}

fn message(view: View<'_>, depth: usize, seen: &mut Seen) {
    assert!(view.size() == view.bytes().len() && view.header_size() + view.data().len() == view.size());
    let (user, kind) = (u8::from(view.user()), view.kind());
    seen.note(("message", user, kind, view.header_size(), magnitude(view.data().len())));
    let back = reverse(NodeAddr(1), view.to_message(), ErrorCode::NoPort);
    if let Some(back) = back {
        assert!(back.data().len() <= 1024 && back.header_size() >= 32);
        assert_eq!(Message::from_vec(back.bytes().to_vec()).as_ref(), Ok(&back));
        assert_eq!(reverse(NodeAddr(2), back, ErrorCode::NoPort), None);
    }
    let decoded = match Decoded::parse(view) {
        Ok(decoded) => decoded,
        Err(e) => return seen.note(("rule", user, kind, e.to_string().len())),
    };
    assert_eq!(decoded.to_bytes(), view.bytes());
    seen.note((user, kind, decoded.residue.is_empty()));
    match &decoded.body {
        Body::Bundle(bundle) if depth < 4 => {
            for inner in bundle.messages() {
                match inner {
                    Ok(inner) => message(inner, depth + 1, seen),
                    Err(e) => seen.note(("bundled", core::mem::discriminant(&e))),
                }
            }
        }
        Body::Tunnel(tunnel) if depth < 4 => {
            if let Ok(Some(inner)) = tunnel.inner() {
                message(inner, depth + 1, seen);
            }
        }
        Body::State(s) => {
            let blocks = s.gaps.as_ref().map(|g| (magnitude(g.unicast.len()), magnitude(g.broadcast.len())));
            seen.note(("state", blocks, s.monitor.as_ref().map(|m| magnitude(m.members.len()))));
        }
        _ => {}
    }
}
