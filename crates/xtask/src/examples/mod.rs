//! `cargo xtask examples`: runs every example in every language on each engine, and compares its output with
//! `examples/README.md`.

mod page;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::blocks::blocks;
use crate::needs::{Need, Skip};
use crate::process::{missing, output};
use crate::running::{Output, Running};
use crate::step::Tally;
use crate::workspace::{Scratch, build, built, daemon, files, root, target};
use crate::{go, install, java, python};
use page::{Names, Page};

/// The engine that the programs run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Embedded,
    Daemon,
    Kernel,
}

/// The examples of one language. The name of the program replaces `{}`, that of its class `{Class}`.
struct Language {
    name: &'static str,
    /// The source of a program, below `examples`.
    source: &'static str,
    obstacle: Need,
    build: fn() -> Result<()>,
    /// The words of the command that starts a program.
    command: fn() -> Result<Vec<String>>,
}

static LANGUAGES: [Language; 5] = [
    Language {
        name: "Rust",
        source: "rust/{}.rs",
        obstacle: || None,
        build: || build("--package utipc --examples --features utipc/tokio"),
        command: || Ok(vec![text(&built("examples/{}"))]),
    },
    Language {
        name: "C",
        source: "c/{}.c",
        obstacle: no_compiler,
        build: c,
        command: || Ok(vec![text(&target().join("examples-c/{}"))]),
    },
    Language {
        name: "Python",
        source: "python/{}.py",
        obstacle: python::obstacle,
        build: python::install,
        command: || Ok(vec![text(&python::interpreter()), text(&root().join("examples/python/{}.py"))]),
    },
    Language {
        name: "Go",
        source: "go/{}",
        obstacle: go::obstacle,
        build: || go::build_examples().map(drop),
        command: || Ok(vec![text(&target().join("go/examples/{}"))]),
    },
    Language {
        name: "Java",
        source: "java/{Class}.java",
        obstacle: java::obstacle,
        build: || Ok(()),
        command: java::build_examples,
    },
];

/// Languages whose examples run on the kernel's TIPC too.
const ON_KERNEL: [&str; 3] = ["Rust", "C", "Python"];

/// Where a program runs: its language, the engine, and a runtime directory with a daemon.
struct Stage<'a> {
    language: &'a Language,
    command: &'a [String],
    engine: Engine,
    home: &'a Path,
    page: &'a Page,
}

/// The name of an example in `examples/README.md`, and the function that runs it.
type Scene = (&'static str, fn(&Stage<'_>) -> Result<()>);

const SCENES: [Scene; 9] = [
    ("hello", |stage| alone(stage, "hello")),
    ("hello_server", hello),
    ("connections", |stage| alone(stage, "connections")),
    ("multicast", |stage| alone(stage, "multicast")),
    ("group", |stage| alone(stage, "group")),
    ("ordered", |stage| alone(stage, "ordered")),
    ("service_watch", services),
    ("topology_watch", topology),
    ("async_echo", |stage| alone(stage, "async_echo")),
];

/// Languages without an example: C has no asynchronous tasks, and only Rust has ordered groups.
const ABSENT: [(&str, &str); 5] =
    [("C", "async_echo"), ("C", "ordered"), ("Python", "ordered"), ("Go", "ordered"), ("Java", "ordered")];

/// Runs the examples of the languages `only`, or of all; returns whether each printed the expected output.
pub(crate) fn run(only: &[String]) -> Result<bool> {
    let known: Vec<_> = LANGUAGES.iter().map(|language| language.name.to_lowercase()).collect();
    if let Some(unknown) = only.iter().find(|name| !known.contains(name)) {
        bail!("no examples in {unknown} (there are: {})", known.join(", "));
    }
    let languages = build_all(|language| only.is_empty() || only.contains(&language.name.to_lowercase()))?;
    daemon()?;
    let mut tally = Tally::new("examples");
    play(&languages, &[Engine::Embedded, Engine::Daemon], &mut tally)?;
    tally.note("the examples in README.md", readme_shows_hello());
    Ok(tally.end())
}

/// Checks that README.md shows the programs `hello` exactly as they are in the tree, where they are tested.
fn readme_shows_hello() -> Result<String> {
    let readme = fs::read_to_string(root().join("README.md")).context("read README.md")?;
    for (kind, file) in [("rust", "rust/hello.rs"), ("c", "c/hello.c"), ("python", "python/hello.py")] {
        let path = root().join("examples").join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let is_shown = blocks(&readme).iter().any(|block| block.kind == kind && block.text == text);
        ensure!(
            is_shown,
            "it does not show examples/{file} as it is: copy the file into its block for {kind}"
        );
    }
    Ok(String::new())
}

/// Runs examples that are already built on the kernel's own TIPC.
pub(crate) fn run_on_kernel(names: &[String], tally: &mut Tally) -> Result<()> {
    let is_named = |language: &&Language| names.iter().any(|name| name == language.name);
    let languages: Vec<_> = LANGUAGES.iter().filter(is_named).collect();
    play(&languages, &[Engine::Kernel], tally)
}

/// Builds the examples of every language that is tested on the kernel's TIPC and can be built here; returns the names
/// of these languages.
pub(crate) fn build_for_kernel() -> Result<Vec<String>> {
    let built = build_all(|language| ON_KERNEL.contains(&language.name))?;
    Ok(built.iter().map(|language| language.name.to_owned()).collect())
}

/// Builds the examples of the languages that are wanted and that this machine can build; returns these.
fn build_all(is_wanted: impl Fn(&Language) -> bool) -> Result<Vec<&'static Language>> {
    let mut ready = Vec::new();
    for language in LANGUAGES.iter().filter(|language| is_wanted(language)) {
        match (language.obstacle)() {
            Some(Skip { reason, remedy }) => {
                println!("skipped: examples in {}: {reason} ({remedy})", language.name);
            }
            None => {
                (language.build)()?;
                ready.push(language);
            }
        }
    }
    Ok(ready)
}

fn play(languages: &[&Language], engines: &[Engine], tally: &mut Tally) -> Result<()> {
    let text = fs::read_to_string(root().join("examples/README.md")).context("read examples/README.md")?;
    let page = Page::parse(&text);
    for language in languages {
        let command = (language.command)()?;
        for engine in engines.iter().copied() {
            let home = Scratch::new("examples")?;
            let _daemon = (engine == Engine::Daemon).then(|| start_daemon(&home)).transpose()?;
            let stage = Stage { language, command: &command, engine, home: &home.0, page: &page };
            for (name, scene) in SCENES.iter().filter(|(name, _)| !ABSENT.contains(&(language.name, *name))) {
                let result = scene(&stage).map(|()| String::new());
                tally.note(&format!("{name} in {}, {engine:?}", language.name), result);
            }
        }
    }
    Ok(())
}

/// Starts a daemon at the path where programs look for one.
fn start_daemon(home: &Scratch) -> Result<Running> {
    let folder = home.folder("utipc")?;
    let mut command = Command::new(built("utipcd"));
    command.arg("--socket").arg(folder.join("default.sock")).env("XDG_RUNTIME_DIR", &home.0);
    Running::daemon(&mut command)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn no_compiler() -> Option<Skip> {
    let tool = missing(&["cc", "pkg-config"])?;
    let package = if tool == "cc" { "gcc" } else { tool };
    Some(Skip::new(format!("there is no {tool}"), format!("sudo apt install {package}")))
}

/// Installs the library below `target`, and builds each program against it as a user would.
fn c() -> Result<()> {
    let lib = install::below("examples-c")?;
    let mut about = Command::new("pkg-config");
    about.args(["--cflags", "--libs", "utipc"]).env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let flags = output(&mut about)?;
    for source in files(&root().join("examples/c"), ".c")? {
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(&source);
        let program = source.file_stem().context("a source has a name")?;
        compiler.arg("-o").arg(target().join("examples-c").join(program)).args(flags.split_whitespace());
        output(compiler.arg(format!("-Wl,-rpath,{}", lib.display())))?;
    }
    Ok(())
}

/// `HelloServer` of `hello_server`.
fn class(program: &str) -> String {
    let word =
        |word: &str| word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default();
    program.split('_').map(word).collect()
}

impl Stage<'_> {
    fn start(&self, program: &str, arguments: &[&str]) -> Result<Running> {
        let fill = |text: &str| text.replace("{}", program).replace("{Class}", &class(program));
        let source = root().join("examples").join(fill(self.language.source));
        ensure!(source.exists(), "there is no {program} in {}", self.language.name);
        let mut words = self.command.iter().map(|word| fill(word));
        let mut command = Command::new(words.next().context("a language has a command")?);
        command.args(words).args(arguments);
        command.env_remove("UTIPC_SOCKET").env_remove("UTIPC_INSTANCE").env("XDG_RUNTIME_DIR", self.home);
        match self.engine {
            Engine::Embedded => command.env("UTIPC_ENGINE", "embedded"),
            // Without the variable programs choose the engine by themselves.
            Engine::Daemon => command.env_remove("UTIPC_ENGINE"),
            Engine::Kernel => command.env("UTIPC_ENGINE", "kernel"),
        };
        Running::start(&mut command, Output::Standard).with_context(|| program.to_owned())
    }
}

/// Runs a program that needs no other one and ends by itself.
fn alone(stage: &Stage<'_>, program: &str) -> Result<()> {
    let lines = stage.start(program, &[])?.rest()?;
    Names::default().compare(stage.page.block(program, 0)?, &lines)
}

/// Runs server and client; the client is started first.
fn hello(stage: &Stage<'_>) -> Result<()> {
    let client = stage.start("hello_client", &[])?;
    let server = stage.start("hello_server", &[])?;
    let (mut at_client, mut at_server) = (Names::default(), Names::default());
    at_client.compare(stage.page.block("hello_client", 0)?, &client.rest().context("hello_client")?)?;
    at_server.compare(stage.page.block("hello_server", 0)?, &server.rest().context("hello_server")?)?;
    // Server and client print each other's address.
    if at_client.get("OTHER") != at_server.get("NODE") || at_client.get("NODE") != at_server.get("OTHER") {
        bail!("client and server name others than each other: {at_client:?}, {at_server:?}");
    }
    Ok(())
}

/// Watches a service through this node, and through another node.
fn services(stage: &Stage<'_>) -> Result<()> {
    alone(stage, "service_watch").context("the view of this node")?;
    let mut server = stage.start("hello_server", &[])?;
    let mut names = Names::default();
    names.compare(&stage.page.block("hello_server", 0)?[..1], &server.lines(1)?)?;
    let node = names.get("NODE").context("hello_server names its node")?.to_owned();
    let lines = stage.start("service_watch", &[&node])?.rest().context("the view of another node")?;
    let mut watched = Names::default();
    watched.compare(stage.page.block("service_watch", 0)?, &lines).context("the view of another node")?;
    if watched.get("NODE") != Some(&*node) {
        bail!("it shows the view of {watched:?} instead of {node}");
    }
    Ok(())
}

/// Watches another node start and end.
fn topology(stage: &Stage<'_>) -> Result<()> {
    let block = |number| stage.page.block("topology_watch", number);
    let mut watch = stage.start("topology_watch", &[])?;
    let mut names = Names::default();
    names.compare(block(0)?, &watch.lines(block(0)?.len())?)?;
    if stage.engine != Engine::Embedded {
        // All programs are on one node.
        return Ok(());
    }
    let server = stage.start("hello_server", &[])?;
    names.compare_set(block(1)?, &watch.lines(block(1)?.len())?)?;
    drop(server);
    names.compare_set(block(2)?, &watch.lines(block(2)?.len())?)
}
