//! Bulk data through a STREAM.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::Answer;
use crate::args::{Args, Refusal};
use crate::node::Peer;
use crate::pattern;

/// Bytes per call, unless the request has another number.
const CHUNK: usize = 65536;

impl Peer {
    /// Writes pattern bytes `at .. length`; reports how many were written, and the error if not all were.
    pub(crate) fn write(&self, args: &Args) -> Answer {
        let (socket, seed, length) = (self.sock(args)?, args.seed()?, args.length("length")?);
        let chunk = args.length_or("chunk", CHUNK)?;
        let end = Instant::now() + args.milliseconds("timeout_ms", 60_000)?;
        let mut at = args.length_or("at", 0)?;
        let mut adler = 1;
        let mut error = None;
        let mut data = Vec::with_capacity(chunk);
        while at < length && error.is_none() {
            data.clear();
            pattern::extend(&mut data, seed, at, chunk.min(length - at));
            let left = end.saturating_duration_since(Instant::now());
            socket.set_send_timeout(Some(left.max(Duration::from_millis(1))));
            match socket.send(&data) {
                Ok(sent) => {
                    adler = pattern::checksum(data.get(..sent).unwrap_or_default(), adler);
                    at += sent;
                }
                Err(refused) => error = Some(Refusal::from(refused).to_string()),
            }
        }
        Ok(json!({"length": at, "adler": adler, "error": error}))
    }

    /// Reads pattern bytes `0 .. length`; reports how many arrived and where the first wrong one was.
    pub(crate) fn read(&self, args: &Args) -> Answer {
        let (socket, seed, length) = (self.sock(args)?, args.seed()?, args.length("length")?);
        let pause = args.microseconds("pause_us")?;
        let end = Instant::now() + args.milliseconds("timeout_ms", 60_000)?;
        let mut buffer = vec![0; args.length_or("chunk", CHUNK)?];
        let mut expected = Vec::new();
        let (mut at, mut adler, mut error, mut wrong_at) = (0, 1, None, None);
        while at < length && error.is_none() {
            socket.set_receive_timeout(Some(end.saturating_duration_since(Instant::now())));
            let room = buffer.len().min(length - at);
            let Some(into) = buffer.get_mut(..room) else { break };
            let data = match socket.receive_into(into) {
                Ok(got) if got.len == 0 => {
                    error = Some("EOF".to_owned());
                    break;
                }
                Ok(got) => into.get(..got.len).unwrap_or_default(),
                Err(refused) => {
                    error = Some(Refusal::from(refused).to_string());
                    break;
                }
            };
            expected.clear();
            pattern::extend(&mut expected, seed, at, data.len());
            if wrong_at.is_none() && data != expected {
                wrong_at = Some(at);
            }
            adler = pattern::checksum(data, adler);
            at += data.len();
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
        Ok(json!({"length": at, "adler": adler, "error": error, "wrong_at": wrong_at}))
    }
}
