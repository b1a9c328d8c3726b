//! Messages between the transports of two members. Spec: docs/spec/vsync.md §6.

/// A message between the links of two members: they differ from the protocol's by their first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// The sender has given up the path. It uses it again after the answer.
    Reset(u32),
    ResetAck(u32),
}

impl Control {
    const MARK: u8 = 0;

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let [Self::MARK, kind, 0, 0, number @ ..] = bytes.first_chunk::<8>()? else { return None };
        let number = u32::from_be_bytes(*number);
        match (kind, bytes.len()) {
            (1, 8) => Some(Self::Reset(number)),
            (2, 8) => Some(Self::ResetAck(number)),
            _ => None,
        }
    }

    pub(super) fn encode(self) -> [u8; 8] {
        let (kind, number) = match self {
            Self::Reset(number) => (1, number),
            Self::ResetAck(number) => (2, number),
        };
        let [a, b, c, d] = number.to_be_bytes();
        [Self::MARK, kind, 0, 0, a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_told_from_other_messages() {
        for control in [Control::Reset(7), Control::ResetAck(u32::MAX)] {
            assert_eq!(Control::parse(&control.encode()), Some(control));
        }
        for other in
            [&[0, 1, 0, 0, 0, 0, 0][..], &[0, 1, 0, 0, 0, 0, 0, 7, 0], &[0, 3, 0, 0, 0, 0, 0, 7], &[1; 8]]
        {
            assert_eq!(Control::parse(other), None, "{other:?}");
        }
    }
}
