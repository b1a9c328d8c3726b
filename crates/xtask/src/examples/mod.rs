//! `cargo xtask examples`: runs every example in every language on each engine, and compares its output with
//! `examples/README.md`.

mod page;
mod program;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::python::{self, Home};
use crate::{go, install_c, java};
use page::{Names, Page};
use program::Running;

/// The engine that the programs run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Embedded,
    Daemon,
    Kernel,
}

/// The examples of one language, and the command that starts them.
struct Language {
    name: &'static str,
    /// The words of the command. The name of the program replaces `{}`, that of its class `{Class}`.
    command: Vec<String>,
    /// Names of the examples.
    programs: Vec<String>,
}

/// The environment in which a program runs: the engine, the language, and a runtime directory with a daemon.
struct Site<'a> {
    language: &'a Language,
    engine: Engine,
    home: &'a Path,
    page: &'a Page,
}

/// The name of an example in `examples/README.md`, and the function that runs it.
type Scene = (&'static str, fn(&Site<'_>) -> Result<()>);

const SCENES: [Scene; 9] = [
    ("hello", |site| alone(site, "hello")),
    ("hello_server", hello),
    ("connections", |site| alone(site, "connections")),
    ("multicast", |site| alone(site, "multicast")),
    ("group", |site| alone(site, "group")),
    ("ordered", |site| alone(site, "ordered")),
    ("service_watch", services),
    ("topology_watch", topology),
    ("async_echo", |site| alone(site, "async_echo")),
];

/// Languages without an example: C has no asynchronous tasks, and only Rust has ordered groups.
const ABSENT: [(&str, &str); 5] =
    [("C", "async_echo"), ("C", "ordered"), ("Python", "ordered"), ("Go", "ordered"), ("Java", "ordered")];

/// Runs the examples of the languages `only`, or of all; returns whether each printed the expected output.
pub(crate) fn run(root: &Path, only: &[String]) -> Result<bool> {
    if let Some(unknown) = only.iter().find(|name| !BUILDERS.iter().any(|(known, _)| known == name)) {
        let known: Vec<_> = BUILDERS.iter().map(|(name, _)| *name).collect();
        bail!("no examples in {unknown} (there are: {})", known.join(", "));
    }
    let languages = build(root, only)?;
    crate::workspace::build(root, &["--package", "utipc-tools", "--bin", "utipcd"])?;
    let (mut passed, mut failed) = play(root, &languages, &[Engine::Embedded, Engine::Daemon])?;
    match readme_shows_hello(root) {
        Ok(()) => passed += 1,
        Err(error) => {
            println!("FAILED the examples in README.md: {error:#}");
            failed += 1;
        }
    }
    println!("examples: {passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// Checks that README.md shows the programs `hello` exactly as they are in the tree, where they are tested.
fn readme_shows_hello(root: &Path) -> Result<()> {
    let readme = std::fs::read_to_string(root.join("README.md")).context("read README.md")?;
    for (language, file) in [("rust", "rust/hello.rs"), ("c", "c/hello.c"), ("python", "python/hello.py")] {
        let path = root.join("examples").join(file);
        let program = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        if !readme.contains(&format!("```{language}\n{program}```")) {
            bail!("it does not show examples/{file} as it is: copy the file into its block for {language}");
        }
    }
    Ok(())
}

/// Runs examples that are already built on the kernel's own TIPC; returns the numbers of passed and failed
/// ones.
pub(crate) fn run_on_kernel(root: &Path, names: &[String]) -> Result<(usize, usize)> {
    let all = [rust_at(root)?, c_at(root)?, python_at(root)?];
    let built: Vec<_> = all.into_iter().filter(|l| names.iter().any(|name| name == l.name)).collect();
    play(root, &built, &[Engine::Kernel])
}

/// Builds the examples of every language that is tested on the kernel's TIPC and can be built here; returns the names
/// of these languages.
pub(crate) fn build_all(root: &Path) -> Result<Vec<String>> {
    Ok(build(root, &["rust", "c", "python"].map(str::to_owned))?
        .into_iter()
        .map(|language| language.name.to_owned())
        .collect())
}

/// The name of a language on the command line, and the function that builds its examples if this machine can.
type Builder = (&'static str, fn(&Path) -> Result<Option<Language>>);

const BUILDERS: [Builder; 5] =
    [("rust", |root| rust(root).map(Some)), ("c", c), ("python", python), ("go", go), ("java", java)];

/// Builds the examples of the languages `only`, or of all.
fn build(root: &Path, only: &[String]) -> Result<Vec<Language>> {
    let mut built = Vec::new();
    for (name, builder) in BUILDERS {
        if only.is_empty() || only.iter().any(|wanted| wanted == name) {
            built.extend(builder(root)?);
        }
    }
    Ok(built)
}

fn play(root: &Path, languages: &[Language], engines: &[Engine]) -> Result<(usize, usize)> {
    let text = std::fs::read_to_string(root.join("examples/README.md")).context("read examples/README.md")?;
    let page = Page::parse(&text);
    let (mut passed, mut failed) = (0, 0);
    for language in languages {
        for engine in engines.iter().copied() {
            let home = Home::new()?;
            let _daemon = (engine == Engine::Daemon).then(|| Daemon::start(root, &home.0)).transpose()?;
            let site = Site { language, engine, home: &home.0, page: &page };
            for (name, scene) in SCENES {
                if ABSENT.contains(&(language.name, name)) {
                    continue;
                }
                let what = format!("{name} in {}, {engine:?}", language.name);
                match scene(&site) {
                    Ok(()) => {
                        println!("ok {what}");
                        passed += 1;
                    }
                    Err(error) => {
                        println!("FAILED {what}: {error:#}");
                        failed += 1;
                    }
                }
            }
        }
    }
    Ok((passed, failed))
}

fn rust(root: &Path) -> Result<Language> {
    crate::workspace::build(root, &["--package", "utipc", "--examples", "--features", "utipc/tokio"])?;
    rust_at(root)
}

fn rust_at(root: &Path) -> Result<Language> {
    let program = crate::workspace::target(root).join("debug/examples/{}");
    let programs = names(&root.join("examples/rust"), "rs")?;
    Ok(Language { name: "Rust", command: vec![program.display().to_string()], programs })
}

/// Installs the library below `target`, and builds each program against it as a user would.
fn c(root: &Path) -> Result<Option<Language>> {
    for (tool, package) in [("cc", "gcc"), ("pkg-config", "pkg-config")] {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: examples in C: there is no {tool} (sudo apt install {package})");
            return Ok(None);
        }
    }
    let folder = crate::workspace::target(root).join("examples-c");
    let prefix = folder.join("prefix");
    install_c::run(root, &install_c::Options::debug_below(&prefix))?;
    let about = Command::new("pkg-config")
        .args(["--cflags", "--libs", "utipc"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .context("run pkg-config")?;
    let flags = String::from_utf8_lossy(&about.stdout).into_owned();
    let programs = names(&root.join("examples/c"), "c")?;
    for name in &programs {
        let source = root.join("examples/c").join(name).with_extension("c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(source);
        compiler.arg("-o").arg(folder.join(name)).args(flags.split_whitespace());
        compiler.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
        if !compiler.status().context("run cc")?.success() {
            bail!("cc cannot build examples/c/{name}.c");
        }
    }
    c_at(root).map(Some)
}

fn c_at(root: &Path) -> Result<Language> {
    let program = crate::workspace::target(root).join("examples-c/{}");
    let programs = names(&root.join("examples/c"), "c")?;
    Ok(Language { name: "C", command: vec![program.display().to_string()], programs })
}

fn python(root: &Path) -> Result<Option<Language>> {
    if let Some((reason, remedy)) = python::obstacle(root) {
        println!("skipped: examples in Python: {reason} ({remedy})");
        return Ok(None);
    }
    python::install(root)?;
    python_at(root).map(Some)
}

fn python_at(root: &Path) -> Result<Language> {
    let interpreter = python::interpreter(root);
    let program = root.join("examples/python/{}.py");
    let programs = names(&root.join("examples/python"), "py")?;
    let command = vec![interpreter.display().to_string(), program.display().to_string()];
    Ok(Language { name: "Python", command, programs })
}

/// Builds the examples in Go; the name of each is that of its folder.
fn go(root: &Path) -> Result<Option<Language>> {
    if let Some((reason, remedy)) = go::obstacle(root) {
        println!("skipped: examples in Go: {reason} ({remedy})");
        return Ok(None);
    }
    go::build_examples(root)?;
    go_at(root).map(Some)
}

fn go_at(root: &Path) -> Result<Language> {
    let entries = std::fs::read_dir(root.join("examples/go")).context("read examples/go")?;
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir());
    let programs = folders.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    let program = go::examples(root).join("{}");
    Ok(Language { name: "Go", command: vec![program.display().to_string()], programs })
}

/// Builds the examples in Java; the class `HelloServer` is the program `hello_server`.
fn java(root: &Path) -> Result<Option<Language>> {
    if let Some((reason, remedy)) = java::obstacle(root) {
        println!("skipped: examples in Java: {reason} ({remedy})");
        return Ok(None);
    }
    let programs = names(&root.join("examples/java"), "java")?.iter().map(|name| snake(name)).collect();
    Ok(Some(Language { name: "Java", command: java::build_examples(root)?, programs }))
}

/// `HelloServer` of `hello_server`.
fn class(program: &str) -> String {
    let word =
        |word: &str| word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default();
    program.split('_').map(word).collect()
}

/// `hello_server` of `HelloServer`.
fn snake(class: &str) -> String {
    let mut name = String::new();
    for c in class.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// Names of the files in a folder that end with `end`, without that end.
fn names(folder: &Path, end: &str) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let right = files.filter(|path| path.extension().is_some_and(|own| own == end));
    Ok(right.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
}

impl Site<'_> {
    fn start(&self, program: &str, arguments: &[&str]) -> Result<Running> {
        if !self.language.programs.iter().any(|known| known == program) {
            bail!("there is no {program} in {}", self.language.name);
        }
        let (name, class) = (program, class(program));
        let mut words =
            self.language.command.iter().map(|word| word.replace("{}", name).replace("{Class}", &class));
        let mut command = Command::new(words.next().context("a language has a command")?);
        command.args(words).args(arguments);
        command.env_remove("UTIPC_SOCKET").env_remove("UTIPC_INSTANCE").env("XDG_RUNTIME_DIR", self.home);
        match self.engine {
            Engine::Embedded => command.env("UTIPC_ENGINE", "embedded"),
            // Without the variable programs choose the engine by themselves.
            Engine::Daemon => command.env_remove("UTIPC_ENGINE"),
            Engine::Kernel => command.env("UTIPC_ENGINE", "kernel"),
        };
        Running::start(command).with_context(|| program.to_owned())
    }
}

/// Runs a program that needs no other one and ends by itself.
fn alone(site: &Site<'_>, program: &str) -> Result<()> {
    let lines = site.start(program, &[])?.rest()?;
    Names::default().compare(site.page.block(program, 0)?, &lines)
}

/// Runs server and client; the client is started first.
fn hello(site: &Site<'_>) -> Result<()> {
    let client = site.start("hello_client", &[])?;
    let server = site.start("hello_server", &[])?;
    let (mut at_client, mut at_server) = (Names::default(), Names::default());
    at_client.compare(site.page.block("hello_client", 0)?, &client.rest().context("hello_client")?)?;
    at_server.compare(site.page.block("hello_server", 0)?, &server.rest().context("hello_server")?)?;
    // Server and client print each other's address.
    if at_client.get("OTHER") != at_server.get("NODE") || at_client.get("NODE") != at_server.get("OTHER") {
        bail!("client and server name others than each other: {at_client:?}, {at_server:?}");
    }
    Ok(())
}

/// Watches a service through this node, and through another node.
fn services(site: &Site<'_>) -> Result<()> {
    alone(site, "service_watch").context("the view of this node")?;
    let server = site.start("hello_server", &[])?;
    let mut names = Names::default();
    names.compare(&site.page.block("hello_server", 0)?[..1], &server.lines(1)?)?;
    let node = names.get("NODE").context("hello_server names its node")?.to_owned();
    let lines = site.start("service_watch", &[&node])?.rest().context("the view of another node")?;
    let mut watched = Names::default();
    watched.compare(site.page.block("service_watch", 0)?, &lines).context("the view of another node")?;
    if watched.get("NODE") != Some(&*node) {
        bail!("it shows the view of {watched:?} instead of {node}");
    }
    Ok(())
}

/// Watches another node start and end.
fn topology(site: &Site<'_>) -> Result<()> {
    let block = |number| site.page.block("topology_watch", number);
    let watch = site.start("topology_watch", &[])?;
    let mut names = Names::default();
    names.compare(block(0)?, &watch.lines(block(0)?.len())?)?;
    if site.engine != Engine::Embedded {
        // All programs are on one node.
        return Ok(());
    }
    let server = site.start("hello_server", &[])?;
    names.compare_set(block(1)?, &watch.lines(block(1)?.len())?)?;
    drop(server);
    names.compare_set(block(2)?, &watch.lines(block(2)?.len())?)
}

/// A daemon at the path where programs look for one. It is killed when this value is dropped.
struct Daemon(std::process::Child);

impl Daemon {
    fn start(root: &Path, home: &Path) -> Result<Self> {
        let folder = home.join("utipc");
        std::fs::DirBuilder::new().mode(0o700).create(&folder).context("make a folder for utipcd")?;
        let socket = folder.join("default.sock");
        let mut command = Command::new(crate::workspace::target(root).join("debug/utipcd"));
        command.arg("--socket").arg(&socket).env("XDG_RUNTIME_DIR", home);
        // The daemon logs this line when it listens. Its socket's file exists a moment before.
        let mut child =
            command.env("UTIPC_LOG", "info").stderr(Stdio::piped()).spawn().context("start utipcd")?;
        let log = child.stderr.take().context("utipcd has a log")?;
        let daemon = Self(child);
        let mut lines = BufReader::new(log).lines().map_while(std::result::Result::ok);
        if !lines.any(|line| line.contains("programs may attach")) {
            bail!("utipcd does not open {}", socket.display());
        }
        // Read the log to its end, so that the daemon never waits for space in the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
