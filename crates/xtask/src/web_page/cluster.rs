//! The programs that the page shows: three daemons on one host, services on them, and the market-data chain.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::running::{Output, Running};
use crate::workspace::{Scratch, built};

/// A name that would be an element if it were inserted as HTML.
pub(crate) const HOSTILE: &str = "<img src=x>";

/// Where a program says its page is.
const PAGE: &str = "web page at http://";

/// What follows `mark` in a line, to the end of the address.
fn address_after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split(mark).nth(1)?.split(['/', ' ']).next()
}

/// Address of a daemon's bearer; the process id keeps two runs apart.
fn address(number: u32) -> String {
    let run = std::process::id();
    format!("127.{}.{}.{number}", 64 + run / 256 % 64, run % 256)
}

/// Programs, and the addresses of the pages of those that have one.
pub(crate) struct Programs<'a> {
    scratch: &'a Scratch,
    pub(crate) running: Vec<Running>,
}

impl<'a> Programs<'a> {
    pub(crate) fn none(scratch: &'a Scratch) -> Self {
        Self { scratch, running: Vec::new() }
    }

    /// Three daemons with services; returns the address of the first one's page.
    pub(crate) fn cluster(scratch: &'a Scratch) -> Result<(Self, String)> {
        let mut all = Self::none(scratch);
        let pages = (1..=3).map(|number| all.daemon(number)).collect::<Result<Vec<_>>>()?;
        for (number, instance, name) in
            [(1, 10, "quotes"), (2, 20, "orders"), (2, 21, "risk"), (3, 30, HOSTILE), (1, 11, HOSTILE)]
        {
            all.service(number, instance, name)?;
        }
        let words = "--rdm -t 18888 -w -1 --data_num 10000000 --data_size 200 --delay 2 20";
        let mut traffic = all.at_daemon(1, Command::new(built("utipc-pipe")));
        all.running.push(Running::start(traffic.args(words.split(' ')), Output::Standard)?);
        Ok((all, pages.into_iter().next().context("three daemons")?))
    }

    /// Starts daemon `number` of three; returns the address of its page.
    pub(crate) fn daemon(&mut self, number: u32) -> Result<String> {
        let others = (1..=3).filter(|other| *other != number).map(|other| format!("{:?}", address(other)));
        let config = format!(
            "[node]\nidentity = \"host-{number}\"\n[[bearer]]\nmedia = \"udp\"\nlocal = {:?}\nremotes = [{}]\n\
             tolerance_ms = 800\n[metrics]\nlisten = \"127.0.0.1:0\"\n",
            address(number),
            others.collect::<Vec<_>>().join(", ")
        );
        let file = self.scratch.join(format!("{number}.toml"));
        fs::write(&file, config).context("write a configuration")?;
        let socket = self.scratch.join(format!("{number}.sock"));
        let mut command = Command::new(built("utipcd"));
        command.arg("--config").arg(file).arg("--socket").arg(socket).env_remove("UTIPC_LOG");
        let mut daemon = Running::start(&mut command, Output::Error)?;
        let line = daemon.line_with(PAGE)?;
        self.running.push(daemon);
        Ok(address_after(&line, PAGE).context("an address")?.to_owned())
    }

    fn at_daemon(&self, number: u32, mut command: Command) -> Command {
        let socket = self.scratch.join(format!("{number}.sock"));
        command.env("UTIPC_SOCKET", socket).env("UTIPC_ENGINE", "daemon").stderr(Stdio::null());
        command
    }

    /// Serves {18888, instance} at a daemon, by a program of this name.
    fn service(&mut self, number: u32, instance: u32, name: &str) -> Result<()> {
        let program = self.scratch.join(name);
        if !program.exists() {
            fs::copy(built("utipc-pipe"), &program).context("copy utipc-pipe")?;
        }
        let mut command = self.at_daemon(number, Command::new(program));
        command.args(["--rdm", "-l", "-d", "-t", "18888", &instance.to_string()]);
        self.running.push(Running::start_with_input(&mut command)?);
        Ok(())
    }

    /// The demo's chain with a consumer that has a hostile name; returns the address of its page.
    pub(crate) fn market(scratch: &'a Scratch) -> Result<(Self, String)> {
        let mut all = Self::none(scratch);
        let mut command = Command::new(built("p2ps"));
        command.args(["--demo", "--metrics", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--cache", "true"]);
        command.env("UTIPC_ENGINE", "embedded").stderr(Stdio::null());
        let mut chain = Running::start(&mut command, Output::Standard)?;
        let mut listener = String::new();
        let page = loop {
            let line = chain.line_with(" at ")?;
            if let Some((_, at)) = line.split_once("listening at ") {
                at.clone_into(&mut listener);
            }
            if let Some(page) = address_after(&line, PAGE) {
                break page.to_owned();
            }
        };
        let (host, port) = listener.rsplit_once(':').context("p2ps names no listener")?;
        let mut command = Command::new(built("rmdstestclient"));
        command.args(["--host", host, "--port", port, "--item-count", "5", "--steady-state-time", "600"]);
        command.args(["--uname", HOSTILE]).stderr(Stdio::null());
        all.running.extend([chain, Running::start(&mut command, Output::Standard)?]);
        Ok((all, page))
    }
}
