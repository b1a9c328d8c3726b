use super::*;

fn set(c: &mut Cluster, at: PortId, option: SocketOption, value: OptionValue) -> Result<(), OptionError> {
    c.on(at, |s, _, up| s.set_option(option, value, up))
}

#[test]
fn options_by_kind_of_socket() {
    use SocketOption::*;
    let table = [
        (Importance, true, true),
        (SourceDroppable, true, true),
        (DestDroppable, true, true),
        (ConnectTimeout, true, true),
        (NodeReceiveQueueDepth, false, true),
        (ReceiveQueueDepth, false, true),
        (MulticastBroadcast, false, false),
        (MulticastReplicast, false, false),
        (GroupJoin, false, true),
        (GroupLeave, false, false),
        (ReceiveQueueUsed, false, true),
        (NoDelay, true, false),
        (ReceiveBuffer, true, true),
        (ReceiveLowWater, true, true),
    ];
    for kind in [SocketKind::Stream, SocketKind::SeqPacket, SocketKind::Rdm, SocketKind::Dgram] {
        let mut c = Cluster::new();
        let at = c.open(A, kind);
        for (option, settable, readable) in table {
            let settable = settable && !(kind == SocketKind::Stream && option == SourceDroppable);
            let number = set(&mut c, at, option, OptionValue::Number(1));
            assert_eq!(number.is_ok(), settable, "set {option:?} on {kind:?}");
            assert_eq!(c.sockets[&at].option(option).is_ok(), readable, "get {option:?} on {kind:?}");
            let switch = set(&mut c, at, option, OptionValue::None);
            assert_eq!(
                switch.is_ok(),
                matches!(option, MulticastBroadcast | MulticastReplicast),
                "{option:?}"
            );
        }
    }
}

#[test]
fn option_values_are_checked() {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::SeqPacket);
    let bad = set(&mut c, at, SocketOption::Importance, OptionValue::Number(4));
    assert_eq!(bad, Err(OptionError::Invalid));
    c.set(at, SocketOption::ConnectTimeout, 0x1_0005);
    assert_eq!(c.sockets[&at].option(SocketOption::ConnectTimeout), Ok(5), "only 16 bits count");
    c.set(at, SocketOption::ReceiveBuffer, u32::MAX);
    assert_eq!(c.sockets[&at].option(SocketOption::ReceiveBuffer), Ok(16 << 20));
    c.set(at, SocketOption::ReceiveLowWater, 0);
    assert_eq!(c.sockets[&at].option(SocketOption::ReceiveLowWater), Ok(1));
}

#[test]
fn a_group_is_not_joined_by_an_option_and_left_only_after_a_join() {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::Rdm);
    let refused = set(&mut c, at, SocketOption::GroupJoin, OptionValue::Number(4300)).unwrap_err();
    assert_eq!((refused, refused.errno()), (OptionError::NotSupported, Errno::NotSupported));
    assert_eq!(set(&mut c, at, SocketOption::GroupLeave, OptionValue::None), Err(OptionError::Invalid));
    c.on(at, |s, _, up| s.join(crate::group::GroupRequest::new(4300, 1), up)).unwrap();
    assert_eq!(set(&mut c, at, SocketOption::GroupLeave, OptionValue::None), Ok(()));
    assert!(c.sockets[&at].group().is_none());
}

#[test]
fn multicast_method_is_passed_to_the_node() {
    let mut c = Cluster::new();
    let at = c.open(A, SocketKind::Rdm);
    set(&mut c, at, SocketOption::MulticastReplicast, OptionValue::None).unwrap();
    assert_eq!(c.wire.methods[&at.port], Some(Method::Replicast));
    set(&mut c, at, SocketOption::MulticastBroadcast, OptionValue::None).unwrap();
    assert_eq!(c.wire.methods[&at.port], Some(Method::Broadcast));
}

#[test]
fn option_numbers_are_those_of_level_271() {
    for n in 127..=138 {
        assert_eq!(SocketOption::from_number(n).map(|o| o as u32), Some(n));
    }
    assert_eq!(SocketOption::from_number(139), None);
    assert_eq!(SocketOption::from_number(1008), None);
}

#[test]
fn readiness_in_every_state() {
    let mut c = Cluster::new();
    let words = |c: &Cluster, at| {
        let r = c.readiness(at);
        [(r.readable, "in"), (r.writable, "out"), (r.read_closed, "rdhup"), (r.hung_up, "hup")]
            .into_iter()
            .filter_map(|(on, name)| on.then_some(name))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let rdm = c.open(A, SocketKind::Rdm);
    assert_eq!(words(&c, rdm), "out");
    c.send_to(rdm, b"x", Destination::Port(rdm)).unwrap();
    c.run();
    assert_eq!(words(&c, rdm), "in out");
    let open = c.open(B, SocketKind::Stream);
    assert_eq!(words(&c, open), "out");
    let listener = c.listener(A, SocketKind::Stream, 500);
    assert_eq!(words(&c, listener), "");
    c.connect(open, Destination::service(500, 1)).unwrap();
    c.run();
    assert_eq!(words(&c, open), "");
    assert_eq!(words(&c, listener), "in");
    let server = c.accept(listener).unwrap();
    c.run();
    assert_eq!(words(&c, open), "out");
    c.send(server, b"x").unwrap();
    c.run();
    assert_eq!(words(&c, open), "in out");
    c.recv(open, 1).unwrap();
    c.shutdown(server);
    c.run();
    assert_eq!(words(&c, open), "in hup");
    assert_eq!(words(&c, server), "in rdhup hup");
}

#[test]
fn errno_of_every_error() {
    use Errno as E;
    let send = [
        (SendError::WouldBlock, E::Again, 11),
        (SendError::MessageSize, E::MessageSize, 90),
        (SendError::DestinationRequired, E::DestAddrRequired, 89),
        (SendError::HostUnreachable, E::HostUnreachable, 113),
        (SendError::InvalidDestination, E::Invalid, 22),
        (SendError::Broken, E::Pipe, 32),
        (SendError::NotConnected, E::NotConnected, 107),
        (SendError::IsConnected, E::IsConnected, 106),
        (SendError::BoundSocket, E::NotSupported, 95),
        (SendError::NoBuffers, E::NoBuffers, 105),
        (SendError::Refused, E::ConnectionRefused, 111),
        (SendError::TimedOut, E::TimedOut, 110),
        (SendError::Aborted, E::ConnectionAborted, 103),
    ];
    for (error, errno, number) in send {
        assert_eq!((error.errno(), errno.number()), (errno, number));
    }
    assert_eq!(RecvError::ConnectionReset.errno().number(), 104);
    assert_eq!(RecvError::EmptyBuffer.errno(), E::Invalid);
    assert_eq!(ConnectError::Already.errno().number(), 114);
    assert_eq!(AcceptError::NotListening.errno(), E::Invalid);
    assert_eq!(OptionError::NoSuchOption.errno().number(), 92);
    assert_eq!(BindError::Reserved.errno().number(), 13);
    assert_eq!(StateError::Connectionless.errno(), E::NotSupported);
}
