//! Congestion that is told by marks (RFC 3168), and urgent bytes that go out.

use std::io::IoSlice;

use forebay_stack::tcp::{SendFlags, TcpState};
use forebay_stack::wire::ipv4;
use forebay_stack::wire::tcp::{FLAG_CWR, FLAG_ECE, FLAG_URG};

use crate::peer::{ACK, PSH, Peer, SYN, Segment};
use crate::world::{World, everywhere};

const ECT_0: u8 = 2;
const CE: u8 = 3;

/// The ECN bits of a packet.
fn mark(packet: &[u8]) -> u8 {
    match packet[0] >> 4 {
        4 => packet[1] & 3,
        _ => packet[1] >> 4 & 3,
    }
}

fn marked(mut packet: Vec<u8>, mark: u8) -> Vec<u8> {
    match packet[0] >> 4 {
        4 => {
            packet[1] |= mark;
            ipv4::fill_checksum(&mut packet);
        }
        _ => packet[1] |= mark << 4,
    }
    packet
}

/// The segments that left, with their marks.
fn marks(world: &mut World) -> Vec<(u8, Segment)> {
    let output = world.rig.output("tun0");
    output
        .iter()
        .map(|it| (mark(it), Segment::parse(it).2))
        .collect()
}

fn ecn_connection(world: &mut World) -> (Peer, forebay_stack::socket::SocketId) {
    let listener = world.listen(8);
    let mut peer = world.peer();
    let mut syn = peer.syn();
    syn.flags |= FLAG_ECE | FLAG_CWR;
    peer.send(&mut world.rig, &syn);
    let (mark, syn_ack) = marks(world).remove(0);
    assert_eq!((mark, syn_ack.flags), (0, SYN | ACK | FLAG_ECE));
    peer.seq = peer.seq.wrapping_add(1);
    peer.ack = syn_ack.seq.wrapping_add(1);
    let ack = peer.segment(0, ACK);
    world.unanswered(&mut peer, &ack);
    let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
    (peer, accepted.expect("a connection").id)
}

/// Sections 6.1.1 to 6.1.3.
#[test]
fn a_mark_is_echoed_until_the_peer_has_slowed_down() {
    everywhere(|world| {
        let (mut peer, id) = ecn_connection(world);
        let plain = peer.segment(0, ACK | PSH).with(b"abc");
        let packet = marked(plain.packet(peer.addr, peer.host), CE);
        world.rig.inject("tun0", packet);
        peer.seq = peer.seq.wrapping_add(3);
        let answer = peer.answer(&mut world.rig);
        assert_eq!(answer.flags, ACK | FLAG_ECE);
        for _ in 0..2 {
            world.write(id, b"x");
            let sent = peer.answer(&mut world.rig);
            peer.ack = peer.ack.wrapping_add(1);
            assert_eq!(sent.flags, ACK | PSH | FLAG_ECE);
            let ack = peer.segment(0, ACK);
            world.unanswered(&mut peer, &ack);
        }
        let slower = peer.segment(0, ACK | PSH | FLAG_CWR).with(b"def");
        peer.send(&mut world.rig, &slower);
        peer.seq = peer.seq.wrapping_add(3);
        peer.answers(&mut world.rig);
        world.write(id, b"x");
        let sent = peer.answer(&mut world.rig);
        assert_eq!(sent.flags, ACK | PSH);
        assert_eq!(world.read_all(id), b"abcdef");
    });
}

#[test]
fn an_echo_has_us_slow_down_once() {
    everywhere(|world| {
        let (mut peer, id) = ecn_connection(world);
        world.write(id, &[7; 5_000]);
        let sent = marks(world);
        // Data may be marked; acknowledgements alone may not.
        assert!(sent.iter().all(|(mark, _)| *mark == ECT_0));
        let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
        peer.ack = peer.ack.wrapping_add(1_000);
        let echo = peer.segment(0, ACK | FLAG_ECE);
        peer.send(&mut world.rig, &echo);
        peer.ack = peer.ack.wrapping_add(4_000);
        peer.send(&mut world.rig, &peer.segment(0, ACK | FLAG_ECE));
        let slower = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
        assert!(slower.ssthresh.expect("known") < info.cwnd);
        world.write(id, &[7; 1_000]);
        world.write(id, &[7; 1_000]);
        let sent = marks(world);
        let told: Vec<_> = sent
            .iter()
            .map(|(_, it)| it.flags & FLAG_CWR != 0)
            .collect();
        assert_eq!(told, [true, false]);
    });
}

/// Who did not ask for it gets none of it.
#[test]
fn without_an_agreement_there_are_no_marks() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        let plain = peer.segment(0, ACK | PSH).with(b"abc");
        let packet = marked(plain.packet(peer.addr, peer.host), CE);
        world.rig.inject("tun0", packet);
        peer.seq = peer.seq.wrapping_add(3);
        assert_eq!(peer.answer(&mut world.rig).flags, ACK);
        world.write(id, b"x");
        let (mark, sent) = marks(world).remove(0);
        assert_eq!((mark, sent.flags), (0, ACK | PSH));
    });
}

/// `tcp_ecn` 1 asks for it; the answer says whether it is agreed on.
#[test]
fn connect_may_ask_for_marks() {
    for (answer, expected) in [
        (FLAG_ECE, true),
        (0, false),
        (FLAG_ECE | FLAG_CWR, false),
        (FLAG_CWR, false),
    ] {
        everywhere(|world| {
            world.rig.set("net.ipv4.tcp_ecn", 1);
            let id = world.connecting();
            let mut peer = world.peer();
            let syn = peer.answer(&mut world.rig);
            assert_eq!(syn.flags, SYN | FLAG_ECE | FLAG_CWR);
            peer.ack = syn.seq.wrapping_add(1);
            let mut syn_ack = peer.syn_ack();
            syn_ack.flags |= answer;
            world.answered(&mut peer, &syn_ack);
            let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
            assert_eq!(info.ecn, expected, "{answer:#x}");
        });
    }
}

/// RFC 9293 section 3.8.5: the pointer is behind the last urgent byte, and stays until that is
/// acknowledged or left behind.
#[test]
fn an_urgent_byte_is_announced() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        let send = |world: &World, bytes: &[u8]| {
            let flags = SendFlags {
                urgent: true,
                more: false,
            };
            let bufs = [IoSlice::new(bytes)];
            let sent = world.rig.stack.tcp_send(world.rig.now(), id, &bufs, flags);
            assert_eq!(sent, Ok(Some(bytes.len())));
        };
        send(world, b"abc");
        let segment = peer.answer(&mut world.rig);
        assert_eq!(segment.flags, ACK | PSH | FLAG_URG);
        assert_eq!((segment.urgent, &segment.payload[..]), (3, &b"abc"[..]));
        peer.ack = peer.ack.wrapping_add(3);
        let ack = peer.segment(0, ACK);
        world.unanswered(&mut peer, &ack);
        world.write(id, b"def");
        let segment = peer.answer(&mut world.rig);
        assert_eq!((segment.flags, segment.urgent), (ACK | PSH, 0));
        assert_eq!(world.state(id), TcpState::Established);
    });
}
