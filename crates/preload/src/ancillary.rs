//! Ancillary data: the reason and data of a returned message, and the service that a message was sent to (Spec: tipc.md
//! §8.10); also descriptors that programs pass to each other over other sockets.

use libc::{c_int, c_void, cmsghdr, msghdr};
use utipc_core::socket::Received;

use crate::{descriptors, table};

/// Level of TIPC's ancillary data and options.
pub(crate) const SOL_TIPC: c_int = 271;

const ERRINFO: c_int = 1;
const RETDATA: c_int = 2;
const DESTNAME: c_int = 3;

/// A buffer for ancillary data, filled from its start.
struct Control {
    at: *mut u8,
    capacity: usize,
    used: usize,
    truncated: bool,
}

fn aligned(len: usize) -> usize {
    len.next_multiple_of(align_of::<cmsghdr>())
}

impl Control {
    /// Appends an item, truncated to the free space.
    ///
    /// # Safety
    /// `capacity` bytes at `at` are writable.
    unsafe fn put(&mut self, kind: c_int, data: &[u8]) {
        let head = aligned(size_of::<cmsghdr>());
        let left = self.capacity - self.used;
        if left < head {
            self.truncated = true;
            return;
        }
        let fits = data.len().min(left - head);
        self.truncated |= fits < data.len();
        // The fields of the header differ between C libraries: zero it and set fields by name.
        // SAFETY: all of `cmsghdr` is integers.
        let mut header: cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_len = head + fits;
        header.cmsg_level = SOL_TIPC;
        header.cmsg_type = kind;
        // SAFETY: header and data fit between `used` and `capacity`; the header need not be aligned for this write.
        unsafe {
            let place = self.at.add(self.used);
            place.cast::<cmsghdr>().write_unaligned(header);
            std::ptr::copy_nonoverlapping(data.as_ptr(), place.add(head), fits);
        }
        self.used += aligned(head + fits).min(left);
    }
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Writes the ancillary data of `received` into the message's control buffer, and sets its length and MSG_CTRUNC.
///
/// # Safety
/// The control buffer of `message` is writable.
pub(crate) unsafe fn store(message: &mut msghdr, received: &Received) {
    // Without a buffer, no ancillary data was requested, and none is reported as truncated.
    if !is_requested(message.msg_control, message.msg_controllen) {
        message.msg_controllen = 0;
        return;
    }
    let capacity = message.msg_controllen;
    let mut control = Control { at: message.msg_control.cast(), capacity, used: 0, truncated: false };
    // SAFETY: by the caller's promise.
    unsafe {
        if let Some(returned) = &received.returned {
            let code = u32::from(u8::from(returned.code));
            let len = u32::try_from(returned.data.len()).unwrap_or(u32::MAX);
            control.put(ERRINFO, &words([code, len]));
            if !returned.data.is_empty() {
                control.put(RETDATA, &returned.data);
            }
        }
        let bare = received.returned.as_ref().is_some_and(|returned| returned.data.is_empty());
        if let Some(range) = received.destination
            && !bare
        {
            control.put(DESTNAME, &words([range.service, range.lower, range.upper]));
        }
    }
    message.msg_controllen = control.used;
    if control.truncated {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
}

/// The descriptors in a message's control buffer (SCM_RIGHTS).
///
/// # Safety
/// The control buffer of `message` is readable and was written by the kernel, or is what a program gives the kernel.
unsafe fn passed(message: &msghdr) -> Vec<c_int> {
    let mut found = Vec::new();
    if message.msg_control.is_null() || message.msg_controllen == 0 {
        return found;
    }
    let mut at = message.msg_control.cast::<u8>();
    let mut left = message.msg_controllen;
    let head = aligned(size_of::<cmsghdr>());
    while left >= head {
        // SAFETY: a header's bytes are left; it need not be aligned.
        let header = unsafe { at.cast::<cmsghdr>().read_unaligned() };
        let len = header.cmsg_len;
        if len < head || len > left {
            break;
        }
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            for index in 0..(len - head) / size_of::<c_int>() {
                // SAFETY: the item has as many whole integers behind its header.
                found.push(unsafe { at.add(head).cast::<c_int>().add(index).read_unaligned() });
            }
        }
        let step = aligned(len).min(left);
        // SAFETY: at most the end of the buffer.
        at = unsafe { at.add(step) };
        left -= step;
    }
    found
}

/// Called before a program sends a message over another socket, which may pass TIPC sockets.
///
/// # Safety
/// As for `sendmsg`.
pub(crate) unsafe fn before_passing(message: *const msghdr) {
    // SAFETY: a message that is not null is readable, and its control buffer too, as the kernel would read them.
    let Some(message) = (unsafe { message.as_ref() }) else { return };
    // SAFETY: as above.
    for fd in unsafe { passed(message) } {
        if let Some(entry) = table::get(fd) {
            entry.before_passing();
        }
    }
}

/// Called after a program received a message over another socket, which may contain TIPC sockets.
///
/// # Safety
/// `message` was filled by a `recvmsg` that succeeded.
pub(crate) unsafe fn after_receiving(message: *const msghdr) {
    // SAFETY: the kernel has just written it.
    let Some(message) = (unsafe { message.as_ref() }) else { return };
    // SAFETY: as above.
    unsafe { passed(message) }.into_iter().for_each(descriptors::receive);
}

/// Whether ancillary data was requested; only then does it report the end of a connection.
pub(crate) fn is_requested(control: *const c_void, len: usize) -> bool {
    !control.is_null() && len > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use utipc_core::addr::ServiceRange;
    use utipc_core::socket::Returned;
    use utipc_core::wire::ErrorCode;

    fn items(received: &Received, room: usize) -> (Vec<u8>, c_int) {
        let mut buffer = vec![0_u8; 256];
        // SAFETY: `msghdr` is pointers and integers, for which zero is a value.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        message.msg_control = buffer.as_mut_ptr().cast();
        message.msg_controllen = room;
        // SAFETY: the buffer has 256 bytes.
        unsafe { store(&mut message, received) };
        buffer.truncate(message.msg_controllen);
        (buffer, message.msg_flags)
    }

    #[test]
    fn returned_message_has_reason_and_data() {
        let received = Received {
            returned: Some(Returned { code: ErrorCode::NoPort, data: vec![7; 5] }),
            destination: Some(ServiceRange { service: 100, lower: 1, upper: 1 }),
            ..Received::default()
        };
        let (all, flags) = items(&received, 256);
        assert_eq!((all.len(), flags), (24 + 24 + 32, 0));
        assert_eq!(all[16..24], words([u32::from(u8::from(ErrorCode::NoPort)), 5]));
        assert_eq!(all[40..45], [7; 5]);
        let (cut, flags) = items(&received, 30);
        assert_eq!((cut.len(), flags), (24, libc::MSG_CTRUNC));
    }
}
