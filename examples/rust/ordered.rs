//! An ordered group: an account whose copies never differ, because all members apply the same changes in one order.
//!
//! `cargo run -p utipc --example ordered`

use utipc::Node;
use utipc::ordered::{Incoming, Ordered};

const ACCOUNT: u32 = 4500;

/// A copy of the account. It changes only by what the group delivers.
struct Copy {
    name: &'static str,
    member: Ordered,
    balance: i64,
}

impl Copy {
    fn new(name: &'static str, member: Ordered) -> Self {
        Self { name, member, balance: 0 }
    }

    /// Asks all copies, including this one, to change the balance.
    fn request(&self, change: i64) -> utipc::Result<()> {
        self.member.multicast(&change.to_be_bytes())
    }

    /// Handles the next events.
    fn follow(&mut self, events: usize) -> utipc::Result<()> {
        for _ in 0..events {
            let name = self.name;
            match self.member.receive()? {
                Incoming::Message(message) => {
                    let change = number(&message.data);
                    // Every copy takes this decision with the same balance.
                    let verdict = if self.balance + change < 0 { "refused" } else { "done" };
                    if verdict == "done" {
                        self.balance += change;
                    }
                    println!("{name}: {change:+} {verdict}, the balance is {}", self.balance);
                }
                Incoming::View(view) => println!("{name}: a view of {}", view.members.len()),
                Incoming::StateWanted(request) => {
                    self.member.give_state(request, self.balance.to_be_bytes())?;
                }
                Incoming::State(state) => {
                    self.balance = number(&state);
                    println!("{name}: receives the balance {}", self.balance);
                }
                other => println!("{name}: {other:?}"),
            }
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> i64 {
    bytes.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

fn main() -> utipc::Result<()> {
    let node = Node::start()?;
    let settings = Ordered::builder(ACCOUNT).state_transfer();
    let mut red = Copy::new("red", settings.clone().founder().join(&node)?);
    red.follow(1)?;
    red.request(100)?;
    red.follow(1)?;

    // A view, and the request for the state; the state, and the view.
    let mut blue = Copy::new("blue", settings.join(&node)?);
    red.follow(2)?;
    blue.follow(2)?;

    // Both withdraw. The order decides, at both in the same way.
    red.request(-70)?;
    blue.request(-70)?;
    red.follow(2)?;
    blue.follow(2)?;

    // Both get it, or neither does.
    let outcome = blue.member.multicast_atomic(&5_i64.to_be_bytes())?;
    println!("blue: the deposit is {outcome:?}");
    red.follow(1)?;
    blue.follow(1)?;

    blue.member.leave()?;
    red.follow(1)
}
