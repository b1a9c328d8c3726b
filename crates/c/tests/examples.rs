//! The C examples, built by their Makefile, print what examples/README.md promises, on each engine.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::sync::OnceLock;

use common::{Engine, Place, Running, folder, prefix, root, run};

/// The directory of the built programs.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = folder();
        let mut make = Command::new("make");
        make.arg("-B").arg("-C").arg(root().join("examples/c")).arg(format!("O={}", folder.display()));
        make.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).env("CFLAGS", "-O1 -g -Werror");
        make.env("LDFLAGS", format!("-Wl,-rpath,{}", prefix().join("lib").display()));
        run(&mut make);
        folder
    })
}

fn start(place: &Place, name: &str, arguments: &[&str]) -> Running {
    place.start(&built().join(name), arguments)
}

/// The blocks of output that the README promises for a program.
fn promised(program: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("examples/README.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with(&format!("{program}\n"))).unwrap();
    let blocks = section.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.collect()
}

/// Whether a line matches a pattern of the README, where some words stand for numbers.
fn matches(pattern: &str, line: &str) -> bool {
    let next =
        ["NODE", "OTHER", "PORT"].into_iter().filter_map(|word| Some((pattern.find(word)?, word))).min();
    let Some((at, word)) = next else { return pattern == line };
    let Some(rest) = line.strip_prefix(&pattern[..at]) else { return false };
    let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
    digits > 0 && matches(&pattern[at + word.len()..], &rest[digits..])
}

fn assert_output(program: &str, printed: &str) {
    let promised = &promised(program)[0];
    let fit = promised.lines().count() == printed.lines().count()
        && promised.lines().zip(printed.lines()).all(|(pattern, line)| matches(pattern, line));
    assert!(fit, "{program} should print\n{promised}but prints\n{printed}");
}

#[test]
fn different_lines_do_not_match() {
    assert!(matches("server: \"x\" from OTHER:PORT", "server: \"x\" from 12ab:99"));
    assert!(!matches("server: \"x\" from OTHER:PORT", "server: \"y\" from 12ab:99"));
    assert!(!matches("node NODE is up", "node  is up"));
    assert!(!matches("done", "done."));
}

fn hello(engine: Engine) {
    let place = Place::new(engine);
    let server = start(&place, "hello_server", &[]);
    assert_output("hello_client", &start(&place, "hello_client", &[]).output());
    assert_output("hello_server", &server.output());
    place.check();
}

fn alone(engine: Engine, program: &str) {
    let place = Place::new(engine);
    assert_output(program, &start(&place, program, &[]).output());
    place.check();
}

macro_rules! on {
    ($engine:ident, $module:ident) => {
        mod $module {
            #[test]
            fn hello() {
                super::hello(super::Engine::$engine);
            }
            #[test]
            fn connections() {
                super::alone(super::Engine::$engine, "connections");
            }
            #[test]
            fn multicast() {
                super::alone(super::Engine::$engine, "multicast");
            }
            #[test]
            fn group() {
                super::alone(super::Engine::$engine, "group");
            }
            #[test]
            fn service_watch() {
                super::alone(super::Engine::$engine, "service_watch");
            }
        }
    };
}

on!(Embedded, embedded);
on!(Daemon, daemon);

/// The lines printed by a running program.
fn lines(running: &mut Running) -> std::io::Lines<BufReader<ChildStdout>> {
    BufReader::new(running.child.stdout.take().unwrap()).lines()
}

/// The node that a hello server prints.
fn node_of(line: &str) -> &str {
    line.rsplit(' ').next().unwrap()
}

#[test]
fn service_watch_shows_another_nodes_view() {
    let place = Place::new(Engine::Embedded);
    let mut other = start(&place, "hello_server", &[]);
    let first = lines(&mut other).next().unwrap().unwrap();
    let printed = start(&place, "service_watch", &[node_of(&first)]).output();
    assert_output("service_watch", &printed);
    assert!(
        printed.starts_with(&format!("watching {{2222,0,99}} as node {} sees it\n", node_of(&first))),
        "{printed}"
    );
}

#[test]
fn topology_watch_shows_nodes_and_links() {
    let place = Place::new(Engine::Embedded);
    let mut watch = start(&place, "topology_watch", &[]);
    let mut seen = lines(&mut watch).map(Result::unwrap);
    let mut expect = |block: &str, other: &str| {
        let mut left: Vec<_> = block.lines().collect();
        while !left.is_empty() {
            let line = seen.next().expect("another line");
            let at = left.iter().position(|pattern| matches(&pattern.replace("OTHER", other), &line));
            left.remove(at.unwrap_or_else(|| panic!("{line:?} in place of {left:?}")));
        }
    };
    let [own, up, down] = &promised("topology_watch")[..] else { panic!("three blocks") };
    expect(own, "");
    let mut other = start(&place, "hello_server", &[]);
    let first = lines(&mut other).next().unwrap().unwrap();
    expect(up, node_of(&first));
    drop(other);
    expect(down, node_of(&first));
    // With an argument it exits after that many events.
    let printed = start(&place, "topology_watch", &["1"]).output();
    assert!(printed.lines().zip(own.lines()).all(|(line, pattern)| matches(pattern, line)), "{printed}");
}
