//! The utipc command line: demo, bench, management.

fn main() {}
