//! The functions of the C library (or of the next preloaded library) that this library replaces.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use crate::errno::Code;

/// A function, looked up at its first call.
pub(crate) struct Real<F> {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
    signature: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// # Safety
    /// `F` is the type of a function pointer with the signature of the C function `name`.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(ptr::null_mut()), signature: PhantomData }
    }

    /// The next function of this name.
    #[inline]
    pub(crate) fn get(&self) -> F {
        let mut at = self.at.load(Relaxed);
        if at.is_null() {
            at = self.find();
        }
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: `F` is a function pointer by the promise of `new`, as large as a pointer, and `at` is the address of
        // that function, which is never unloaded.
        unsafe { std::mem::transmute_copy(&at) }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a C string; the call has no other requirements.
        let at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if at.is_null() {
            // A program that calls this function would not have started with a C library that lacks it.
            std::process::abort();
        }
        self.at.store(at, Relaxed);
        at
    }
}

/// The result of a real function, with its errno on failure.
pub(crate) fn done(result: ssize_t) -> Result<ssize_t, Code> {
    // SAFETY: the C library's place for this thread's errno.
    if result < 0 { Err(unsafe { *libc::__errno_location() }) } else { Ok(result) }
}

/// Declares the real functions with their signatures.
macro_rules! real {
    ($($name:ident: fn($($arg:ty),*) -> $result:ty;)*) => {
        $(
            #[expect(non_upper_case_globals, reason = "named as the functions that they stand for")]
            // SAFETY: the signature is that of the C library's header, with the variable argument of `fcntl`, `ioctl`
            // and `open` as one machine word, as they are passed in registers.
            pub(crate) static $name: Real<unsafe extern "C" fn($($arg),*) -> $result> = unsafe {
                Real::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero byte"),
                })
            };
        )*
    };
}

use libc::{
    c_char, c_int, c_uint, c_ulong, epoll_event, fd_set, iovec, mmsghdr, mode_t, msghdr, nfds_t, off_t,
    off64_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

real! {
    socket: fn(c_int, c_int, c_int) -> c_int;
    socketpair: fn(c_int, c_int, c_int, *mut c_int) -> c_int;
    bind: fn(c_int, *const sockaddr, socklen_t) -> c_int;
    listen: fn(c_int, c_int) -> c_int;
    accept: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    accept4: fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    connect: fn(c_int, *const sockaddr, socklen_t) -> c_int;
    shutdown: fn(c_int, c_int) -> c_int;
    getsockname: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    getpeername: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    getsockopt: fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    setsockopt: fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    send: fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
    sendto: fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
    sendmsg: fn(c_int, *const msghdr, c_int) -> ssize_t;
    sendmmsg: fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    write: fn(c_int, *const c_void, size_t) -> ssize_t;
    writev: fn(c_int, *const iovec, c_int) -> ssize_t;
    sendfile: fn(c_int, c_int, *mut off_t, size_t) -> ssize_t;
    sendfile64: fn(c_int, c_int, *mut off64_t, size_t) -> ssize_t;
    recv: fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    recvfrom: fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    recvmsg: fn(c_int, *mut msghdr, c_int) -> ssize_t;
    recvmmsg: fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
    read: fn(c_int, *mut c_void, size_t) -> ssize_t;
    readv: fn(c_int, *const iovec, c_int) -> ssize_t;
    __read_chk: fn(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    __recv_chk: fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t;
    __recvfrom_chk: fn(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    close: fn(c_int) -> c_int;
    close_range: fn(c_uint, c_uint, c_int) -> c_int;
    dup: fn(c_int) -> c_int;
    dup2: fn(c_int, c_int) -> c_int;
    dup3: fn(c_int, c_int, c_int) -> c_int;
    fcntl: fn(c_int, c_int, usize) -> c_int;
    fcntl64: fn(c_int, c_int, usize) -> c_int;
    ioctl: fn(c_int, c_ulong, usize) -> c_int;
    preadv2: fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    preadv64v2: fn(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t;
    pwritev2: fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    pwritev64v2: fn(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t;
    splice: fn(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t;
    pidfd_getfd: fn(c_int, c_int, c_uint) -> c_int;
    vdprintf: fn(c_int, *const c_char, *mut c_void) -> c_int;
    vasprintf: fn(*mut *mut c_char, *const c_char, *mut c_void) -> c_int;
    __vdprintf_chk: fn(c_int, c_int, *const c_char, *mut c_void) -> c_int;
    __vasprintf_chk: fn(*mut *mut c_char, c_int, *const c_char, *mut c_void) -> c_int;
    fclose: fn(*mut libc::FILE) -> c_int;
    poll: fn(*mut pollfd, nfds_t, c_int) -> c_int;
    ppoll: fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    __poll_chk: fn(*mut pollfd, nfds_t, c_int, size_t) -> c_int;
    __ppoll_chk: fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t, size_t) -> c_int;
    select: fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
    pselect: fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int;
    epoll_ctl: fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    epoll_wait: fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    epoll_pwait: fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    epoll_pwait2: fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
    open: fn(*const c_char, c_int, mode_t) -> c_int;
    open64: fn(*const c_char, c_int, mode_t) -> c_int;
    openat: fn(c_int, *const c_char, c_int, mode_t) -> c_int;
    openat64: fn(c_int, *const c_char, c_int, mode_t) -> c_int;
    __open_2: fn(*const c_char, c_int) -> c_int;
    __open64_2: fn(*const c_char, c_int) -> c_int;
    __openat_2: fn(c_int, *const c_char, c_int) -> c_int;
    __openat64_2: fn(c_int, *const c_char, c_int) -> c_int;
    fdopen: fn(c_int, *const c_char) -> *mut libc::FILE;
    fileno: fn(*mut libc::FILE) -> c_int;
    fileno_unlocked: fn(*mut libc::FILE) -> c_int;
    fopen: fn(*const c_char, *const c_char) -> *mut libc::FILE;
    fopen64: fn(*const c_char, *const c_char) -> *mut libc::FILE;
}
