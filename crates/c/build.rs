//! What the shared library tells the dynamic linker.

fn main() {
    // The number goes up when programs have to be compiled again.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libutipc.so.0");
    // Threads of a node run in its code: it must not be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
