//! Tests of every rule of tidy, with text that breaks it and text that follows it.

use std::path::PathBuf;

use super::arrows::{self, Member};
use super::{Finding, code, columns, links, lints, portable, source, words};

fn rules(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|f| f.rule).collect()
}

fn member(name: &str, wants: &[&str]) -> Member {
    let wants = wants.iter().map(|w| (*w).into()).collect();
    Member { name: name.into(), manifest: PathBuf::new(), wants, wants_in_tests: Vec::new() }
}

#[test]
fn an_arrow_that_points_outward_is_found() {
    for (from, to) in [
        ("utipc-core", "utipc-os"),
        ("utipc-os", "utipc-core"),
        ("utipc-core", "rand"),
        ("utipc-node", "utipc"),
        ("utipc-sim", "utipc-os"),
        ("utipc-sim", "utipc-node"),
        ("utipc-tools", "utipc-core"),
        ("xtask", "utipc"),
        ("rssl", "utipc-core"),
    ] {
        let found = arrows::check(&[member(from, &[to])]);
        assert_eq!(rules(&found), ["dependency"], "{from} -> {to}");
    }
}

#[test]
fn arrows_that_point_inward_are_fine() {
    let house = [
        member("utipc-core", &["thiserror"]),
        member("utipc-os", &["libc", "rustix"]),
        member("utipc-node", &["utipc-core", "utipc-os", "tracing"]),
        member("utipc", &["utipc-node", "utipc-core", "utipc-os"]),
        member("utipc-tools", &["utipc", "clap"]),
        member("utipc-sim", &["utipc-core", "clap"]),
        member("xtask", &["anyhow"]),
    ];
    assert_eq!(arrows::check(&house), []);
}

#[test]
fn a_crate_without_an_arrow_is_found() {
    assert_eq!(rules(&arrows::check(&[member("utipc-misc", &[])])), ["dependency"]);
}

const WORKSPACE: &str = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\nmissing_docs = \"warn\"\n";

#[test]
fn a_crate_without_the_workspace_lints_is_found() {
    assert_eq!(
        rules(&lints::check("utipc-node", "[package]\nname = \"utipc-node\"\n", WORKSPACE)),
        ["lints"]
    );
    assert_eq!(lints::check("utipc-node", "[lints]\nworkspace = true\n", WORKSPACE), []);
}

#[test]
fn a_crate_with_unsafe_repeats_the_other_lints() {
    assert_eq!(lints::check("utipc-os", "[lints.rust]\nmissing_docs = \"warn\"\n", WORKSPACE), []);
    assert_eq!(rules(&lints::check("utipc-os", "[lints.rust]\n", WORKSPACE)), ["lints"]);
    assert_eq!(
        rules(&lints::check("utipc-os", "[lints.rust]\nmissing_docs = \"allow\"\n", WORKSPACE)),
        ["lints"]
    );
}

#[test]
fn unsafe_outside_its_crates_is_found() {
    let text = "fn f() {\n    unsafe { g() }\n}\n";
    let found = source::check("crates/node/src/lib.rs", text);
    assert_eq!(rules(&found), ["unsafe"]);
    assert_eq!(found[0].place, "crates/node/src/lib.rs:2");
    assert_eq!(source::check("crates/os/src/lib.rs", text), []);
}

#[test]
fn unsafe_in_words_and_names_is_fine() {
    let text = "// unsafe\n/* unsafe /* */ unsafe */\n#![forbid(unsafe_code)]\nconst S: &str = \"unsafe \\\" unsafe\";\n\
                const R: &str = r#\"unsafe \" unsafe\"#;\nconst Q: char = '\"';\nfn f<'a>(_: &'a str) {}\n";
    assert_eq!(source::check("crates/node/src/lib.rs", text), []);
}

#[test]
fn code_after_a_literal_is_still_seen() {
    let text = "const Q: [char; 2] = ['\"', '\\''];\nconst R: &str = r\"\\\"; fn f() { unsafe { g() } }\n";
    assert_eq!(rules(&source::check("crates/node/src/lib.rs", text)), ["unsafe"]);
    assert_eq!(code::only("a /* x\ny */ b\n"), "a     \n     b\n");
}

#[test]
fn unfinished_work_is_found() {
    for mark in [
        concat!("todo", "!(\"later\")"),
        concat!("unimplemented", "!()"),
        concat!("#[", "ignore]"),
        concat!("#[", "ignore = \"slow\"]"),
        concat!("// FIX", "ME later"),
        concat!("// XX", "X"),
    ] {
        let text = format!("fn f() {{\n    {mark}\n}}\n");
        assert_eq!(rules(&source::check("crates/node/src/lib.rs", &text)), ["unfinished"], "{mark}");
    }
    assert_eq!(rules(&source::check("interop/x.py", concat!("# FIX", "ME\n"))), ["unfinished"]);
}

#[test]
fn a_file_too_long_is_found() {
    assert_eq!(source::check("a.rs", &"\n".repeat(800)), []);
    assert_eq!(rules(&source::check("a.rs", &"\n".repeat(801))), ["length"]);
    assert_eq!(source::check("Cargo.lock", &"\n".repeat(801)), []);
}

#[test]
fn paths_and_registries_of_one_machine_are_found() {
    for line in ["see /home/someone/notes", "cd /work/main", "out=/tmp/x.pcap", "HOME=/root/x"] {
        assert_eq!(rules(&portable::check("README.md", line)), ["path"], "{line}");
    }
    for line in
        ["registry = \"sparse+https://mirror/\"", "source = \"registry+https://mirror.example/index\""]
    {
        assert_eq!(rules(&portable::check("Cargo.lock", line)), ["registry"], "{line}");
    }
}

#[test]
fn relative_paths_and_crates_io_are_fine() {
    for line in [
        "$TMPDIR/x ${dir}/work/x ../work/x target/tmp/x",
        "mount -t tmpfs run /run",
        "source = \"registry+https://github.com/rust-lang/crates.io-index\"",
    ] {
        assert_eq!(portable::check("README.md", line), [], "{line}");
    }
}

#[test]
fn long_lines_of_documentation_are_found() {
    let long = "word ".repeat(25);
    for (path, text) in [
        ("a.rs", format!("    /// {long}\n")),
        ("a.md", format!("{long}\n")),
        ("a.py", format!("# {long}\n")),
        ("a.c", format!("/* {long} */\n")),
    ] {
        assert_eq!(rules(&columns::check(path, &text)), ["columns"], "{path}");
    }
    for (path, text) in [
        ("a.rs", format!("    let x = \"{long}\";\n")),
        ("a.md", format!("| {long} |\n```text\n{long}\n```\n")),
        ("a.md", "x".repeat(200)),
        ("a.txt", long.clone()),
    ] {
        assert_eq!(columns::check(path, &text), [], "{path}");
    }
    assert_eq!(columns::check("a.md", &format!("```\n{long}\n```\n{long}\n"))[0].place, "a.md:4");
}

#[test]
fn dead_links_are_found() {
    let mut links = links::Links::default();
    links.add(
        "docs/a.md",
        "# One two\n## `x`: y_z\n## `x`: y_z\n[ok](b.md) [up](../README.md) [here](#one-two)\n[folder](sub)",
    );
    links.add("docs/b.md", "[a](a.md#x-y_z-1) [site](https://example.org/none)");
    links.add("docs/sub/c.md", "text\n\n[gone](../none.md)\n![picture](x.svg)\n[heading](../a.md#three)");
    links.add("README.md", "");
    let found = links.check();
    let places: Vec<_> = found.iter().map(|f| f.place.as_str()).collect();
    assert_eq!(places, ["docs/sub/c.md:3", "docs/sub/c.md:4", "docs/sub/c.md:5"], "{found:?}");
}

#[test]
fn pages_that_the_book_does_not_list_are_found() {
    let mut links = links::Links::default();
    links.add("docs/SUMMARY.md", "- [a](a.md)\n");
    links.add("docs/a.md", "# a\n");
    links.add("docs/guide/b.md", "# b\n");
    links.add("README.md", "# not a page of the book\n");
    let found = links.check();
    let places: Vec<_> = found.iter().map(|f| f.place.as_str()).collect();
    assert_eq!(places, ["docs/guide/b.md"], "{found:?}");
}

#[test]
fn words_that_the_glossary_replaces_are_found() {
    let text = concat!("let lane_part", "ner = 1;\n// The Part", "ners wait.\n// partnership\n");
    let found = words::check("crates/node/src/lib.rs", text);
    assert_eq!(rules(&found), ["words", "words"]);
    assert_eq!(found[1].place, "crates/node/src/lib.rs:2");
    assert_eq!(words::check("docs/glossary.md", text), []);
}
