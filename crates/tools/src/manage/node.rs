//! `node list|get|set|flush`.

use serde_json::Value;
use utipc::NodeAddr;
use utipc_manage::{Entry, KeyChange, REKEY_NOW, Request, Secret};
use zeroize::Zeroizing;

use super::call::{Call, Ended, Failure, needed, number};
use super::words::Key;
use super::{identity, keys};

pub(super) fn list(call: &mut Call) -> Ended {
    let reply = call.ask(&Request::Nodes)?;
    call.begin();
    call.out.text("Node Identity                    Hash     State\n");
    for entry in reply {
        if let Entry::Node(node) = entry {
            let name = call.identity_of(node.address)?;
            let state = if node.up { "up" } else { "down" };
            call.out.object("", |out| {
                out.any("identity", name.as_str(), &format!("{name:<32} "));
                out.any("address", hexadecimal(node.address).as_str(), &format!("{:08x} ", node.address));
                out.any("state", state, &format!("{state}\n"));
            });
        }
    }
    call.out.end();
    Ok(())
}

/// Counters of the node and its daemon; utipc's own command.
pub(super) fn counters(call: &mut Call) -> Ended {
    let text = call.counters()?;
    let wrong = || Failure::Unable("the daemon's counters are malformed (use the same release)".to_owned());
    let counters: Value = serde_json::from_slice(&text).map_err(|_| wrong())?;
    let mut out = String::new();
    match (call.options.json, call.options.pretty) {
        (true, true) => out = format!("{counters:#}\n"),
        (true, false) => out = format!("{counters}\n"),
        (false, _) => lines(&mut out, "", &counters),
    }
    call.out.raw(&out);
    Ok(())
}

/// One line for each value, with its path. The depth equals that of the daemon's types.
fn lines(out: &mut String, path: &str, value: &Value) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| lines(out, &below(name), value)),
        Value::Array(all) => (0..).zip(all).for_each(|(n, value): (usize, _)| {
            lines(out, &below(&n.to_string()), value);
        }),
        Value::String(text) => out.push_str(&format!("{path:<40} {text}\n")),
        other => out.push_str(&format!("{path:<40} {other}\n")),
    }
}

/// An address in the notation of utipc (docs/glossary.md).
pub(super) fn hexadecimal(address: u32) -> String {
    NodeAddr(address).to_string()
}

pub(super) fn get_address(call: &mut Call) -> Ended {
    let address = call.net()?.address.unwrap_or(0);
    call.print("address", hexadecimal(address).as_str(), &format!("{address:08x}\n"));
    Ok(())
}

pub(super) fn get_identity(call: &mut Call) -> Ended {
    let net = call.net()?;
    let (identity, address) = (identity::show(&net.identity), net.address.unwrap_or(0));
    call.begin();
    call.out.text("Node Identity                    Hash\n");
    call.out.object("", |out| {
        out.any("identity", identity.as_str(), &format!("{identity:<33}"));
        out.any("address", hexadecimal(address).as_str(), &format!("{address:08x}\n"));
    });
    call.out.end();
    Ok(())
}

pub(super) fn get_cluster(call: &mut Call) -> Ended {
    let net = call.net()?;
    call.print("clusterid", net.id, &format!("{}\n", net.id));
    Ok(())
}

pub(super) fn set_address(call: &mut Call) -> Ended {
    let address = address(call)?;
    call.finish()?;
    call.order(&Request::NetSet { id: None, address: Some(address), identity: None })
}

pub(super) fn set_identity(call: &mut Call) -> Ended {
    let identity = identity(call)?;
    call.finish()?;
    call.order(&Request::NetSet { id: None, address: None, identity: Some(identity) })
}

pub(super) fn set_cluster(call: &mut Call) -> Ended {
    let id = call.number()?;
    call.finish()?;
    call.order(&Request::NetSet { id: Some(id), address: None, identity: None })
}

/// The next word as an address: `Z.C.N`, or hexadecimal.
pub(super) fn address(call: &mut Call) -> Result<u32, Failure> {
    let word = needed(call.words.next(), "the address")?;
    let wrong = || {
        let remedy = "write it as Z.C.N, as in 1.1.7, or hexadecimal, as in 1001007";
        Failure::Words(format!("{word:?} is not an address ({remedy})"))
    };
    let address = identity::address(&word).or_else(|| identity::hexadecimal_address(&word));
    address.filter(|address| *address != 0).ok_or_else(wrong)
}

/// The next word as an identity.
pub(super) fn identity(call: &mut Call) -> Result<[u8; 16], Failure> {
    let word = needed(call.words.next(), "the identity")?;
    let wrong = "is not an identity (use at most 16 of a-z A-Z 0-9 - _ . : @, or 32 hexadecimal digits)";
    identity::read(&word).ok_or_else(|| Failure::Words(format!("{word:?} {wrong}")))
}

/// Keys after the key itself, as in iproute2.
const KEY_KEYS: [Key; 4] = [("algname", true), ("nodeid", true), ("master", false), ("rekeying", true)];

/// A key, its properties, and the interval of session keys; or that interval alone.
pub(super) fn set_key(call: &mut Call) -> Ended {
    let mut change = KeyChange::default();
    let word = needed(call.words.next(), "the key")?;
    let is_interval = word == "rekeying";
    let of_file = if word == "file" { Some(keys::from_file(call)?) } else { None };
    if is_interval {
        call.words.back();
    }
    let options = call.keys(&KEY_KEYS)?;
    if of_file.is_some() {
        change.key = of_file;
    } else if !is_interval {
        let bytes = key_bytes(&word)?;
        let algorithm = options.get("algname").unwrap_or("gcm(aes)").to_owned();
        change.key = Some(Secret { algorithm, bytes });
    }
    let wrong = "is not an identity (use at most 16 of a-z A-Z 0-9 - _ . : @, or 32 hexadecimal digits)";
    let identity =
        |text: &str| identity::read(text).ok_or_else(|| Failure::Words(format!("{text:?} {wrong}")));
    change.identity = options.get("nodeid").map(identity).transpose()?;
    change.master = options.get("master").is_some();
    change.rekeying = options.get("rekeying").map(interval).transpose()?;
    if change.master && change.identity.is_some() {
        return Err(Failure::Words("a master key belongs to all nodes (leave out nodeid)".to_owned()));
    }
    call.order(&Request::KeySet(change))
}

/// A key as `0x` and hexadecimal digits, or as text.
fn key_bytes(word: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) else {
        return Ok(Zeroizing::new(word.as_bytes().to_vec()));
    };
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    });
    let bytes: Option<Vec<u8>> = pairs.collect();
    let wrong =
        || Failure::Words("the key is not a hexadecimal number with an even number of digits".to_owned());
    bytes.map(Zeroizing::new).ok_or_else(wrong)
}

/// The interval of session keys.
fn interval(word: &str) -> Result<u32, Failure> {
    match word {
        "now" => Ok(REKEY_NOW),
        minutes => number(minutes),
    }
}

pub(super) fn flush_keys(call: &mut Call) -> Ended {
    call.order(&Request::KeyFlush)
}
