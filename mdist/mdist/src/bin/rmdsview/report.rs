//! The lines that are printed.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use rssl::rwf::{State, code};
use serde_json::{Map, Value, json};
use utipc_cli::say;

use super::catalogue::Catalogue;
use super::fields::Shown;

/// What was received of an item.
pub(super) struct Message<'a> {
    /// The item's name.
    pub(super) item: &'a str,
    /// The service's name.
    pub(super) service: &'a str,
    /// "image", "update" or "status".
    pub(super) kind: &'static str,
    /// The state, of images and statuses.
    pub(super) state: Option<State<'a>>,
    /// The fields to show.
    pub(super) fields: Vec<Shown>,
    /// The payload as text, if it is not a field list.
    pub(super) other: Option<String>,
}

/// Prints messages as lines for people, or as lines of JSON.
pub(super) fn print(message: &Message<'_>, json: bool) -> Result<()> {
    if json { print_json(message) } else { print_text(message) }
}

fn print_json(message: &Message<'_>) -> Result<()> {
    let mut line = Map::new();
    line.insert("time".into(), json!(since_epoch().as_secs_f64()));
    line.insert("service".into(), message.service.into());
    line.insert("item".into(), message.item.into());
    line.insert("type".into(), message.kind.into());
    if let Some(state) = &message.state {
        line.insert(
            "state".into(),
            json!({
                "stream": format!("{:?}", state.stream), "data": format!("{:?}", state.data),
                "code": code_name(state), "text": String::from_utf8_lossy(state.text),
            }),
        );
    }
    if let Some(other) = &message.other {
        line.insert("payload".into(), other.as_str().into());
    } else if message.kind != "status" {
        let fields = message.fields.iter().map(|field| (field.name.clone(), field.json.clone()));
        line.insert("fields".into(), Value::Object(fields.collect()));
    }
    Ok(say!("{}", Value::Object(line))?)
}

fn print_text(message: &Message<'_>) -> Result<()> {
    let head = format!("{} {:<12} {}", time_of_day(), message.item, message.kind);
    let state = message.state.as_ref().map(state_text).unwrap_or_default();
    if message.kind == "update" && message.other.is_none() {
        let fields: Vec<_> =
            message.fields.iter().map(|field| format!("{} {}", field.name, field.text)).collect();
        return Ok(say!("{head}  {}", fields.join("  "))?);
    }
    let mut text = format!("{head}  {}{state}", message.service);
    let width = message.fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    for field in &message.fields {
        text += &format!("\n    {:width$}  {}", field.name, field.text);
    }
    for line in message.other.iter().flat_map(|other| other.lines()) {
        text += &format!("\n    {line}");
    }
    Ok(say!("{text}")?)
}

fn code_name(state: &State<'_>) -> String {
    code::text(state.code).map_or_else(|| state.code.to_string(), str::to_owned)
}

/// The state as people read it, after two blanks.
fn state_text(state: &State<'_>) -> String {
    let code = if state.code == code::NONE { String::new() } else { format!(", {}", code_name(state)) };
    let text = String::from_utf8_lossy(state.text);
    let text = if text.is_empty() { String::new() } else { format!(": {text}") };
    format!("  {:?}, {:?}{code}{text}", state.stream, state.data)
}

/// Prints the services of a server.
pub(super) fn services(catalogue: &Catalogue, json: bool) -> Result<()> {
    for (id, name, up) in catalogue.all().into_iter().flatten() {
        if json {
            say!("{}", json!({ "id": id, "service": name, "up": up }))?;
        } else {
            say!("{id:>5}  {name}  {}", if up { "up" } else { "down" })?;
        }
    }
    Ok(())
}

fn since_epoch() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time of day, UTC, with milliseconds.
fn time_of_day() -> String {
    let now = since_epoch();
    let seconds = now.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, now.subsec_millis())
}
