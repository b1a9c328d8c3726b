//! Members of communication groups.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::json;
use utipc::{GroupIncoming, GroupPolicy, GroupRequest, PortId, SlowMember};

use crate::Answer;
use crate::args::{Args, Refusal};
use crate::node::{Peer, port};
use crate::tally::Tally;

impl Peer {
    pub(crate) fn join(&self, args: &Args) -> Answer {
        let mut request = GroupRequest::new(args.u32("type")?, args.u32("instance")?);
        request.events = args.flag("events");
        let socket = self.sock(args)?;
        let slow = match args.maybe_text("slow") {
            None => return Ok(socket.join(request).map(|()| json!({}))?),
            Some("drop") => SlowMember::Drop,
            Some("evict") => SlowMember::Evict { after_ms: 1000 },
            Some(other) => return Err(Refusal::Request(format!("unknown policy {other}"))),
        };
        socket.join_with_policy(request, GroupPolicy::new(slow))?;
        Ok(json!({}))
    }

    /// The next thing that a member receives must be an event.
    pub(crate) fn member_event(&self, args: &Args) -> Answer {
        let limit = args.milliseconds("timeout_ms", 10_000)?;
        match self.sock(args)?.within(limit).receive_in_group()? {
            GroupIncoming::Joined(member) => Ok(json!({"event": "joined", "port": port(member.port)})),
            GroupIncoming::Left(member) => Ok(json!({"event": "left", "port": port(member.port)})),
            GroupIncoming::Evicted(member) => Ok(json!({"event": "evicted", "port": port(member.port)})),
            _ => Err(Refusal::Request("a message, not an event".into())),
        }
    }

    /// As `recv_many`, for a member: the messages of each sender have their own numbers, from 0. Events are counted.
    pub(crate) fn receive_in_group(&self, args: &Args) -> Answer {
        let socket = self.sock(args)?;
        let (count, length) = (args.u32("count")?, args.length("length")?);
        let end = Instant::now() + args.milliseconds("timeout_ms", 60_000)?;
        let idle = args.milliseconds("idle_ms", 5_000)?;
        let mut tallies = BTreeMap::<PortId, Tally>::new();
        let (mut got, mut joined, mut left, mut error) = (0, 0, 0, None);
        while got < count && error.is_none() {
            let limit = idle.min(end.saturating_duration_since(Instant::now()));
            match socket.within(limit).receive_in_group() {
                Ok(GroupIncoming::Joined(_)) => joined += 1,
                Ok(GroupIncoming::Left(_)) => left += 1,
                Ok(GroupIncoming::Message { data, from, .. }) => {
                    got += 1;
                    tallies.entry(from.port).or_default().take(&data, length);
                }
                Ok(_) => error = Some("EUNKNOWN".to_owned()),
                Err(refused) => error = Some(Refusal::from(refused).to_string()),
            }
        }
        let [missing, late, broken] = tallies
            .values()
            .map(Tally::faults)
            .fold([0; 3], |sums, faults| std::array::from_fn(|at| sums[at] + faults[at]));
        Ok(json!({
            "got": got,
            "missing": missing,
            "late": late,
            "broken": broken,
            "error": error,
            "senders": tallies.len(),
            "joined": joined,
            "left": left,
        }))
    }
}
