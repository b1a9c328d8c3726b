//! Checks the tables, keys and types of a configuration against the list of keys, so that each fault is reported in
//! the user's terms.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{Key, Kind, SECTIONS, Section, is_address, nearest};

/// The faults of a parsed file, each with its place in the text.
pub(super) fn faults(table: &DeTable<'_>) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    for (name, value) in table {
        let start = name.span().start;
        let known = SECTIONS.iter().find(|section| section.name == name.get_ref());
        match (known, value.get_ref()) {
            (Some(section), DeValue::Table(keys)) if !section.is_list => {
                check_table(section, keys, &mut faults);
            }
            (Some(section), DeValue::Array(all))
                if section.is_list && all.iter().all(|one| matches!(one.get_ref(), DeValue::Table(_))) =>
            {
                for one in all {
                    if let DeValue::Table(keys) = one.get_ref() {
                        check_table(section, keys, &mut faults);
                        if !keys.contains_key("media") {
                            let text = "media is missing (write \"udp\", \"ethernet\" or \"host\")";
                            faults.push((one.span().start, text.to_owned()));
                        }
                    }
                }
            }
            (Some(section), _) => {
                let header =
                    if section.is_list { "[[bearer]]".to_owned() } else { format!("[{}]", section.name) };
                let text = format!("{} is not a table (write {header}, and its keys below)", section.name);
                faults.push((start, text));
            }
            (None, _) => faults.push((start, unknown_table(name.get_ref()))),
        }
    }
    faults
}

fn unknown_table(name: &str) -> String {
    let holder = SECTIONS.iter().find(|section| section.keys.iter().any(|key| key.name == name));
    let names: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
    match holder {
        Some(section) if section.is_list => {
            format!("{name} is outside of its table (write it below [[bearer]])")
        }
        Some(section) => format!("{name} is outside of its table (write it below [{}])", section.name),
        None => format!("unknown table {name} ({})", nearest(name, &names)),
    }
}

fn check_table(section: &Section, keys: &DeTable<'_>, faults: &mut Vec<(usize, String)>) {
    for (name, value) in keys {
        let Some(key) = section.keys.iter().find(|key| key.name == name.get_ref()) else {
            let names: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
            let text = format!(
                "unknown key {} in {} ({})",
                name.get_ref(),
                section.name,
                nearest(name.get_ref(), &names)
            );
            faults.push((name.span().start, text));
            continue;
        };
        if let Some((byte, text)) = check_value(key, value) {
            faults.push((byte.unwrap_or(name.span().start), text));
        }
    }
}

/// The fault of a value, and its place if it is in a list.
fn check_value(key: &Key, value: &Spanned<DeValue<'_>>) -> Option<(Option<usize>, String)> {
    let wrong = |why: &str| {
        let text = format!("{} = {}: {why} (write {})", key.name, shown(value.get_ref()), key.wanted());
        Some((None, text))
    };
    match (key.kind, value.get_ref()) {
        (Kind::Text, DeValue::String(_)) => None,
        (Kind::Choice(all), DeValue::String(text)) if all.contains(&text.as_ref()) => None,
        (Kind::Choice(_), DeValue::String(_)) => wrong("unknown"),
        (Kind::Number(least, most, _), DeValue::Integer(number)) => {
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok();
            if number.is_some_and(|number| (least..=most).contains(&number)) {
                None
            } else {
                wrong("out of range")
            }
        }
        (Kind::Address, DeValue::String(text)) if is_address(text) => None,
        (Kind::Address, DeValue::String(_)) => wrong("not an address"),
        (Kind::Addresses, DeValue::Array(all)) => all.iter().find_map(|one| match one.get_ref() {
            DeValue::String(text) if is_address(text) => None,
            other => {
                let text =
                    format!("{}: {} is not an address (write {})", key.name, shown(other), key.wanted());
                Some((Some(one.span().start), text))
            }
        }),
        (Kind::Hosts, DeValue::Array(all)) => {
            let wrong = all.iter().find(|one| !matches!(one.get_ref(), DeValue::String(_)))?;
            let text =
                format!("{}: {} is not text (write {})", key.name, shown(wrong.get_ref()), key.wanted());
            Some((Some(wrong.span().start), text))
        }
        (Kind::Users, users) => check_users(key.name, users, value.span().start)
            .or_else(|| if matches!(users, DeValue::Array(_)) { None } else { wrong(kind(users)) }),
        (Kind::Bindings, DeValue::Table(types)) => types.iter().find_map(|(name, users)| {
            let label = format!("bind.{:?}", name.get_ref());
            check_users(&label, users.get_ref(), users.span().start).or_else(|| {
                let text = format!("{label} = {}: {}", shown(users.get_ref()), kind(users.get_ref()));
                let is_list = matches!(users.get_ref(), DeValue::Array(_));
                (!is_list).then(|| {
                    (Some(name.span().start), format!("{text} (write a list of users, as in [\"feed\"])"))
                })
            })
        }),
        (Kind::Flag, DeValue::Boolean(_)) => None,
        (Kind::Files, DeValue::Table(files)) => {
            let (name, file) =
                files.iter().find(|(_, file)| !matches!(file.get_ref(), DeValue::String(_)))?;
            let text = format!("{}: {} is not a path in quotes", name.get_ref(), shown(file.get_ref()));
            Some((Some(name.span().start), format!("{text} (write {})", key.wanted())))
        }
        (_, other) => wrong(kind(other)),
    }
}

fn check_users(label: &str, users: &DeValue<'_>, start: usize) -> Option<(Option<usize>, String)> {
    let DeValue::Array(all) = users else { return None };
    let wrong = all.iter().find(|one| !matches!(one.get_ref(), DeValue::String(_)))?;
    let text = format!("{label}: {} is not text (write users in quotes)", shown(wrong.get_ref()));
    Some((Some(wrong.span().start.max(start)), text))
}

/// The type of a value, in the user's terms.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text in quotes",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A value as the user wrote it, if it is short.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is) => is.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) => "[…]".to_owned(),
        DeValue::Table(_) => "{…}".to_owned(),
    }
}
