//! An attacker without a key replays everything that was ever sent, in every order of what operators do with keys.

use std::collections::BTreeSet;

use utipc_core::crypto::KeyUse;
use utipc_core::wire::{Encrypted, User};
use utipc_core::{Destination, RecvOptions, Scope, ServiceRange, SocketKind, Stack, Time};

use super::lan::{KEY1, KEY2, Lan, key};

/// What happens between two replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Both nodes get the other key; their key files too.
    Rotate,
    /// Both nodes get the key again that they have.
    SameKey,
    /// The receiver restarts with the key of its file.
    RestartReceiver,
    /// The sender restarts with the key of its file.
    RestartSender,
    /// Frames that the sender has sent are lost; the attacker has them.
    Lose,
}

const STEPS: [Step; 5] =
    [Step::Rotate, Step::SameKey, Step::RestartReceiver, Step::RestartSender, Step::Lose];

/// Two strict nodes; node 1 sends messages with numbers to node 0, which must get none of them twice.
struct Scene {
    lan: Lan,
    file: &'static str,
    sender: u32,
    receiver: u32,
    next: u32,
    got: BTreeSet<u32>,
    /// Frames of the sender that were lost: the receiver may take each of them late, once.
    lost: u64,
    /// Discovery messages that the receiver may take for those of a later life, each time.
    harmless: u64,
    what: String,
}

impl Scene {
    fn new(what: String) -> Self {
        let mut lan = Lan::new(2, true);
        lan.set_all(KeyUse::Cluster, KEY1);
        lan.plug_all();
        let got = BTreeSet::new();
        let mut scene =
            Self { lan, file: KEY1, sender: 0, receiver: 0, next: 0, got, lost: 0, harmless: 0, what };
        scene.open_receiver();
        scene.open_sender();
        scene.settle();
        scene
    }

    fn open_receiver(&mut self) {
        let (now, node) = (self.lan.now, &mut self.lan.nodes[0]);
        self.receiver = node.open(now, SocketKind::Rdm).unwrap();
        node.bind(now, self.receiver, ServiceRange::new(18888, 17, 17), Scope::Cluster).unwrap();
    }

    fn open_sender(&mut self) {
        self.sender = self.lan.nodes[1].open(self.lan.now, SocketKind::Rdm).unwrap();
    }

    /// Runs until the nodes have linked, and a rotation has ended.
    fn settle(&mut self) {
        self.lan.run(16_000);
        assert!(self.lan.is_linked(), "{}: {:?}", self.what, self.lan.nodes[0].encryption());
    }

    fn send(&mut self, count: usize) {
        for _ in 0..count {
            let to = Some(Destination::service(18888, 17));
            let data = self.next.to_be_bytes();
            if self.lan.nodes[1].send(self.lan.now, self.sender, &data, to).is_ok() {
                self.next += 1;
            }
            self.lan.run(20);
            self.read();
        }
    }

    fn read(&mut self) {
        let (now, mut buffer) = (self.lan.now, [0; 64]);
        while self.lan.nodes[0].recv(now, self.receiver, &mut buffer, RecvOptions::default()).is_ok() {
            let number = u32::from_be_bytes(*buffer.first_chunk().unwrap());
            assert!(self.got.insert(number), "{}: message {number} was delivered a second time", self.what);
        }
    }

    fn act(&mut self, step: Step) {
        let file = self.file;
        let set = move |node: &mut Stack, now: Time| node.set_key(now, KeyUse::Cluster, key(file)).unwrap();
        match step {
            Step::Rotate => {
                self.file = if file == KEY1 { KEY2 } else { KEY1 };
                self.lan.set_all(KeyUse::Cluster, self.file);
            }
            Step::SameKey => self.lan.set_all(KeyUse::Cluster, file),
            Step::RestartReceiver => {
                self.lan.restart(0, set);
                self.open_receiver();
                // The attacker is the first whom the new node hears.
                let contacts = self.replay();
                assert_eq!(contacts, 0, "{}: a recording made contact with a new node", self.what);
            }
            Step::RestartSender => {
                self.lan.restart(1, set);
                self.open_sender();
                self.replay();
            }
            Step::Lose => {
                self.lan.deaf = Some(0);
                let before = self.lan.sent.len();
                self.send(5);
                self.lost += self.lan.sent[before..].iter().filter(|(from, ..)| *from == 1).count() as u64;
                self.lan.deaf = None;
            }
        }
        self.lan.run(1000);
    }

    /// Gives the receiver every frame that the sender has ever sent. Returns how many peers it is in contact with.
    fn replay(&mut self) -> usize {
        let recorded: Vec<_> = self.lan.sent.iter().filter(|(from, ..)| *from == 1).cloned().collect();
        for (_, _, bytes) in &recorded {
            self.lan.nodes[0].receive(self.lan.now, 0, bytes);
        }
        self.read();
        self.lan.peers(0)
    }

    /// Both nodes are in contact: no recording is opened, none takes the link down, and messages still pass.
    fn check(&mut self) {
        let downs = self.lan.downs.clone();
        let opened = self.lan.nodes[0].encryption().stats.opened;
        self.replay();
        let before = self.lan.nodes[0].encryption().stats;
        let late = self.lost + self.harmless;
        assert!(before.opened - opened <= late, "{}: recordings were opened", self.what);
        self.lost = 0;
        self.replay();
        let after = self.lan.nodes[0].encryption().stats;
        assert!(after.opened - before.opened <= self.harmless, "{}: recordings were opened", self.what);
        assert!(after.replayed > before.replayed, "{}: {after:?}", self.what);
        let (had, sent) = (self.got.len(), self.next);
        self.send(10);
        self.lan.run(3000);
        self.read();
        assert_eq!(self.lan.downs, downs, "{}: recordings reset a link", self.what);
        assert_eq!(self.got.len() - had, (self.next - sent) as usize, "{}", self.what);
    }
}

/// Every order of three steps, with the whole recording replayed after each.
#[test]
fn recordings_are_refused_in_every_order_of_rotations_restarts_and_losses() {
    for a in STEPS {
        for b in STEPS {
            for c in STEPS {
                let mut scene = Scene::new(format!("{a:?}, {b:?}, {c:?}"));
                scene.send(20);
                for step in [a, b, c] {
                    scene.act(step);
                    scene.settle();
                    scene.send(5);
                    scene.check();
                }
            }
        }
    }
}

/// Its first numbers lie below those that it has used before. The peers tell it how far they were.
#[test]
fn node_whose_clock_went_back_comes_back_and_recordings_stay_refused() {
    for both in [false, true] {
        let mut scene = Scene::new(format!("both: {both}"));
        scene.send(20);
        // Without memory the receiver takes discovery with higher numbers for that of a later life, which asks.
        let discovery = |scene: &Scene| {
            let sent = scene.lan.sent.iter().filter(|(from, ..)| *from == 1);
            sent.filter(|(.., bytes)| Encrypted::parse(bytes).unwrap().user == User::LinkConfig).count()
                as u64
        };
        for back in 1..=3 {
            scene.lan.clocks[1] -= back * 3_600_000_000_000;
            scene.act(Step::RestartSender);
            if both {
                scene.act(Step::RestartReceiver);
            }
            scene.settle();
            scene.send(5);
            scene.harmless = if both { discovery(&scene) } else { 0 };
            scene.check();
        }
    }
}

/// The last session of a link must not be mixed with the present one.
#[test]
fn frames_that_were_lost_in_an_earlier_session_of_the_link_are_refused() {
    let mut scene = Scene::new("earlier session".to_owned());
    scene.send(20);
    scene.act(Step::Lose);
    // The link fails, and comes up again.
    let before = scene.lan.sent.len();
    scene.lan.loss = 1;
    scene.lan.run(10_000);
    assert!(!scene.lan.is_linked());
    scene.lan.loss = 0;
    let lost = scene.lan.sent[before..].iter().filter(|(from, ..)| *from == 1);
    let is_discovery = |bytes: &[u8]| Encrypted::parse(bytes).unwrap().user == User::LinkConfig;
    scene.lost = lost.filter(|(.., bytes)| is_discovery(bytes)).count() as u64;
    scene.settle();
    scene.check();
}
