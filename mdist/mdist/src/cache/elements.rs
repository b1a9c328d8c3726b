//! A cached element list: values by name, in the order of their first appearance.

use super::Result;
use super::node::{Context, Node, Sets};
use rssl::rwf::{DataType, Element, ElementList, ElementListWriter};
use rssl::wire::to_vec;

#[derive(Clone, Debug, Default)]
pub(super) struct Elements {
    info: Option<u16>,
    // Element lists are short: a linear search by name is faster than a table.
    list: Vec<Named>,
}

#[derive(Clone, Debug)]
struct Named {
    name: Box<[u8]>,
    data_type: DataType,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Plain(Box<[u8]>),
    Container(Node),
}

impl Elements {
    pub(super) fn apply(&mut self, list: &ElementList<'_>, cx: &mut Context<'_>) -> Result<()> {
        self.info = list.info.or(self.info);
        for element in list.entries() {
            let element = element?;
            let at = self.list.iter().position(|e| *e.name == *element.name);
            let old = at.and_then(|at| self.list.get_mut(at));
            match old {
                Some(Named { data_type, value: Value::Container(node), .. })
                    if *data_type == element.data_type =>
                {
                    node.apply(element.data_type, element.data, &Sets::default(), cx)?;
                }
                Some(old) => {
                    old.data_type = element.data_type;
                    old.value = value(&element, cx)?;
                }
                None => {
                    let value = value(&element, cx)?;
                    self.list.push(Named { name: element.name.into(), data_type: element.data_type, value });
                }
            }
        }
        Ok(())
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) -> Result<()> {
        // Emit contents first: the writing is repeated if its buffer is too small.
        let mut values = Vec::with_capacity(self.list.len());
        for element in &self.list {
            values.push(match &element.value {
                Value::Plain(bytes) => std::borrow::Cow::Borrowed(&**bytes),
                Value::Container(node) => {
                    let mut bytes = Vec::new();
                    node.emit(&mut bytes)?;
                    bytes.into()
                }
            });
        }
        out.extend_from_slice(&to_vec(|w| {
            let mut list = match self.info {
                Some(info) => ElementListWriter::with_info(w, info)?,
                None => ElementListWriter::new(w)?,
            };
            for (element, value) in self.list.iter().zip(&values) {
                list.element(&element.name, element.data_type, value)?;
            }
            list.finish()
        })?);
        Ok(())
    }

    pub(super) fn entries(&self) -> usize {
        let inside = |e: &Named| match &e.value {
            Value::Plain(_) => 0,
            Value::Container(node) => node.entries(),
        };
        self.list.iter().map(|e| 1 + inside(e)).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        let value = |e: &Named| match &e.value {
            Value::Plain(bytes) => bytes.len(),
            Value::Container(node) => node.bytes(),
        };
        size_of::<Self>()
            + self.list.capacity() * size_of::<Named>()
            + self.list.iter().map(|e| e.name.len() + value(e)).sum::<usize>()
    }
}

fn value(element: &Element<'_>, cx: &mut Context<'_>) -> Result<Value> {
    if element.data_type.is_container() {
        return Node::from(element.data_type, element.data, &Sets::default(), cx).map(Value::Container);
    }
    if matches!(element.set_type, DataType::REAL_4RB | DataType::REAL_8RB)
        && let [hint, mantissa @ ..] = element.data
    {
        // In a set the two top bits of the hint are the length; in a plain value they are zero.
        return Ok(Value::Plain([&[hint & 0x3f], mantissa].concat().into()));
    }
    Ok(Value::Plain(element.data.into()))
}
