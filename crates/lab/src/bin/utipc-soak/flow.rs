//! Checks the order of messages: the numbers of a flow only rise, and a connection misses none.

use std::collections::HashMap;

use crate::message::Head;

/// Maximum number of flows that are remembered at a time: more than reach a socket in its life.
const MOST: usize = 1 << 16;

/// The flows of datagrams that reach one socket.
#[derive(Debug, Default)]
pub(crate) struct Flows(HashMap<u64, u64>);

impl Flows {
    /// Returns how many numbers are missing before this one.
    pub(crate) fn see(&mut self, head: &Head) -> Result<u64, String> {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        // Later copies of a multicast may reach a receiver that the first ones missed.
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
    /// Checks that this message is the next one.
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
    fn datagrams_may_be_lost_but_not_repeated_or_reordered() {
        let mut flows = Flows::default();
        assert_eq!(flows.see(&head(1, 4)), Ok(0));
        assert_eq!(flows.see(&head(2, 0)), Ok(0));
        assert_eq!(flows.see(&head(1, 7)), Ok(2));
        assert!(flows.see(&head(1, 7)).is_err());
        assert!(flows.see(&head(1, 5)).is_err());
    }

    #[test]
    fn connection_misses_no_message() {
        let mut exact = Exact::default();
        assert_eq!(exact.see(&head(1, 0)), Ok(()));
        assert!(exact.see(&head(1, 2)).is_err());
        assert!(exact.see(&head(2, 1)).is_err());
        assert_eq!(exact.see(&head(1, 1)), Ok(()));
    }
}
