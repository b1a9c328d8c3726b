//! `cargo xtask web-page`: the page of real programs, in a real browser.

mod browser;
mod cluster;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::needs::Skip;
use crate::step::Tally;
use crate::workspace::{Scratch, build, make_folder, target};
use browser::{Format, Page};
use cluster::{HOSTILE, Programs};

const WIDE: Format = Format { width: 1200, height: 1000, is_dark: false };
const DARK: Format = Format { is_dark: true, ..WIDE };
const NARROW: Format = Format { width: 400, height: 900, is_dark: false };

type Check = fn(&Stage, &mut Page) -> Result<()>;

const CHECKS: [(&str, Check); 5] = [
    ("node page shows links, services and sockets, and follows a killed node", node_page),
    ("names from the network are text", hostile_names),
    ("narrow and dark pages fit and have contrast", fits),
    ("market page shows items, mounts and ticking values", market_page),
    ("page reports a program that has ended", ended_program),
];

/// Folders of a run.
struct Stage {
    scratch: Scratch,
    pictures: PathBuf,
}

/// Reason and remedy if no browser is installed.
pub(crate) fn obstacle() -> Option<Skip> {
    let remedy = "sudo apt-get install --no-install-recommends chromium-headless-shell";
    Skip::unless(browser::program().is_some(), "no Chromium to show the page with", remedy)
}

/// Checks the page; writes pictures of it to `pictures`, or to a folder below `target`.
pub(crate) fn run(pictures: Option<&Path>) -> Result<bool> {
    if let Some(skip) = obstacle() {
        return Err(skip.error());
    }
    build("-p utipc-tools --bin utipcd --bin utipc-pipe")?;
    build("-p mdist --bin p2ps -p mdist-load --bin rmdstestclient")?;
    let pictures = pictures.map_or_else(|| target().join("web-page"), Path::to_path_buf);
    make_folder(&pictures)?;
    let stage = Stage { scratch: Scratch::new("web-page")?, pictures };
    let browser = browser::program().context("the browser is gone")?;
    let mut page = Page::open(browser, &stage.scratch.join("browser"))?;
    let mut tally = Tally::new("web-page");
    for (name, check) in CHECKS {
        // The page of the check before asks programs that have ended.
        page.load("about:blank")?;
        page.errors.clear();
        tally.note(name, check(&stage, &mut page).map(|()| String::new()));
    }
    Ok(tally.end())
}

fn no_errors(page: &Page) -> Result<()> {
    ensure!(page.errors.is_empty(), "errors in the console: {:#?}", page.errors);
    Ok(())
}

/// Shows the page of a program.
fn open(page: &mut Page, format: Format, address: &str) -> Result<()> {
    page.set(format)?;
    page.load(&format!("http://{address}/"))
}

fn has(text: &str) -> String {
    format!("document.body.innerText.includes({text:?})")
}

/// A tile whose title begins so has a value above `least`.
fn rate(title: &str, least: u32) -> String {
    format!(
        "[...document.querySelectorAll('.tile')].some(t => t.innerText.startsWith('{title}') && \
         parseFloat(t.querySelector('.value').innerText) > {least})"
    )
}

/// Text of an element.
fn shows(element: &str, text: &str) -> String {
    format!("document.querySelector('{element}').innerText.includes({text:?})")
}

/// Host 2 on the map.
const HOST_2: &str = "document.querySelector('#map [aria-label^=\"node host-2,\"]')";
const BOTH_UP: &str = "document.querySelectorAll('#map .node.up').length === 2";

fn node_page(stage: &Stage, page: &mut Page) -> Result<()> {
    let (mut all, address) = Programs::cluster(&stage.scratch)?;
    open(page, WIDE, &address)?;
    page.wait_for("both peers are up", BOTH_UP)?;
    page.wait_for("links are up", "document.querySelectorAll('#map line.up').length === 2")?;
    for service in ["{18888,10}", "{18888,20}", "{18888,30}"] {
        page.wait_for(service, &has(service))?;
    }
    page.wait_for("rates", &rate("Sent", 5))?;
    page.wait_for("sockets by program", &has("quotes"))?;
    let choose = format!("{HOST_2}.dispatchEvent(new MouseEvent('click'))");
    page.value(&choose)?;
    page.wait_for("the details of a node", &shows("#details", "host-2"))?;
    page.value(
        "[...document.querySelectorAll('section[aria-label=Sockets] tr')]\
         .find(r => r.innerText.includes('quotes')).querySelector('button').click()",
    )?;
    let process = r"/Process\s+\d+/.test(document.querySelector('#details').innerText)";
    page.wait_for("the details of a socket", process)?;
    page.wait_for("its binding", &shows("#details", "{18888,10}"))?;
    page.picture(&stage.pictures.join("web-page-light.png"))?;

    all.running.get_mut(1).context("three daemons")?.kill()?;
    let host_2_is = |state: &str| format!("{HOST_2}.classList.contains('{state}')");
    page.wait_for("the killed node is down on the map", &host_2_is("down"))?;
    for kind in ["link-down", "node-down", "service-down"] {
        page.wait_for(kind, &format!("document.querySelector('.events [data-kind={kind}]') !== null"))?;
    }
    let service = shows("section[aria-label=Services]", "{18888,20}");
    page.wait_for("its service is gone", &format!("!{service}"))?;
    let reason = page.value("document.querySelector('.events [data-kind=link-down]').innerText")?;
    ensure!(reason.as_str().is_some_and(|text| text.contains('(')), "a reason: {reason}");
    let take = |page: &mut Page, format, name: &str| -> Result<()> {
        page.set(format)?;
        page.value(&choose)?;
        std::thread::sleep(Duration::from_millis(300));
        page.picture(&stage.pictures.join(name))
    };
    take(page, DARK, "web-page-dark.png")?;
    all.daemon(2)?;
    page.wait_for("the node is back", &host_2_is("up"))?;
    take(page, NARROW, "web-page-narrow.png")?;
    page.value("document.querySelector('#details h2').textContent")?;
    no_errors(page)
}

/// Makes the views from hostile data, as a foreign node or publisher could send them.
fn hostile_names(stage: &Stage, page: &mut Page) -> Result<()> {
    let (_all, address) = Programs::cluster(&stage.scratch)?;
    open(page, WIDE, &address)?;
    page.wait_for("the program with the hostile name", &has(HOSTILE))?;
    page.wait_for("both peers are up", BOTH_UP)?;
    let result = page.value(include_str!("hostile.js"))?;
    ensure!(result == serde_json::json!([true, 0, true]), "shown, elements made, unharmed: {result}");
    no_errors(page)
}

/// The page is not wider than the window, and its texts can be read.
fn is_legible(page: &mut Page) -> Result<()> {
    let wide = page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")?;
    ensure!(wide == 0, "the page is {wide} px too wide");
    let bad = page.value(include_str!("contrast.js"))?;
    ensure!(bad.as_array().is_some_and(Vec::is_empty), "too little contrast: {bad}");
    Ok(())
}

fn fits(stage: &Stage, page: &mut Page) -> Result<()> {
    let (_all, address) = Programs::cluster(&stage.scratch)?;
    for format in [WIDE, DARK, NARROW, Format { is_dark: true, ..NARROW }] {
        open(page, format, &address)?;
        page.wait_for("both peers are up", BOTH_UP)?;
        is_legible(page).with_context(|| format!("{} px", format.width))?;
    }
    no_errors(page)
}

fn market_page(stage: &Stage, page: &mut Page) -> Result<()> {
    let (_all, address) = Programs::market(&stage.scratch)?;
    open(page, WIDE, &address)?;
    let up =
        "[...document.querySelectorAll('section[aria-label=Services] td')].some(c => c.textContent === 'up')";
    page.wait_for("a service is up", up)?;
    page.wait_for("the consumer", &shows("section[aria-label=Mounts]", HOSTILE))?;
    let item = "document.querySelector('section[aria-label=Items] td button')";
    page.wait_for("an open item", &format!("{item} !== null"))?;
    page.value(&format!("{item}.click()"))?;
    page.wait_for("its fields", "document.querySelectorAll('.card dd').length > 2")?;
    let values = "document.querySelector('.card dl').innerText";
    let before = page.value(values)?;
    page.wait_for("its values change", &format!("{values} !== {before}"))?;
    page.value(
        "(() => { const [service, item] = document.querySelectorAll('#watch input'); \
         service.value = 'DIRECT_FEED'; item.value = 'NOT_OPEN'; document.querySelector('#watch button').click(); })()",
    )?;
    page.wait_for("why an item has no values", &has("not open"))?;
    page.wait_for("rates", &rate("Updates in", 0))?;
    page.picture(&stage.pictures.join("market-page.png"))?;
    for format in [NARROW, DARK] {
        page.set(format)?;
        std::thread::sleep(Duration::from_millis(300));
        is_legible(page).with_context(|| format!("{} px", format.width))?;
    }
    no_errors(page)
}

fn ended_program(stage: &Stage, page: &mut Page) -> Result<()> {
    let mut alone = Programs::none(&stage.scratch);
    let address = alone.daemon(1)?;
    open(page, WIDE, &address)?;
    page.wait_for("the page is live", "document.querySelector('#status').dataset.state === 'live'")?;
    drop(alone);
    page.wait_for("the page says so", "document.querySelector('#status').textContent === 'no reply'")
}
