//! `cargo xtask web-page`: the page of real programs, in a real browser.

mod browser;
mod cluster;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::workspace::{self, target};
use browser::{Look, Page};
use cluster::{Program, daemon, service, socket, start};

const WIDE: Look = Look { width: 1200, height: 1000, is_dark: false };
const DARK: Look = Look { is_dark: true, ..WIDE };
const NARROW: Look = Look { width: 400, height: 900, is_dark: false };

/// A name that would be an element if it were inserted as HTML.
const HOSTILE: &str = "<img src=x>";

/// Reason and remedy if no browser is installed.
pub(crate) fn obstacle() -> Option<(String, String)> {
    let remedy = "sudo apt-get install --no-install-recommends chromium-headless-shell";
    browser::program().is_none().then(|| ("no Chromium to show the page with".to_owned(), remedy.to_owned()))
}

/// Checks the page; writes pictures of it to `pictures`, or to a folder below `target`.
pub(crate) fn run(root: &Path, pictures: Option<&Path>) -> Result<bool> {
    let browser = browser::program().context(
        "no Chromium to show the page with (sudo apt-get install --no-install-recommends chromium-headless-shell)",
    )?;
    workspace::build(root, &["-p", "utipc-tools", "--bin", "utipcd", "--bin", "utipc-pipe"])?;
    workspace::build(root, &["-p", "mdist", "--bin", "p2ps", "-p", "mdist-load", "--bin", "rmdstestclient"])?;
    let scratch = Scratch::new()?;
    let pictures = pictures.map_or_else(|| target(root).join("web-page"), Path::to_path_buf);
    std::fs::create_dir_all(&pictures).context("make the folder of pictures")?;
    let stage = Stage { programs: target(root).join("debug"), scratch: scratch.0.clone(), pictures };
    let mut page = Page::open(browser, &scratch.0.join("browser"))?;
    let checks: [(&str, Check); 5] = [
        ("node page shows links, services and sockets, and follows a killed node", node_page),
        ("names from the network are text", hostile_names),
        ("narrow and dark pages fit and have contrast", fits),
        ("market page shows items, mounts and ticking values", market_page),
        ("page reports a program that has ended", ended_program),
    ];
    let mut failed = 0;
    for (name, check) in checks {
        // The page of the check before asks programs that have ended.
        page.load("about:blank")?;
        page.errors.clear();
        match check(&stage, &mut page) {
            Ok(()) => println!("ok {name}"),
            Err(why) => {
                failed += 1;
                println!("FAILED {name}: {why:#}");
            }
        }
    }
    println!("web-page: {} passed, {failed} failed", checks.len() - failed);
    Ok(failed == 0)
}

type Check = fn(&Stage, &mut Page) -> Result<()>;

struct Stage {
    programs: PathBuf,
    scratch: PathBuf,
    pictures: PathBuf,
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("utipc-web-page-{}", std::process::id()));
        std::fs::create_dir_all(&path).context("make a scratch folder")?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn no_errors(page: &Page) -> Result<()> {
    ensure!(page.errors.is_empty(), "errors in the console: {:#?}", page.errors);
    Ok(())
}

/// Sends datagrams from one daemon to a service of another.
fn traffic(stage: &Stage, from: u8, instance: u32) -> Result<Program> {
    let mut command = Command::new(stage.programs.join("utipc-pipe"));
    command.args(["--rdm", "-t", "18888", "-w", "-1", "--data_num", "10000000", "--data_size", "200"]);
    command.args(["--delay", "2", &instance.to_string()]);
    command.env("UTIPC_SOCKET", socket(&stage.scratch, from)).env("UTIPC_ENGINE", "daemon");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Ok(Program::of(child.context("run utipc-pipe")?))
}

/// Three daemons with services; the first one's page is shown.
fn cluster(stage: &Stage) -> Result<Vec<Program>> {
    let mut all = Vec::new();
    for number in 1..=3 {
        all.push(daemon(&stage.programs, &stage.scratch, number)?);
    }
    for (number, instance, name) in [(1, 10, "quotes"), (2, 20, "orders"), (2, 21, "risk"), (3, 30, HOSTILE)]
    {
        all.push(service(&stage.programs, &stage.scratch, (number, instance), name)?);
    }
    all.push(service(&stage.programs, &stage.scratch, (1, 11), HOSTILE)?);
    all.push(traffic(stage, 1, 20)?);
    Ok(all)
}

fn has(text: &str) -> String {
    format!("document.body.innerText.includes({text:?})")
}

fn node_page(stage: &Stage, page: &mut Page) -> Result<()> {
    let mut all = cluster(stage)?;
    page.look(WIDE)?;
    page.load(&format!("http://{}/", all[0].port))?;
    page.wait_for("both peers are up", "document.querySelectorAll('#map .node.up').length === 2")?;
    page.wait_for("links are up", "document.querySelectorAll('#map line.up').length === 2")?;
    for service in ["{18888,10}", "{18888,20}", "{18888,30}"] {
        page.wait_for(service, &has(service))?;
    }
    page.wait_for("rates", "[...document.querySelectorAll('.tile')].some(t => t.innerText.startsWith('Sent') && parseFloat(t.querySelector('.value').innerText) > 5)")?;
    page.wait_for("sockets by program", &has("quotes"))?;
    let node = "document.querySelector('#map [aria-label^=\"node host-2,\"]').dispatchEvent(new MouseEvent('click'))";
    page.value(node)?;
    page.wait_for(
        "the details of a node",
        "document.querySelector('#details').innerText.includes('host-2')",
    )?;
    let first = "[...document.querySelectorAll('section[aria-label=Sockets] tr')].find(r => r.innerText.includes('quotes')).querySelector('button').click()";
    page.value(first)?;
    page.wait_for(
        "the details of a socket",
        "/Process\\s+\\d+/.test(document.querySelector('#details').innerText)",
    )?;
    page.wait_for("its binding", "document.querySelector('#details').innerText.includes('{18888,10}')")?;
    page.picture(&stage.pictures.join("web-page-light.png"))?;

    let killed = Pid::from_raw(i32::try_from(all[1].child.id()).unwrap_or(0));
    kill(killed, Signal::SIGKILL).context("kill a daemon")?;
    page.wait_for(
        "the killed node is down on the map",
        "document.querySelector('#map [aria-label^=\"node host-2,\"]').classList.contains('down')",
    )?;
    for kind in ["link-down", "node-down", "service-down"] {
        page.wait_for(kind, &format!("document.querySelector('.events [data-kind={kind}]') !== null"))?;
    }
    page.wait_for(
        "its service is gone",
        &format!(
            "!document.querySelector('section[aria-label=Services]').innerText.includes({:?})",
            "{18888,20}"
        ),
    )?;
    let reason = "document.querySelector('.events [data-kind=link-down]').innerText";
    let reason = page.value(reason)?;
    ensure!(reason.as_str().is_some_and(|text| text.contains('(')), "a reason: {reason}");
    page.look(DARK)?;
    page.value(node)?;
    std::thread::sleep(Duration::from_millis(300));
    page.picture(&stage.pictures.join("web-page-dark.png"))?;

    all[1] = daemon(&stage.programs, &stage.scratch, 2)?;
    page.wait_for(
        "the node is back",
        "document.querySelector('#map [aria-label^=\"node host-2,\"]').classList.contains('up')",
    )?;
    page.look(NARROW)?;
    page.value(node)?;
    std::thread::sleep(Duration::from_millis(300));
    page.picture(&stage.pictures.join("web-page-narrow.png"))?;
    page.value("document.querySelector('#details h2').textContent")?;
    no_errors(page)
}

/// Makes the views from hostile data, as a foreign node or publisher could send them.
fn hostile_names(stage: &Stage, page: &mut Page) -> Result<()> {
    let all = cluster(stage)?;
    page.look(WIDE)?;
    page.load(&format!("http://{}/", all[0].port))?;
    page.wait_for("the program with the hostile name", &has(HOSTILE))?;
    page.wait_for("both peers are up", "document.querySelectorAll('#map .node.up').length === 2")?;
    let script = r#"(async () => {
      const evil = "<img src=x onerror='window.harmed=1'><script>window.harmed=1</script>\"'>";
      const { NodeView } = await import("/page/node.js");
      const { MarketView } = await import("/page/market.js");
      const place = document.createElement("main");
      document.body.append(place);
      const state = await (await fetch("/api/state")).json();
      for (const all of [state.nodes, state.links, state.sockets, state.services]) for (const one of all) {
        for (const key of Object.keys(one)) if (typeof one[key] === "string" && key !== "address" && key !== "peer") one[key] = evil;
      }
      const view = new NodeView(place);
      view.update([state, [{ number: 1, time_ms: 1, kind: evil, node: evil, what: evil, reason: evil }]]);
      for (const [kind, id] of [["node", state.nodes[0].address], ["link", evil], ["socket", state.sockets[0].port], ["service", evil]]) view.choose(kind, id);
      const shown = place.textContent.includes(evil);
      const market = document.createElement("main");
      document.body.append(market);
      const other = new MarketView(market, { program: evil, version: evil });
      other.watch = [[evil, evil]];
      other.update([{ time_ms: 1, program: evil, services: [{ id: 1, name: evil, up: true }],
        items: [{ service: evil, name: evil, domain: evil, ok: true, state: evil, holders: 1 }],
        watch: [{ service: evil, item: evil, values: [{ name: evil, value: evil }] }], totals: {},
        upstreams: [{ kind: evil, name: evil, state: 2, messages: 1 }],
        mounts: [{ user: evil, peer: evil, position: evil, messages_out: 1 }],
        disconnects: [{ at_unix_s: 1, kind: evil, reason: evil, what: { user: evil } }] }]);
      const made = document.querySelectorAll("main img, main script").length;
      return [shown && market.textContent.includes(evil), made, window.harmed === undefined];
    })()"#;
    let result = page.value(script)?;
    ensure!(result == serde_json::json!([true, 0, true]), "shown, elements made, unharmed: {result}");
    no_errors(page)
}

/// The contrast of every text with its background, as WCAG defines it.
const CONTRAST: &str = r#"(() => {
  const light = (css) => {
    const parts = css.match(/[\d.]+/g).map(Number);
    const line = (c) => { const s = c / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; };
    return [0.2126 * line(parts[0]) + 0.7152 * line(parts[1]) + 0.0722 * line(parts[2]), parts[3] ?? 1];
  };
  const back = (node) => {
    for (; node; node = node.parentElement) {
      const [value, alpha] = light(getComputedStyle(node).backgroundColor);
      if (alpha > 0) return value;
    }
    return 1;
  };
  const bad = [];
  for (const node of document.querySelectorAll("h1, h2, h3, td, th, dt, dd, button, span, time, .name, .value, .note")) {
    if (!node.textContent || !node.offsetParent) continue;
    const [a, b] = [light(getComputedStyle(node).color)[0], back(node)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${node.tagName} ${node.className} ${node.textContent.slice(0, 20)} ${ratio.toFixed(1)}`);
  }
  return bad;
})()"#;

fn fits(stage: &Stage, page: &mut Page) -> Result<()> {
    let all = cluster(stage)?;
    for look in [WIDE, DARK, NARROW, Look { is_dark: true, ..NARROW }] {
        page.look(look)?;
        page.load(&format!("http://{}/", all[0].port))?;
        page.wait_for("both peers are up", "document.querySelectorAll('#map .node.up').length === 2")?;
        let wide =
            page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")?;
        ensure!(wide == 0, "{} px: the page is {wide} px too wide", look.width);
        let bad = page.value(CONTRAST)?;
        ensure!(bad.as_array().is_some_and(Vec::is_empty), "too little contrast: {bad}");
    }
    no_errors(page)
}

/// The demo's chain with a consumer that has a hostile name.
fn market(stage: &Stage) -> Result<(Program, Program)> {
    let mut command = Command::new(stage.programs.join("p2ps"));
    command.args(["--demo", "--metrics", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--cache", "true"]);
    let chain = start(command.env("UTIPC_ENGINE", "embedded"), false)?;
    let (host, port) = chain.listener.rsplit_once(':').context("p2ps names no listener")?;
    let mut command = Command::new(stage.programs.join("rmdstestclient"));
    command.args(["--host", host, "--port", port, "--item-count", "5", "--steady-state-time", "600"]);
    let consumer = command.args(["--uname", HOSTILE]).stdin(Stdio::null()).stdout(Stdio::null());
    let consumer = Program::of(consumer.stderr(Stdio::null()).spawn().context("run rmdstestclient")?);
    Ok((chain, consumer))
}

fn market_page(stage: &Stage, page: &mut Page) -> Result<()> {
    let (chain, _consumer) = market(stage)?;
    page.look(WIDE)?;
    page.load(&format!("http://{}/", chain.port))?;
    page.wait_for(
        "a service is up",
        "[...document.querySelectorAll('section[aria-label=Services] td')].some(c => c.textContent === 'up')",
    )?;
    page.wait_for(
        "the consumer",
        &format!("document.querySelector('section[aria-label=Mounts]').innerText.includes({HOSTILE:?})"),
    )?;
    page.wait_for("an open item", "document.querySelector('section[aria-label=Items] td button') !== null")?;
    page.value("document.querySelector('section[aria-label=Items] td button').click()")?;
    page.wait_for("its fields", "document.querySelectorAll('.card dd').length > 2")?;
    let before = page.value("document.querySelector('.card dl').innerText")?;
    page.wait_for(
        "its values change",
        &format!("document.querySelector('.card dl').innerText !== {before}"),
    )?;
    let typed = "(() => { const [service, item] = document.querySelectorAll('#watch input'); service.value = 'DIRECT_FEED'; item.value = 'NOT_OPEN'; document.querySelector('#watch button').click(); })()";
    page.value(typed)?;
    page.wait_for("why an item has no values", &has("not open"))?;
    page.wait_for("rates", "[...document.querySelectorAll('.tile')].some(t => t.innerText.startsWith('Updates in') && parseFloat(t.querySelector('.value').innerText) > 0)")?;
    page.picture(&stage.pictures.join("market-page.png"))?;
    for look in [NARROW, DARK] {
        page.look(look)?;
        std::thread::sleep(Duration::from_millis(300));
        let wide =
            page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")?;
        ensure!(wide == 0, "{} px: the page is {wide} px too wide", look.width);
        let bad = page.value(CONTRAST)?;
        ensure!(bad.as_array().is_some_and(Vec::is_empty), "too little contrast: {bad}");
    }
    no_errors(page)
}

fn ended_program(stage: &Stage, page: &mut Page) -> Result<()> {
    let alone = daemon(&stage.programs, &stage.scratch, 1)?;
    page.look(WIDE)?;
    page.load(&format!("http://{}/", alone.port))?;
    page.wait_for("the page is live", "document.querySelector('#status').dataset.state === 'live'")?;
    drop(alone);
    page.wait_for("the page says so", "document.querySelector('#status').textContent === 'no reply'")
}
