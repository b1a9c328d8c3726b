//! Reads an input as a sequence of choices.

/// Returns choices until the input ends, then zeros.
pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        let (taken, rest) = self.0.split_at(n);
        out[..n].copy_from_slice(taken);
        self.0 = rest;
        out
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// A number below `bound`, at most 256.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.u8()) % bound.max(1)
    }

    /// One of the values.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Up to `max` bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(max.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
