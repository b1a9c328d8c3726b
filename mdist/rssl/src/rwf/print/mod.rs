//! Messages as indented text.

mod containers;
mod message;
#[cfg(test)]
mod tests;

use core::fmt;

use super::rmtes::Text;
use super::{DataType, ElementSets, Enum, FieldSets, Value};
use crate::Error;
use crate::limits::MAX_DEPTH;

/// Name and type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldName<'a> {
    /// Name.
    pub name: &'a str,
    /// Type of its values.
    pub data_type: DataType,
}

/// Names and types of fields, and meanings of enumerated values.
pub trait Names {
    /// The field `id`; `None` if it is unknown.
    fn field(&self, id: i16) -> Option<FieldName<'_>>;

    /// The display of a value of the enumerated field `id`, as RMTES text; `None` if it is unknown.
    fn enumeration(&self, id: i16, value: u16) -> Option<&[u8]>;
}

/// No names: fields are shown as ids and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn field(&self, _: i16) -> Option<FieldName<'_>> {
        None
    }

    fn enumeration(&self, _: i16, _: u16) -> Option<&[u8]> {
        None
    }
}

/// Shows a message, one part per line; a malformed part is marked in its place.
#[derive(Clone, Copy)]
pub struct Printed<'a> {
    message: &'a [u8],
    names: &'a dyn Names,
}

impl<'a> Printed<'a> {
    /// The message `message`, with names from `names`.
    #[must_use]
    pub const fn new(message: &'a [u8], names: &'a dyn Names) -> Self {
        Self { message, names }
    }
}

impl fmt::Debug for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer { out: f, names: self.names, level: 0 }.message(0, self.message)
    }
}

/// Set definitions of the enclosing container.
#[derive(Default)]
struct Sets<'a> {
    fields: Option<FieldSets<'a>>,
    elements: Option<ElementSets<'a>>,
}

impl<'a> Sets<'a> {
    /// The definitions of a container whose entries are `container`s; malformed ones are ignored.
    fn decode(container: DataType, definitions: Option<&'a [u8]>) -> Self {
        let definitions = definitions.unwrap_or_default();
        Self {
            fields: FieldSets::decode(definitions).ok().filter(|_| container == DataType::FIELD_LIST),
            elements: ElementSets::decode(definitions).ok().filter(|_| container == DataType::ELEMENT_LIST),
        }
    }
}

struct Printer<'p, 'f> {
    out: &'p mut fmt::Formatter<'f>,
    names: &'p dyn Names,
    /// Number of containers around the current one.
    level: usize,
}

impl Printer<'_, '_> {
    /// One line, indented by two blanks per level.
    fn line(&mut self, depth: usize, text: fmt::Arguments<'_>) -> fmt::Result {
        writeln!(self.out, "{:1$}{text}", "", depth * 2)
    }

    fn bad(&mut self, depth: usize, error: &Error) -> fmt::Result {
        self.line(depth, format_args!("(malformed: {error})"))
    }

    /// A value on the line of `label`, or a container on the lines after it.
    fn value(
        &mut self,
        depth: usize,
        label: fmt::Arguments<'_>,
        data_type: DataType,
        field: Option<i16>,
        data: &[u8],
    ) -> fmt::Result {
        if data_type.is_container() && !data.is_empty() {
            self.line(depth, format_args!("{label} {data_type}"))?;
            return self.container(depth + 1, data_type, data, &Sets::default());
        }
        match Value::decode(data_type, data) {
            Ok(Value::Enum(Enum(v))) => match field.and_then(|id| self.names.enumeration(id, v)) {
                Some(shown) => self.line(depth, format_args!("{label} {v} \"{}\"", Text(shown))),
                None => self.line(depth, format_args!("{label} {v}")),
            },
            Ok(value) => self.line(depth, format_args!("{label} {value}")),
            Err(e) => self.line(depth, format_args!("{label} (malformed: {e}) {}", Hex(data))),
        }
    }

    fn container(&mut self, depth: usize, container: DataType, data: &[u8], sets: &Sets<'_>) -> fmt::Result {
        if self.level == MAX_DEPTH {
            return self.bad(depth, &Error::Depth(MAX_DEPTH));
        }
        self.level += 1;
        let shown = self.container_inner(depth, container, data, sets);
        self.level -= 1;
        shown
    }

    fn container_inner(
        &mut self,
        depth: usize,
        container: DataType,
        data: &[u8],
        sets: &Sets<'_>,
    ) -> fmt::Result {
        match container {
            DataType::NO_DATA if data.is_empty() => Ok(()),
            DataType::MSG => self.message(depth, data),
            DataType::FIELD_LIST => self.field_list(depth, data, sets),
            DataType::ELEMENT_LIST => self.element_list(depth, data, sets),
            DataType::MAP => self.map(depth, data),
            DataType::FILTER_LIST => self.filter_list(depth, data),
            DataType::VECTOR => self.vector(depth, data),
            DataType::SERIES => self.series(depth, data),
            DataType::XML | DataType::JSON => self.line(depth, format_args!("{}", super::rmtes::Utf8(data))),
            _ => self.line(depth, format_args!("{}", Hex(data))),
        }
    }
}

/// Bytes as hexadecimal digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Bytes as text in quotes if all are printable ASCII, else as hexadecimal digits.
struct Bytes<'a>(&'a [u8]);

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.iter().all(|b| (0x20..0x7F).contains(b)) {
            write!(f, "\"{}\"", Text(self.0))
        } else {
            Hex(self.0).fmt(f)
        }
    }
}
