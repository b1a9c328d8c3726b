//! Management messages: requests and replies in the kernel's netlink format; each is read, written and read again.

use utipc_manage::{
    Entry, Family, FamilyRequest, Header, Messages, Reply, ReplyWriter, Request, family, flag,
};

use crate::{Seen, magnitude};

pub(crate) fn run(data: &[u8], seen: &mut Seen) {
    let mut count = 0;
    for message in Messages::new(data) {
        count += 1;
        assert!(message.bytes.len() >= 16 && message.body.len() < message.bytes.len());
    }
    assert!(count <= data.len() / 16, "{count} messages in {} bytes", data.len());
    seen.note(("messages", magnitude(count)));
    request(data, seen);
    reply(data, seen);
    plain(data, count);
    if let Some(request) = FamilyRequest::from_bytes(data) {
        seen.note(("family", request.name.is_some()));
        let bytes = Family(31).to_bytes(&request.header);
        assert_eq!(Family::from_bytes(&bytes), Some(Family(31)));
    }
    seen.note(("bytes", Family::from_bytes(data).is_some()));
}

fn request(data: &[u8], seen: &mut Seen) {
    match Request::from_bytes(data) {
        None => seen.note("no request"),
        Some((header, Err(refusal))) => {
            seen.note(("refused", header.command, refusal.errno.0));
            let mut reply = ReplyWriter::new(header);
            reply.refuse(&refusal);
            assert!(utipc_manage::replies(reply.bytes()).eq([Ok(Reply::Refused(refusal))]));
        }
        Some((header, Ok(request))) => {
            seen.note(("asked", header.command, header.is_dump(), header.is_extended()));
            let again = request.to_bytes(&header);
            let (_, read) = Request::from_bytes(&again).unwrap_or_else(|| panic!("no request: {again:02x?}"));
            assert_eq!(read.as_ref(), Ok(&request), "{again:02x?}");
        }
    }
}

fn reply(data: &[u8], seen: &mut Seen) {
    for reply in utipc_manage::replies(data) {
        match reply {
            Err(errno) => seen.note(("no reply", errno.0)),
            Ok(Reply::Done) => seen.note("done"),
            Ok(Reply::Refused(refusal)) => seen.note(("failed", magnitude(refusal.text.len()))),
            Ok(Reply::Entry(entry)) => {
                seen.note(("entry", entry.command(), core::mem::discriminant(&entry)));
                // The first encoding drops fields that such an entry cannot have: the broadcast link has no other end.
                let bytes = written(&entry);
                let read = utipc_manage::replies(&bytes).next();
                let Some(Ok(Reply::Entry(again))) = read else { panic!("{entry:?}: {bytes:02x?}: {read:?}") };
                assert_eq!(entry.command(), again.command());
                assert_eq!(written(&again), bytes, "{entry:?}, {again:?}");
            }
        }
    }
}

/// Encodes for a receiver with all capabilities.
fn written(entry: &Entry) -> Vec<u8> {
    let header = Header { family: 30, flags: flag::DUMP, version: family::EXTENDED, ..Header::default() };
    let mut reply = ReplyWriter::new(header);
    reply.entry(entry);
    reply.into_bytes()
}

/// Errors without text; otherwise the same messages.
fn plain(data: &[u8], count: usize) {
    let plain = utipc_manage::without_error_texts(data);
    assert_eq!(Messages::new(&plain).count(), count);
    assert_eq!(utipc_manage::without_error_texts(&plain), plain);
}
