//! Prints containers.

use core::fmt;

use super::{Bytes, Printer, Sets};
use crate::rwf::{DataType, ElementList, FieldList, FilterList, Map, Series, Value, Vector};

/// Bytes of an element's name that are shown at most.
const MAX_NAME: usize = 100;

impl Printer<'_, '_> {
    pub(super) fn field_list(&mut self, depth: usize, data: &[u8], sets: &Sets<'_>) -> fmt::Result {
        // A copy, because the list borrows from data and definitions for the shorter of two lifetimes.
        let fields = sets.fields;
        let list = match FieldList::decode(data, fields.as_ref()) {
            Ok(list) => list,
            Err(e) => return self.bad(depth, &e),
        };
        if let Some(info) = list.info {
            self.line(depth, format_args!("dictionary {}, list {}", info.dictionary, info.list))?;
        }
        for field in list.entries() {
            let field = match field {
                Ok(field) => field,
                Err(e) => return self.bad(depth, &e),
            };
            let names = self.names;
            match names.field(field.id) {
                Some(known) => {
                    let label = format_args!("{} {}", field.id, known.name);
                    self.value(depth, label, known.data_type, Some(field.id), field.data)?;
                }
                None if field.set_type != DataType::UNKNOWN => {
                    self.value(
                        depth,
                        format_args!("{}", field.id),
                        field.set_type,
                        Some(field.id),
                        field.data,
                    )?;
                }
                None if field.data.is_empty() => {
                    self.line(depth, format_args!("{} {}", field.id, Value::Blank))?;
                }
                None => self.line(depth, format_args!("{} {}", field.id, Bytes(field.data)))?,
            }
        }
        Ok(())
    }

    pub(super) fn element_list(&mut self, depth: usize, data: &[u8], sets: &Sets<'_>) -> fmt::Result {
        let elements = sets.elements;
        let list = match ElementList::decode(data, elements.as_ref()) {
            Ok(list) => list,
            Err(e) => return self.bad(depth, &e),
        };
        if let Some(number) = list.info {
            self.line(depth, format_args!("list {number}"))?;
        }
        for element in list.entries() {
            match element {
                Ok(e) => {
                    // Names from a set definition can be repeated at no cost to the sender, so they are shortened.
                    let name = e.name.get(..MAX_NAME).unwrap_or(e.name);
                    let label = format_args!("{} {}", name.escape_ascii(), e.data_type);
                    if e.data_type.is_container() {
                        self.line(depth, label)?;
                        self.container(depth + 1, e.data_type, e.data, &Sets::default())?;
                    } else {
                        self.value(depth, label, e.data_type, None, e.data)?;
                    }
                }
                Err(e) => return self.bad(depth, &e),
            }
        }
        Ok(())
    }

    /// The part of maps, vectors and series before their entries.
    fn head(
        &mut self,
        depth: usize,
        container: DataType,
        summary: Option<&[u8]>,
        hint: Option<u32>,
        sets: &Sets<'_>,
    ) -> fmt::Result {
        self.line(depth, format_args!("of {container}"))?;
        if let Some(hint) = hint {
            self.line(depth, format_args!("about {hint} in all parts"))?;
        }
        match summary {
            Some(summary) => {
                self.line(depth, format_args!("summary"))?;
                self.container(depth + 1, container, summary, sets)
            }
            None => Ok(()),
        }
    }

    fn perm(&mut self, depth: usize, perm: Option<&[u8]>) -> fmt::Result {
        match perm {
            Some(perm) => self.line(depth, format_args!("permission {}", Bytes(perm))),
            None => Ok(()),
        }
    }

    pub(super) fn map(&mut self, depth: usize, data: &[u8]) -> fmt::Result {
        let map = match Map::decode(data) {
            Ok(map) => map,
            Err(e) => return self.bad(depth, &e),
        };
        let sets = Sets::decode(map.container, map.sets);
        if let Some(id) = map.key_field {
            self.line(depth, format_args!("keys of field {id}"))?;
        }
        self.head(depth, map.container, map.summary, map.hint, &sets)?;
        for entry in map.entries() {
            match entry {
                Ok(e) => {
                    match Value::decode(map.key_type, e.key) {
                        Ok(Value::Buffer(key)) => {
                            self.line(depth, format_args!("{:?} {}", e.action, Bytes(key)))
                        }
                        Ok(key) => self.line(depth, format_args!("{:?} {key}", e.action)),
                        Err(_) => self.line(depth, format_args!("{:?} {}", e.action, Bytes(e.key))),
                    }?;
                    self.perm(depth + 1, e.perm)?;
                    self.content(depth + 1, map.container, e.data, &sets)?;
                }
                Err(e) => return self.bad(depth, &e),
            }
        }
        Ok(())
    }

    pub(super) fn vector(&mut self, depth: usize, data: &[u8]) -> fmt::Result {
        let vector = match Vector::decode(data) {
            Ok(vector) => vector,
            Err(e) => return self.bad(depth, &e),
        };
        let sets = Sets::decode(vector.container, vector.sets);
        self.head(depth, vector.container, vector.summary, vector.hint, &sets)?;
        for entry in vector.entries() {
            match entry {
                Ok(e) => {
                    self.line(depth, format_args!("{:?} {}", e.action, e.index))?;
                    self.perm(depth + 1, e.perm)?;
                    self.content(depth + 1, vector.container, e.data, &sets)?;
                }
                Err(e) => return self.bad(depth, &e),
            }
        }
        Ok(())
    }

    pub(super) fn series(&mut self, depth: usize, data: &[u8]) -> fmt::Result {
        let series = match Series::decode(data) {
            Ok(series) => series,
            Err(e) => return self.bad(depth, &e),
        };
        let sets = Sets::decode(series.container, series.sets);
        self.head(depth, series.container, series.summary, series.hint, &sets)?;
        if series.container == DataType::NO_DATA {
            // Entries of no bytes: a small message could have 65535 lines.
            return self.line(depth, format_args!("{} entries", series.count));
        }
        for (number, entry) in series.entries().enumerate() {
            match entry {
                Ok(data) => {
                    self.line(depth, format_args!("entry {number}"))?;
                    self.content(depth + 1, series.container, data, &sets)?;
                }
                Err(e) => return self.bad(depth, &e),
            }
        }
        Ok(())
    }

    pub(super) fn filter_list(&mut self, depth: usize, data: &[u8]) -> fmt::Result {
        let list = match FilterList::decode(data) {
            Ok(list) => list,
            Err(e) => return self.bad(depth, &e),
        };
        for entry in list.entries() {
            match entry {
                Ok(e) => {
                    self.line(depth, format_args!("{:?} {} {}", e.action, e.id, e.container))?;
                    self.perm(depth + 1, e.perm)?;
                    self.content(depth + 1, e.container, e.data, &Sets::default())?;
                }
                Err(e) => return self.bad(depth, &e),
            }
        }
        Ok(())
    }

    /// Content of an entry, if it has any.
    fn content(&mut self, depth: usize, container: DataType, data: &[u8], sets: &Sets<'_>) -> fmt::Result {
        if data.is_empty() { Ok(()) } else { self.container(depth, container, data, sets) }
    }
}
