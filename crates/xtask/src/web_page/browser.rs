//! Chromium without a window, driven by the DevTools protocol over two pipes.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::process::succeeds;

/// Programs that can serve, in the order in which they are tried.
const PROGRAMS: [&str; 4] = ["chromium-headless-shell", "chrome-headless-shell", "chromium", "google-chrome"];
/// Limit of every condition: far above what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(100);

/// The browser of this machine.
pub(crate) fn program() -> Option<&'static str> {
    PROGRAMS.into_iter().find(|program| succeeds(&format!("{program} --version")))
}

/// A page in a browser.
pub(crate) struct Page {
    browser: Child,
    to: ChildStdin,
    from: ChildStdout,
    unread: Vec<u8>,
    session: String,
    number: u64,
    /// Errors that the page has reported.
    pub(crate) errors: Vec<String>,
}

/// Size and theme of a page.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) is_dark: bool,
}

impl Page {
    /// Starts `program` with its files in `folder`.
    pub(crate) fn open(program: &str, folder: &Path) -> Result<Self> {
        let script = "exec 3<&0 4>&1 </dev/null >/dev/null; exec \"$0\" --headless --no-sandbox --disable-gpu \
             --disable-dev-shm-usage --no-first-run --remote-debugging-pipe --user-data-dir=\"$1\" about:blank";
        let mut browser = Command::new("sh")
            .args(["-c", script, program])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start the browser")?;
        let to = browser.stdin.take().context("the browser has no input")?;
        let from = browser.stdout.take().context("the browser has no output")?;
        let (session, errors) = (String::new(), Vec::new());
        let mut page = Self { browser, to, from, unread: Vec::new(), session, number: 0, errors };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = page.call("Target.attachToTarget", attach)?;
        page.session = attached["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Runtime", "Log", "Page"] {
            page.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(page)
    }

    /// The next message.
    fn read(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&message[..end]).context("a message of the browser");
            }
            let mut part = [0; 65_536];
            let n = self.from.read(&mut part).context("read from the browser")?;
            ensure!(n > 0, "the browser has ended");
            self.unread.extend_from_slice(&part[..n]);
        }
    }

    fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        self.to
            .write_all(&[request.to_string().as_bytes(), b"\0"].concat())
            .context("write to the browser")?;
        loop {
            let mut message = self.read()?;
            if message["id"] == self.number {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].take());
            }
            self.note(&message);
        }
    }

    /// Keeps an error that the page reports.
    fn note(&mut self, message: &Value) {
        let about = &message["params"];
        let error = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => about["exceptionDetails"].to_string(),
            Some("Runtime.consoleAPICalled") if about["type"] == "error" => about["args"].to_string(),
            Some("Log.entryAdded") if about["entry"]["level"] == "error" => about["entry"].to_string(),
            _ => return,
        };
        self.errors.push(error);
    }

    /// Sets size and theme.
    pub(crate) fn set(&mut self, format: Format) -> Result<()> {
        let Format { width, height, is_dark } = format;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let theme = if is_dark { "dark" } else { "light" };
        let theme = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.call("Emulation.setEmulatedMedia", theme)?;
        Ok(())
    }

    pub(crate) fn load(&mut self, url: &str) -> Result<()> {
        self.call("Page.navigate", json!({ "url": url }))?;
        self.wait_for("the page is loaded", "document.readyState === 'complete'")
    }

    /// The value of an expression; of a promise, its result.
    pub(crate) fn value(&mut self, expression: &str) -> Result<Value> {
        let request = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", request)?;
        ensure!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        Ok(result["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, what: &str, expression: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.value(expression)? != true {
            if Instant::now() > end {
                let text = self.value("document.body.innerText")?;
                bail!("{what}: not within {PATIENCE:?}; the page has {text}, errors {:?}", self.errors);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Writes a picture of the page.
    pub(crate) fn picture(&mut self, to: &Path) -> Result<()> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }))?;
        let text = picture["data"].as_str().context("no picture")?;
        let file = std::fs::File::create(to).with_context(|| format!("write {}", to.display()))?;
        let mut decode = Command::new("base64");
        let mut decode =
            decode.arg("--decode").stdin(Stdio::piped()).stdout(file).spawn().context("run base64")?;
        decode.stdin.take().context("base64 has no input")?.write_all(text.as_bytes()).context("decode")?;
        ensure!(decode.wait().context("run base64")?.success(), "a picture is damaged");
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
