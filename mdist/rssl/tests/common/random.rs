//! A deterministic generator of numbers and containers.

use rssl::rwf::{
    DataType, Enum, FieldListInfo, FilterAction, MapAction, Real, VectorAction, hint, int, uint,
};

use super::tree::{Head, Perm, Tree};

/// Xorshift with a multiplication: repeatable, and sufficient to choose cases.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// 0 to `n` - 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number of any magnitude, with equal probability.
    pub(crate) fn magnitude(&mut self) -> u64 {
        let shift = self.below(64);
        self.next() >> shift
    }

    pub(crate) fn signed(&mut self) -> i64 {
        let value = (self.magnitude() >> 1).cast_signed();
        if self.one_in(2) { !value } else { value }
    }

    /// Mostly short bytes, at times beyond the short forms of lengths.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        let most = [0, 3, 10, 130, 300][self.below(5)];
        let n = self.below(most + 1);
        (0..n).map(|_| self.next() as u8).collect()
    }

    fn perm(&mut self) -> Perm {
        self.one_in(4).then(|| self.bytes())
    }

    fn entries(&mut self) -> usize {
        self.below(4)
    }

    pub(crate) fn real(&mut self) -> Real {
        match self.below(8) {
            0 => Real::new(0, hint::INFINITY + self.below(3) as u8),
            _ => Real::new(self.signed(), self.below(31) as u8),
        }
    }

    /// A primitive: type and bytes.
    pub(crate) fn primitive(&mut self) -> (DataType, Vec<u8>) {
        if self.one_in(10) {
            return (DataType::UINT, Vec::new());
        }
        match self.below(6) {
            0 => (DataType::INT, int::to_bytes(self.signed()).to_vec()),
            1 => (DataType::UINT, uint::to_bytes(self.magnitude()).to_vec()),
            2 => (DataType::REAL, self.real().to_bytes().to_vec()),
            3 => (DataType::ENUM, Enum(self.magnitude() as u16).to_bytes().to_vec()),
            4 => (DataType::RMTES_STRING, self.bytes()),
            _ => (DataType::BUFFER, self.bytes()),
        }
    }

    pub(crate) fn container(&mut self) -> DataType {
        [
            DataType::NO_DATA,
            DataType::OPAQUE,
            DataType::FIELD_LIST,
            DataType::FIELD_LIST,
            DataType::ELEMENT_LIST,
            DataType::FILTER_LIST,
            DataType::VECTOR,
            DataType::MAP,
            DataType::SERIES,
            DataType::XML,
            DataType::JSON,
            DataType::ANSI_PAGE,
        ][self.below(12)]
    }

    fn head(&mut self, depth: usize) -> Head {
        let container = self.container();
        let summary = (self.one_in(3) && container != DataType::NO_DATA)
            .then(|| Box::new(self.tree(container, depth + 1)));
        Head { container, summary, hint: self.one_in(3).then(|| (self.magnitude() as u32) >> 2) }
    }

    /// A container of type `container` with content.
    pub(crate) fn tree(&mut self, container: DataType, depth: usize) -> Tree {
        if depth > 4 && container.0 > DataType::XML.0 {
            return Tree::Bytes(Vec::new());
        }
        match container {
            DataType::NO_DATA => Tree::Bytes(Vec::new()),
            DataType::FIELD_LIST => {
                let info = self.one_in(3).then(|| FieldListInfo {
                    dictionary: (self.signed() as i16) >> 1,
                    list: self.next() as u16,
                });
                let count = self.entries() * 3;
                let fields = (0..count).map(|_| (self.next() as i16, self.primitive().1)).collect();
                Tree::Fields { info, fields }
            }
            DataType::ELEMENT_LIST => {
                let info = self.one_in(3).then(|| self.next() as u16);
                let elements = (0..self.entries())
                    .map(|_| {
                        let name = self.bytes();
                        if self.one_in(2) {
                            let inside = self.container();
                            (name, inside, self.tree(inside, depth + 1))
                        } else {
                            let (data_type, bytes) = self.primitive();
                            (name, data_type, Tree::Bytes(bytes))
                        }
                    })
                    .collect();
                Tree::Elements { info, elements }
            }
            DataType::MAP => {
                let head = self.head(depth);
                let (key_type, _) = self.primitive();
                let key_field = self.one_in(3).then(|| self.next() as i16);
                let entries = (0..self.entries())
                    .map(|_| {
                        let action = [MapAction::Update, MapAction::Add, MapAction::Delete][self.below(3)];
                        let content = self.content(head.container, action != MapAction::Delete, depth);
                        (action, self.perm(), self.bytes(), content)
                    })
                    .collect();
                Tree::Map { head, key_type, key_field, entries }
            }
            DataType::VECTOR => {
                let head = self.head(depth);
                let sorting = self.one_in(2);
                let actions = [
                    VectorAction::Update,
                    VectorAction::Set,
                    VectorAction::Clear,
                    VectorAction::Insert,
                    VectorAction::Delete,
                ];
                let entries = (0..self.entries())
                    .map(|_| {
                        let action = actions[self.below(5)];
                        let has_data = !matches!(action, VectorAction::Clear | VectorAction::Delete);
                        let content = self.content(head.container, has_data, depth);
                        (action, (self.magnitude() as u32) >> 2, self.perm(), content)
                    })
                    .collect();
                Tree::Vector { head, sorting, entries }
            }
            DataType::SERIES => {
                let head = self.head(depth);
                let entries =
                    (0..self.entries()).map(|_| self.content(head.container, true, depth)).collect();
                Tree::Series { head, entries }
            }
            DataType::FILTER_LIST => {
                let container = self.container();
                let hint = self.one_in(3).then(|| self.next() as u8);
                let entries = (0..self.entries())
                    .map(|_| {
                        let action =
                            [FilterAction::Update, FilterAction::Set, FilterAction::Clear][self.below(3)];
                        let own = if self.one_in(3) { self.container() } else { container };
                        let content = self.content(own, action != FilterAction::Clear, depth);
                        (action, self.next() as u8, own, self.perm(), content)
                    })
                    .collect();
                Tree::Filters { container, hint, entries }
            }
            _ => Tree::Bytes(self.bytes()),
        }
    }

    fn content(&mut self, container: DataType, has_data: bool, depth: usize) -> Tree {
        if has_data { self.tree(container, depth + 1) } else { Tree::Bytes(Vec::new()) }
    }
}
