//! Programs in groups, over the installed library: on embedded nodes, on one daemon, and on two.

mod common;

use common::{Place, Program};

const KINDS: [&[Option<u32>]; 3] =
    [&[None, None, None], &[Some(7), Some(7), Some(7)], &[Some(7), Some(8), Some(7)]];

fn place(on: &[Option<u32>]) -> Place {
    let mut nodes: Vec<u32> = on.iter().flatten().copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() { Place::new() } else { Place::with_daemons(&nodes) }
}

/// Programs that have all seen each other join.
fn members(place: &Place, on: &[Option<u32>], group: &str) -> Vec<Program> {
    let mut all: Vec<Program> = Vec::new();
    for daemon in on {
        let mut new = place.member(*daemon);
        new.join(group);
        let joined = format!("joined {}:1", new.address);
        for member in all.iter_mut().chain([&mut new]) {
            member.line_with(&joined);
        }
        all.push(new);
    }
    all
}

/// The lines about messages and changes, from the first one that contains `from`.
fn history(program: &Program, from: &str) -> Vec<String> {
    let of_group = |line: &&String| line.starts_with("message") || line.starts_with("change");
    program.seen.iter().filter(of_group).skip_while(|line| !line.contains(from)).cloned().collect()
}

#[test]
fn members_see_each_other_come_and_go_with_reasons() {
    for on in KINDS {
        let place = place(on);
        let mut all = members(&place, on, "group");
        let [first, second, third] = &mut all[..] else { unreachable!() };
        second.tell("leave");
        let gone = format!("left {}:2", second.address);
        for member in [&mut *first, &mut *second, &mut *third] {
            member.line_with(&gone);
        }
        second.join("group");
        let back = format!("joined {}:1", second.address);
        first.line_with(&back);
        third.line_with(&back);
        // An end without `cpg_leave`, and a kill: the node stays if it is a daemon's.
        let alone = third.address.clone();
        all.pop().unwrap().kill();
        let reason = if on[2].is_some() { 5 } else { 3 };
        for member in &mut all {
            member.line_with(&format!("left {alone}:{reason}"));
        }
        let exits = all[1].address.clone();
        all.pop().unwrap().end();
        all[0].line_with(&format!("left {exits}:5"));
        assert_eq!(
            all[0].seen.last().unwrap(),
            &format!("change group members {} left {exits}:5 joined -", all[0].address)
        );
    }
}

#[test]
fn all_members_receive_messages_and_changes_in_one_order() {
    for on in KINDS {
        let place = place(on);
        let mut all = members(&place, on, "order");
        for (member, count) in all.iter_mut().zip([400, 300, 200]) {
            member.tell(&format!("many {count}"));
        }
        let mut late = place.member(on[0]);
        late.join("order");
        late.tell("send end");
        let joined = format!("joined {}:1", late.address);
        let mut histories = Vec::new();
        for member in &mut all {
            for last in [" 399", " 299", " 199", " end"] {
                let is_it = |line: &String| line.starts_with("message") && line.ends_with(last);
                while !member.seen.iter().any(is_it) {
                    member.line_with("message");
                }
            }
            histories.push(history(member, &joined));
        }
        // It does not receive messages from before its join.
        while history(&late, &joined).len() < histories[0].len() {
            late.line_with("");
        }
        histories.push(history(&late, &joined));
        for other in &histories[1..] {
            assert_eq!(other, &histories[0]);
        }
        // Each sender's messages keep their order, and none is missing.
        let own = format!(" {} ", all[0].address);
        let numbers = all[1].seen.iter().filter(|line| line.starts_with("message") && line.contains(&own));
        let numbers: Vec<u32> =
            numbers.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(numbers, (0..400).collect::<Vec<_>>());
    }
}

#[test]
fn long_messages_arrive_whole() {
    for on in KINDS {
        let place = place(on);
        let mut all = members(&place, on, "long");
        for len in [59_992, 59_993, 200_000, 1 << 20] {
            all[0].tell(&format!("long {len}"));
            all[1].tell("send short");
            let text: Vec<String> = all.iter_mut().map(|m| m.line_with(&format!(" {len} "))).collect();
            assert!(text.iter().all(|line| line == &text[0] && line.ends_with("abcdefghijklmnopqrstuvwx")));
        }
    }
}

#[test]
fn member_that_does_not_dispatch_stops_senders_and_loses_nothing() {
    for on in [KINDS[0], KINDS[2]] {
        let place = place(on);
        let mut all = members(&place, on, "flow");
        all[1].tell("hold 1500");
        all[0].tell("fill");
        assert_eq!(all[0].line_with("filled"), "filled 1 6");
        all[1].line_with("held");
        all[0].tell("send end");
        for member in &mut all {
            member.line_with("3 100571 end");
        }
        let count = |m: &Program| m.seen.iter().filter(|line| line.contains(" 50000 ")).count();
        assert!(count(&all[0]) > 0 && all.iter().all(|member| count(member) == count(&all[0])));
    }
}

#[test]
fn groups_of_the_cluster_are_listed() {
    for on in KINDS {
        let place = place(on);
        let mut all = members(&place, &on[..2], "a");
        let mut third = place.member(on[2]);
        third.join("b");
        let address = |n: usize| all[n].address.clone();
        let mut both = [address(0), address(1)];
        both.sort_by_key(|text| text.split('/').map(|n| n.parse().unwrap()).collect::<Vec<u32>>());
        // The members of a group that the program has not joined.
        third.tell("members a");
        assert_eq!(third.line_with("result"), format!("result 1 members {},{}", both[0], both[1]));
        third.tell("members nobody");
        assert_eq!(third.line_with("result"), "result 1 members -");
        let mut list = |command: &str| {
            let from = third.seen.len();
            third.tell(command);
            assert_eq!(third.line_with("result"), "result 27 1");
            third.seen[from..third.seen.len() - 1].join("\n")
        };
        let of_a = format!("item a {}\nitem a {}", both[0], both[1]);
        assert_eq!(list("names"), "item a 0/0\nitem b 0/0");
        assert_eq!(list("one a"), of_a);
        let all_of = list("all");
        assert_eq!(all_of, format!("{of_a}\nitem b {}", third.address));
        all[0].tell("members a");
        assert_eq!(all[0].line_with("result"), format!("result 1 members {},{}", both[0], both[1]));
    }
}

#[test]
fn lost_node_is_named_and_its_programs_learn_it() {
    let on = [Some(7), Some(8)];
    let mut place = place(&on);
    let mut all = members(&place, &on, "nodes");
    all[0].line_with("ring 7 nodes 7 8");
    let lost = all[1].address.clone();
    place.stop(1);
    assert_eq!(
        all[0].line_with("left "),
        format!("change nodes members {} left {lost}:3 joined -", all[0].address)
    );
    all[0].line_with("nodes 7");
    assert_eq!(all[1].line_with("dispatch"), "dispatch 2");
}

#[test]
fn finalized_handle_leaves_its_group() {
    let place = place(KINDS[1]);
    let mut all = members(&place, KINDS[1], "final");
    all[0].tell("finalize");
    assert_eq!(
        (all[0].line_with("result"), all[0].line_with("after")),
        ("result 1".into(), "after 9".into())
    );
    let gone = format!("left {}:5", all[0].address);
    all[1].line_with(&gone);
    all[2].line_with(&gone);
}
