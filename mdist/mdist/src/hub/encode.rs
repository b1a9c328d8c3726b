//! Messages that the hub writes itself.

use rssl::rwf::{DataState, Domain, Key, State, Status, StreamState};
use rssl::wire::Writer;

/// Writes a message into `scratch`, which grows as needed and is reused. `size` is the expected length.
pub(super) fn write(
    scratch: &mut Vec<u8>,
    size: usize,
    mut f: impl FnMut(&mut Writer<'_>) -> rssl::Result<()>,
) -> rssl::Result<&[u8]> {
    if scratch.len() < size {
        scratch.resize(size, 0);
    }
    let len = loop {
        let mut w = Writer::new(scratch);
        match f(&mut w) {
            Ok(()) => break w.len(),
            Err(rssl::Error::Full) if scratch.len() < rssl::limits::MAX_MESSAGE => {
                let more = (scratch.len() * 2).clamp(1024, rssl::limits::MAX_MESSAGE);
                scratch.resize(more, 0);
            }
            Err(e) => return Err(e),
        }
    };
    Ok(scratch.get(..len).unwrap_or_default())
}

/// A status that carries only a state. The stream id is put in with the item.
pub(super) fn status<'s>(scratch: &'s mut Vec<u8>, domain: Domain, state: &State<'_>) -> &'s [u8] {
    let status = Status::new(domain, 1, *state);
    // It fits unless the text is longer than any that a peer can have sent.
    write(scratch, 64 + state.text.len(), |w| status.encode(w)).unwrap_or_default()
}

/// The state of an item without good data, with the reason why its request waits or is refused.
pub(super) const fn suspect_state(stream: StreamState, code: u8, text: &'static str) -> State<'static> {
    State { stream, data: DataState::Suspect, code, text: text.as_bytes() }
}

/// The key with `service` in place of its service id, if it has one.
pub(super) fn with_service(key: Key<'_>, service: u16) -> Key<'_> {
    Key { service: key.service.map(|_| service), ..key }
}
