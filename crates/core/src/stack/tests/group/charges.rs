//! What the members of a group cost the users of its sockets.

use super::*;
use crate::quota::{Amounts, Quotas, Resource, UserId};

const USER: UserId = UserId(1000);

/// Opens sockets of the user on one node, and lets them join one group.
fn joined(lan: &mut Lan, sockets: u32) -> Vec<u32> {
    let mut ports = Vec::new();
    for number in 0..sockets {
        let port = lan.nodes[0].open(lan.now, SocketKind::Rdm).unwrap();
        lan.nodes[0].set_user(port, USER);
        lan.nodes[0].join(lan.now, port, GroupRequest::new(GROUP, number)).unwrap();
        ports.push(port);
    }
    lan.run(20);
    ports
}

fn members(lan: &Lan, ports: &[u32]) -> usize {
    let members = |port: &u32| lan.nodes[0].endpoint(*port).unwrap().group().unwrap().members().count();
    ports.iter().map(members).sum()
}

/// Each of n sockets knows n - 1 others: that takes memory by the square of the sockets, which have a quota.
#[test]
fn members_are_charged_to_the_user_of_each_socket_that_knows_them() {
    let mut lan = Lan::new(1);
    lan.run(3000);
    let ports = joined(&mut lan, 40);
    let used = |lan: &Lan| lan.nodes[0].ledger().used_by(USER, Resource::Memory);
    assert_eq!(members(&lan, &ports), 40 * 39);
    assert!(used(&lan) >= 40 * 39 * 200, "{}", used(&lan));
    for port in &ports {
        lan.nodes[0].close(lan.now, *port);
    }
    lan.run(20);
    assert_eq!(used(&lan), 0);
}

#[test]
fn user_without_memory_left_learns_of_no_further_members() {
    const QUOTA: u64 = 100_000;
    let mut lan = Lan::new(1);
    lan.run(3000);
    let mut user = Amounts::all(u64::MAX);
    user.set(Resource::Memory, QUOTA);
    lan.nodes[0].ledger_mut().set_quotas(Quotas { user, ..Quotas::unlimited() });
    let ports = joined(&mut lan, 100);
    assert!((50..QUOTA as usize / 200).contains(&members(&lan, &ports)), "{}", members(&lan, &ports));
    let ledger = lan.nodes[0].ledger();
    assert!(ledger.used_by(USER, Resource::Memory) <= QUOTA);
    assert!(ledger.refused_to(USER, Resource::Memory) > 0, "the refusal is counted");
}
