#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| utipc_fuzz::run("ordered", data));
