//! ELEMENT_LIST: values with names and types. Spec: rssl.md §4.2.

use super::array::{write_ints, write_qos, write_strings, write_uints};
use super::sets::{ElementSets, read_value};
use super::{DataType, Qos, Real, State, Value, int, uint};
use crate::wire::{Reader, Writer};
use crate::{Error, Named, Result};

const INFO: u8 = 0x1;
const SET_DATA: u8 = 0x2;
const SET_ID: u8 = 0x4;
const STANDARD: u8 = 0x8;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Plain type of the value, also if the set definition has a form of fixed size.
    pub data_type: DataType,
    /// The value, undecoded; empty is blank.
    pub data: &'a [u8],
    /// Type in the set definition; [`DataType::UNKNOWN`] for an element that came with its name.
    pub set_type: DataType,
}

impl<'a> Element<'a> {
    /// The value.
    ///
    /// # Errors
    /// Bytes that are not a value of the type.
    pub fn value(&self) -> Result<Value<'a>> {
        Value::decode(self.data_type, self.data)
    }

    /// The value, if it is an unsigned integer (or an integer that is not negative).
    #[must_use]
    pub fn uint(&self) -> Option<u64> {
        match self.value() {
            Ok(Value::UInt(v)) => Some(v),
            Ok(Value::Int(v)) => u64::try_from(v).ok(),
            _ => None,
        }
    }
}

/// An element list, over borrowed bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ElementList<'a> {
    /// Number of the template, if present.
    pub info: Option<u16>,
    definition: &'a [u8],
    set_data: &'a [u8],
    count: u16,
    standard: &'a [u8],
}

impl<'a> ElementList<'a> {
    /// Reads everything before the elements. No bytes at all are an empty list.
    ///
    /// # Errors
    /// Cut short; [`Error::NoSet`] for a set that `sets` does not define.
    pub fn decode(bytes: &'a [u8], sets: Option<&ElementSets<'a>>) -> Result<Self> {
        let mut list = Self::default();
        if bytes.is_empty() {
            return Ok(list);
        }
        let mut r = Reader::new(bytes);
        let flags = r.u8()?;
        if flags & INFO != 0 {
            let mut info = Reader::new(r.buf8().named("element list info")?);
            list.info = Some(info.u16().named("element list number")?);
        }
        if flags & SET_DATA != 0 {
            let id = if flags & SET_ID != 0 { r.rb15().named("set id")? } else { 0 };
            list.definition = sets.map_or(Err(Error::NoSet(id)), |s| s.get(id))?;
            let n = if flags & STANDARD != 0 { usize::from(r.rb15().named("set length")?) } else { r.left() };
            list.set_data = r.bytes(n).named("set data")?;
        }
        if flags & STANDARD != 0 {
            list.count = r.u16().named("element count")?;
            list.standard = r.rest();
        }
        Ok(list)
    }

    /// The elements: those of the set first.
    #[must_use]
    pub const fn entries(&self) -> Elements<'a> {
        Elements {
            definition: Reader::new(self.definition),
            set_data: Reader::new(self.set_data),
            r: Reader::new(self.standard),
            left: self.count,
        }
    }

    /// The element `name`, the first if there are several; `None` also if an error comes before it.
    #[must_use]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<Element<'a>> {
        self.entries().map_while(Result::ok).find(|e| e.name == name.as_ref())
    }
}

/// Elements of an [`ElementList`]; ends after the first error.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    definition: Reader<'a>,
    set_data: Reader<'a>,
    r: Reader<'a>,
    left: u16,
}

impl<'a> Elements<'a> {
    fn next_of_set(&mut self) -> Result<Element<'a>> {
        let name = self.definition.buf15()?;
        let set_type = DataType(self.definition.u8()?);
        let data = read_value(&mut self.set_data, set_type).named("element of a set")?;
        Ok(Element { name, data_type: set_type.base(), data, set_type })
    }

    fn next_standard(&mut self) -> Result<Element<'a>> {
        let name = self.r.buf15().named("element name")?;
        let data_type = DataType(self.r.u8().named("element type")?);
        let data =
            if data_type == DataType::NO_DATA { &[] } else { self.r.buf16().named("element value")? };
        Ok(Element { name, data_type: data_type.base(), data, set_type: DataType::UNKNOWN })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = if self.definition.is_empty() {
            self.left = self.left.checked_sub(1)?;
            self.next_standard()
        } else {
            self.next_of_set()
        };
        if element.is_err() {
            self.left = 0;
            self.definition = Reader::new(&[]);
        }
        Some(element)
    }
}

/// Methods that add an element of one type.
macro_rules! typed {
    ($(
        $(#[$doc:meta])*
        $name:ident($($value:ident: $type:ty),*) $data_type:ident, $method:ident $content:expr;
    )*) => {
        $(
            $(#[$doc])*
            pub fn $name(&mut self, name: impl AsRef<[u8]>, $($value: $type),*) -> Result<()> {
                self.$method(name, DataType::$data_type, $content)
            }
        )*
    };
}

/// Writes an element list; the count is filled in by [`ElementListWriter::finish`]. The methods that add an element
/// have the errors of [`ElementListWriter::element`].
#[derive(Debug)]
pub struct ElementListWriter<'w, 'b> {
    w: &'w mut Writer<'b>,
    count_at: usize,
    count: u16,
}

impl<'w, 'b> ElementListWriter<'w, 'b> {
    /// Begins a list.
    pub fn new(w: &'w mut Writer<'b>) -> Result<Self> {
        w.u8(STANDARD)?;
        Self::begin(w)
    }

    /// Begins a list that follows the template `number`.
    pub fn with_info(w: &'w mut Writer<'b>, number: u16) -> Result<Self> {
        w.u8(STANDARD | INFO)?;
        w.u8(2)?;
        w.u16(number)?;
        Self::begin(w)
    }

    /// Begins a list whose first values are those of the set `set`, written by `f` with
    /// [`super::sets::write_value`].
    ///
    /// # Errors
    /// Those of `f`; [`Error::Full`].
    pub fn with_set(
        w: &'w mut Writer<'b>,
        set: u16,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<Self> {
        w.u8(STANDARD | SET_DATA | SET_ID)?;
        w.rb15(set).named("set id")?;
        w.nested15(f).named("set data")?;
        Self::begin(w)
    }

    fn begin(w: &'w mut Writer<'b>) -> Result<Self> {
        let count_at = w.len();
        w.u16(0)?;
        Ok(Self { w, count_at, count: 0 })
    }

    fn head(&mut self, name: &[u8], data_type: DataType) -> Result<()> {
        self.count = self.count.checked_add(1).ok_or(Error::TooLong {
            what: "element list",
            len: 65536,
            max: 65535,
        })?;
        self.w.buf15(name).named("element name")?;
        self.w.u8(data_type.0)
    }

    /// Adds an element of any type from its encoded value; an empty value is blank.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::TooLong`] for a name above 32767 or a value above 65535 bytes.
    pub fn element(&mut self, name: impl AsRef<[u8]>, data_type: DataType, bytes: &[u8]) -> Result<()> {
        self.head(name.as_ref(), data_type)?;
        if data_type == DataType::NO_DATA { Ok(()) } else { self.w.buf16(bytes).named("element") }
    }

    /// Adds an element that was read from another list, whether it came with its name or from a set.
    pub fn copy(&mut self, element: &Element<'_>) -> Result<()> {
        if let (DataType::REAL_4RB | DataType::REAL_8RB, Ok(Value::Real(real))) =
            (element.set_type, element.value())
        {
            return self.real(element.name, real);
        }
        self.element(element.name, element.data_type, element.data)
    }

    typed! {
        /// UINT.
        uint(value: u64) UINT, element &uint::to_bytes(value);
        /// INT.
        int(value: i64) INT, element &int::to_bytes(value);
        /// REAL.
        real(value: Real) REAL, element &value.to_bytes();
        /// DOUBLE.
        double(value: f64) DOUBLE, element &value.to_be_bytes();
        /// ASCII_STRING.
        ascii(value: impl AsRef<[u8]>) ASCII_STRING, element value.as_ref();
        /// BUFFER.
        buffer(value: &[u8]) BUFFER, element value;
        /// QOS.
        qos(value: Qos) QOS, container |w| value.write(w);
        /// STATE.
        state(value: &State<'_>) STATE, container |w| value.write(w);
        /// ARRAY of UINT, with the smallest fixed length that fits all values.
        array_uint(values: &[u64]) ARRAY, container |w| write_uints(w, values);
        /// ARRAY of INT of `item_len` bytes each: 1, 2, 4, 8, or 0 if each has its own length.
        array_int(item_len: u16, values: &[i64]) ARRAY, container |w| write_ints(w, item_len, values);
        /// ARRAY of ASCII_STRING.
        array_ascii(values: &[impl AsRef<[u8]>]) ARRAY, container |w| write_strings(w, DataType::ASCII_STRING, values);
        /// ARRAY of QOS.
        array_qos(values: &[Qos]) ARRAY, container |w| write_qos(w, values);
    }

    /// An element whose value `f` writes: a container, or any other type but [`DataType::NO_DATA`].
    ///
    /// # Errors
    /// Those of `f`, and as [`ElementListWriter::element`].
    pub fn container(
        &mut self,
        name: impl AsRef<[u8]>,
        data_type: DataType,
        f: impl FnOnce(&mut Writer<'b>) -> Result<()>,
    ) -> Result<()> {
        self.head(name.as_ref(), data_type)?;
        self.w.nested16(f).named("element")
    }

    /// Fills in the count.
    pub fn finish(self) -> Result<()> {
        self.w.set_u16(self.count_at, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rwf::sets::{write_element_sets, write_value};
    use crate::rwf::{DataState, StreamState, code};
    use crate::wire::to_vec;

    #[test]
    fn element_list_round_trips_and_every_prefix_is_an_error() {
        let state = State::new(StreamState::Open, DataState::Suspect, code::NONE, b"s");
        let bytes = to_vec(|w| {
            let mut list = ElementListWriter::with_info(w, 5)?;
            list.uint("SingleOpen", 1)?;
            list.int("I", -1)?;
            list.ascii(b"Name", "DIRECT_FEED")?;
            list.state("Status", &state)?;
            list.array_uint("Capabilities", &[5, 6])?;
            list.array_int(":ViewData", 2, &[22, 25])?;
            list.array_ascii(":ItemList", &["TRI", "IBM.N"])?;
            list.array_qos("QoS", &[Qos::REALTIME_TICK])?;
            list.qos("Q", Qos::REALTIME_TICK)?;
            list.element("Nothing", DataType::NO_DATA, &[])?;
            list.element("Blank", DataType::UINT, &[])?;
            list.buffer("Group", &[0, 1])?;
            list.real("R", Real::with_decimals(1, 2))?;
            list.double("D", 2.5)?;
            list.container("List", DataType::ELEMENT_LIST, |w| ElementListWriter::new(w)?.finish())?;
            list.finish()
        })
        .unwrap();
        let list = ElementList::decode(&bytes, None).unwrap();
        assert_eq!(list.info, Some(5));
        let all: Vec<_> = list.entries().map(Result::unwrap).collect();
        assert_eq!(all.len(), 15);
        let value = |name: &str| list.get(name).unwrap().value().unwrap();
        assert_eq!((list.get("SingleOpen").unwrap().uint(), value("I")), (Some(1), Value::Int(-1)));
        assert_eq!((value("Name"), value("Status")), (Value::Ascii(b"DIRECT_FEED"), Value::State(state)));
        assert_eq!(value("Capabilities").to_string(), "[5, 6]");
        assert_eq!(value(":ViewData").to_string(), "[22, 25]");
        assert_eq!(value(":ItemList").to_string(), "[\"TRI\", \"IBM.N\"]");
        assert_eq!((value("Q"), value("Blank")), (Value::Qos(Qos::REALTIME_TICK), Value::Blank));
        assert_eq!((value("D"), value("Group")), (Value::Double(2.5), Value::Buffer(&[0, 1])));
        assert_eq!((all[9].data_type, all[9].data), (DataType::NO_DATA, &[][..]));
        assert_eq!((all[14].data_type, all[14].data), (DataType::ELEMENT_LIST, &[8, 0, 0][..]));
        assert!(list.get("None").is_none());
        for n in 1..bytes.len() {
            let part = ElementList::decode(&bytes[..n], None);
            assert!(part.and_then(|l| l.entries().collect::<Result<Vec<_>>>()).is_err());
        }
    }

    #[test]
    fn set_values_come_first_and_copy_to_plain_elements() {
        let definitions = to_vec(|w| {
            write_element_sets(w, &[(0, &[(b"FID", DataType::INT_2), (b"R", DataType::REAL_8RB)])])
        })
        .unwrap();
        let sets = ElementSets::decode(&definitions).unwrap();
        let real = Real::with_decimals(-7, 1);
        let bytes = to_vec(|w| {
            let mut list = ElementListWriter::with_set(w, 0, |w| {
                write_value(w, DataType::INT_2, &int::to_bytes(-5))?;
                write_value(w, DataType::REAL_8RB, &real.to_bytes())
            })?;
            list.ascii("LONGNAME", "x")?;
            list.finish()
        })
        .unwrap();
        let list = ElementList::decode(&bytes, Some(&sets)).unwrap();
        let plain = to_vec(|w| {
            let mut out = ElementListWriter::new(w)?;
            list.entries().try_for_each(|e| out.copy(&e?))?;
            out.finish()
        })
        .unwrap();
        let values: Vec<_> = ElementList::decode(&plain, None)
            .unwrap()
            .entries()
            .map(|e| e.and_then(|e| e.value()).unwrap())
            .collect();
        assert_eq!(values, [Value::Int(-5), Value::Real(real), Value::Ascii(b"x")]);
        assert_eq!(ElementList::decode(&bytes, None).unwrap_err(), Error::NoSet(0));
        // Set data alone.
        let list = ElementList::decode(&[2, 0, 9, 0x0D, 0, 1], Some(&sets)).unwrap();
        assert_eq!(list.get("R").unwrap().value(), Ok(Value::Real(Real::with_decimals(1, 1))));
    }
}
