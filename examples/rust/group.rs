//! A communication group: a coordinator, and workers that it knows by their membership.
//!
//! `cargo run -p utipc --example group`

use utipc::{Group, GroupIncoming, GroupRequest, Node};

const JOBS: u32 = 4300;
const COORDINATOR: u32 = 1;
const WORKER: u32 = 2;

/// The next message, as text, and the instance of its sender.
fn message(group: &Group) -> utipc::Result<(String, u32)> {
    loop {
        if let GroupIncoming::Message { data, from, .. } = group.receive()? {
            return Ok((String::from_utf8_lossy(&data).into_owned(), from.instance));
        }
    }
}

fn main() -> utipc::Result<()> {
    let node = Node::start()?;
    let coordinator = Group::join(&node, GroupRequest::new(JOBS, COORDINATOR).with_events())?;
    let workers = [(); 2].map(|()| Group::join(&node, GroupRequest::new(JOBS, WORKER)));
    let [first, second] = workers;
    let (first, second) = (first?, second?);
    for _ in 0..2 {
        let joined = coordinator.receive()?.joined().expect("the workers join");
        println!("coordinator: instance {} has joined", joined.instance);
    }

    // To all; then to one of the workers each, in turn.
    coordinator.broadcast(b"start")?;
    coordinator.anycast(WORKER, b"a task")?;
    coordinator.anycast(WORKER, b"a task")?;
    for (number, worker) in [(1, &first), (2, &second)] {
        for _ in 0..2 {
            println!("worker {number}: {}", message(worker)?.0);
        }
    }

    // To one member.
    first.send(coordinator.socket().port(), b"done")?;
    let (text, instance) = message(&coordinator)?;
    println!("coordinator: {text} from instance {instance}");
    drop(first);
    let left = coordinator.receive()?.left().expect("a worker leaves");
    println!("coordinator: instance {} has left", left.instance);
    Ok(())
}
