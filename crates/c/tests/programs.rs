//! C programs that test the API, on each engine. Each is one file in `programs/` and prints the check that failed.

mod common;

use std::path::Path;

use common::{Engine, Place, compile};

fn check(name: &str, engine: Engine) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    let program = compile(&source);
    let place = Place::new(engine);
    let argument = if engine == Engine::Daemon { "daemon" } else { "embedded" };
    let text = place.start(&program, &[argument]).output();
    assert!(text.ends_with("ok\n"), "{text}");
    place.check();
}

macro_rules! programs {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[test] fn $name() { super::check(stringify!($name), super::Engine::Embedded); })+
        }
        mod daemon {
            $(#[test] fn $name() { super::check(stringify!($name), super::Engine::Daemon); })+
        }
    };
}

programs!(datagrams, connections, topology, forking, threads, loops, groups, slow_members);
