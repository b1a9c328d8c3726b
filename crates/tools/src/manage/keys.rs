//! `node get key`, and keys from files.

use utipc::daemon::key_file;
use utipc_manage::{Entry, Errno, KeyState, Refusal, Request, Secret};

use super::call::{Call, Ended, Failure, needed};
use super::identity;
use super::output::Output;
use crate::operate::text::duration;

/// State, slot, age and origin of every key of the node.
pub(super) fn show(call: &mut Call) -> Ended {
    let keys = match call.ask(&Request::Keys) {
        Err(Failure::Refused(Refusal { errno: Errno::NOT_SUPPORTED, .. })) => {
            return Err(Failure::Unable(
                "this node does not show its keys (use a daemon of this release)".to_owned(),
            ));
        }
        reply => reply?,
    };
    call.begin();
    call.out.text(&format!(
        "{:<32} {:<4} {:<8} {:<8} {:<16} {:<12} {:<5} {}\n",
        "Sender", "Slot", "State", "Mode", "Fingerprint", "Age", "Users", "Introduced by"
    ));
    for entry in keys {
        if let Entry::Key(key) = entry {
            call.out.object("", |out| print(out, &key));
        }
    }
    call.out.end();
    Ok(())
}

fn print(out: &mut Output, key: &KeyState) {
    let sender = key.peer.as_ref().map_or_else(|| "this node".to_owned(), identity::show);
    let (fingerprint, age) = (format!("{:016x}", key.fingerprint), duration(key.age_ms));
    out.any("sender", sender.as_str(), &format!("{sender:<32} "));
    out.any("slot", key.slot, &format!("{:<4} ", key.slot));
    out.any("state", key.state.as_str(), &format!("{:<8} ", key.state));
    out.any("mode", key.mode.as_str(), &format!("{:<8} ", key.mode));
    out.any("fingerprint", fingerprint.as_str(), &format!("{fingerprint} "));
    out.any("age_ms", key.age_ms, &format!("{age:<12} "));
    out.any("users", key.users, &format!("{:<5} ", key.users));
    out.any("introduced_by", key.introduced_by.as_str(), &format!("{}\n", key.introduced_by));
}

/// The key in the file that the next word names, so that lists of processes do not show it.
pub(super) fn from_file(call: &mut Call) -> Result<Secret, Failure> {
    let path = needed(call.words.next(), "the key file")?;
    let key = key_file::read(path.as_ref()).map_err(|error| Failure::Unable(error.to_string()))?;
    Ok(Secret { algorithm: "gcm(aes)".to_owned(), bytes: key.bytes().to_vec().into() })
}
