//! Linker arguments of the shared library.

fn main() {
    // Increase the number when programs have to be recompiled.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libutipc.so.0");
    // A node's threads run in this library's code: it must not be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
