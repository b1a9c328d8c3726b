//! Order: numbers of a flow only rise; on a connection none is left out.

use std::collections::HashMap;

use crate::message::Head;

/// Flows that are remembered at a time: more than reach a socket while it lives.
const MOST: usize = 1 << 16;

/// The flows of datagrams that reach one socket.
#[derive(Debug, Default)]
pub(crate) struct Flows(HashMap<u64, u64>);

impl Flows {
    /// How many numbers were left out before this one.
    pub(crate) fn see(&mut self, head: &Head) -> Result<u64, String> {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        // A multicast's later copies may find a receiver that was not there for the first ones.
        match self.0.insert(head.flow, head.number) {
            Some(last) if head.number <= last => Err(format!("number {last} came before {head:?}")),
            Some(last) => Ok(head.number - last - 1),
            None => Ok(0),
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Exact {
    flow: Option<u64>,
    next: u64,
}

impl Exact {
    /// The next message is to be this one.
    pub(crate) const fn at(flow: u64, number: u64) -> Self {
        Self { flow: Some(flow), next: number }
    }

    pub(crate) fn see(&mut self, head: &Head) -> Result<(), String> {
        let flow = *self.flow.get_or_insert(head.flow);
        if flow != head.flow || head.number != self.next {
            return Err(format!("{head:?} instead of number {} of flow {flow}", self.next));
        }
        self.next += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Ask;

    fn head(flow: u64, number: u64) -> Head {
        Head { flow, number, len: 32, ask: Ask::Nothing }
    }

    #[test]
    fn datagrams_may_be_missing_but_never_come_twice_or_late() {
        let mut flows = Flows::default();
        assert_eq!(flows.see(&head(1, 4)), Ok(0));
        assert_eq!(flows.see(&head(2, 0)), Ok(0));
        assert_eq!(flows.see(&head(1, 7)), Ok(2));
        assert!(flows.see(&head(1, 7)).is_err());
        assert!(flows.see(&head(1, 5)).is_err());
    }

    #[test]
    fn a_connection_leaves_nothing_out() {
        let mut exact = Exact::default();
        assert_eq!(exact.see(&head(1, 0)), Ok(()));
        assert!(exact.see(&head(1, 2)).is_err());
        assert!(exact.see(&head(2, 1)).is_err());
        assert_eq!(exact.see(&head(1, 1)), Ok(()));
    }
}
