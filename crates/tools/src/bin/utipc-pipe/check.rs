//! Writes received data to standard output, and with `--data_check` checks the numbers of its lines first.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Write};

use utipc::PortId;

/// Longest line that is checked; a numbered line is never longer.
const LONGEST: usize = 80_000;

/// Data received from one sender.
#[derive(Debug, Default)]
struct Lines {
    expected: u64,
    begun: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Output {
    check: bool,
    senders: BTreeMap<PortId, Lines>,
    missing: u64,
}

impl Output {
    pub(crate) fn new(check: bool) -> Self {
        Self { check, ..Self::default() }
    }

    pub(crate) fn write(&mut self, from: PortId, data: &[u8]) -> Result<(), Error> {
        if self.check {
            self.check(from, data);
        }
        let mut out = std::io::stdout().lock();
        out.write_all(data)?;
        out.flush()
    }

    fn check(&mut self, from: PortId, data: &[u8]) {
        let lines = self.senders.entry(from).or_default();
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            if lines.begun.len() + piece.len() <= LONGEST {
                lines.begun.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                if let Some(number) = number(&lines.begun)
                    && number != lines.expected
                {
                    eprintln!("utipc-pipe: from {from}: message {number} in place of {}", lines.expected);
                    self.missing += number.abs_diff(lines.expected);
                    lines.expected = number;
                }
                lines.expected += 1;
                lines.begun.clear();
            }
        }
    }

    /// Fails if a message was missing.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        if self.missing == 0 {
            return Ok(());
        }
        let text = format!("{} messages are missing or out of order (see the lines above)", self.missing);
        Err(Error::new(ErrorKind::InvalidData, text))
    }
}

/// The number of a numbered line.
fn number(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("message ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_lines_are_checked_for_each_sender() {
        let mut output = Output::new(true);
        let sender = |port| PortId { port, ..PortId::default() };
        output.check(sender(1), b"message 0 a\nmess");
        output.check(sender(2), b"message 0 b\nmessage 1 b\n");
        output.check(sender(1), b"age 1 a\n");
        output.verdict().unwrap();
        output.check(sender(1), b"message 4 a\n");
        assert_eq!(output.missing, 2);
        output.verdict().unwrap_err();
    }
}
