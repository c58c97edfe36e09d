//! What is left of a connection that ended: it answers what is late, and makes way for what is new.

use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::tcp::{TcpOption, TcpState};

use crate::peer::{ACK, FIN, Offer, Peer, RST, SYN};
use crate::world::{PEER_PORT, everywhere};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Ack,
    Nothing,
    Gone,
    NewConnection,
}

/// RFC 9293 section 3.6.1, RFC 6191, RFC 1337.
#[test]
fn time_wait_meets_each_segment() {
    use Then::{Ack, Gone, NewConnection, Nothing};
    // Offset, flags, payload, with `tcp_rfc1337` on.
    let cases: [(i64, u8, &[u8], bool, Then); 14] = [
        (-1, FIN | ACK, b"", false, Ack),
        (-5, FIN | ACK, b"data", false, Ack),
        (0, ACK, b"", false, Nothing),
        (0, ACK, b"data", false, Ack),
        (5, ACK, b"", false, Ack),
        (1, SYN, b"", false, NewConnection),
        (100_000, SYN, b"", false, NewConnection),
        (-1, SYN, b"", false, Ack),
        (-100_000, SYN, b"", false, Ack),
        (100, SYN | ACK, b"", false, Ack),
        (0, RST, b"", false, Gone),
        (0, RST | ACK, b"", false, Gone),
        (0, RST, b"", true, Nothing),
        (5, RST, b"", false, Nothing),
    ];
    for (offset, flags, payload, rfc1337, then) in cases {
        everywhere(|world| {
            world.rig.set("net.ipv4.tcp_rfc1337", i64::from(rfc1337));
            let (mut peer, id, listener) = world.accepted();
            world.close_first(&mut peer, id);
            let old = peer.ack;
            let segment = peer.segment(offset, flags).with(payload);
            let answers = peer.exchange(&mut world.rig, &segment);
            match then {
                Ack => {
                    assert_eq!(answers.len(), 1, "{offset} {flags:#x}");
                    assert_eq!(answers[0].brief(), peer.plain_ack());
                    // Not as often as they come.
                    world.unanswered(&mut peer, &segment);
                }
                NewConnection => {
                    assert_eq!(answers.len(), 1, "{offset} {flags:#x}");
                    assert_eq!(answers[0].flags, SYN | ACK);
                    let ahead = answers[0].seq.wrapping_sub(old);
                    assert!(ahead < 1 << 31 && ahead > 0, "behind the old one's");
                }
                _ => assert!(answers.is_empty(), "{offset} {flags:#x}: {answers:x?}"),
            }
            let expected = match then {
                Gone => Vec::new(),
                NewConnection => vec![TcpState::SynRecv],
                _ => vec![TcpState::TimeWait],
            };
            assert_eq!(world.states(), expected, "{offset} {flags:#x}");
            if then == NewConnection {
                let mut next = Peer::new(peer.addr, peer.host, segment.seq);
                next.seq = next.seq.wrapping_add(1);
                next.ack = answers[0].seq.wrapping_add(1);
                let ack = next.segment(0, ACK);
                world.unanswered(&mut next, &ack);
                let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
                let id = accepted.expect("a connection").id;
                next.say(&mut world.rig, b"again");
                assert_eq!(world.read_all(id), b"again");
            }
        });
    }
}

/// RFC 6191: by its timestamp a SYN is new, whatever its number.
#[test]
fn a_later_timestamp_ends_time_wait() {
    for (later, is_new) in [(1, true), (0, false), (-1, false)] {
        everywhere(|world| {
            let (mut peer, listener) = (world.peer(), world.listen(8));
            peer.offer = Offer {
                timestamps: Some(0xffff_ffff),
                ..Offer::PLAIN
            };
            let id = peer.connect(&mut world.rig, listener);
            world.close_first(&mut peer, id);
            let mut next = peer.clone();
            next.offer.timestamps = Some(0xffff_ffff_u32.wrapping_add(later as u32));
            next.seq = peer.seq.wrapping_sub(100_000);
            let syn = next.syn();
            let answer = world.answered(&mut next, &syn);
            assert_eq!(answer.flags, if is_new { SYN | ACK } else { ACK });
        });
    }
}

/// A segment of the old connection begins the wait anew.
#[test]
fn a_repeated_fin_prolongs_the_wait() {
    everywhere(|world| {
        let (mut peer, id) = world.connection();
        world.close_first(&mut peer, id);
        world.pass(Duration::from_secs(50));
        let again = peer.segment(-1, FIN | ACK);
        assert_eq!(world.answered(&mut peer, &again).brief(), peer.plain_ack());
        world.pass(Duration::from_secs(50));
        assert_eq!(world.states(), [TcpState::TimeWait]);
        world.pass(Duration::from_secs(11));
        assert_eq!(world.states(), []);
    });
}

/// A connection of ours may take the place of one that waits, if timestamps tell them apart
/// (`tcp_tw_reuse`).
#[test]
fn connect_may_reuse_what_waits() {
    for (knob, timestamps, is_reused) in [
        (1, Some(9_000), true),
        (0, Some(9_000), false),
        (1, None, false),
    ] {
        everywhere(|world| {
            world.rig.set("net.ipv4.tcp_tw_reuse", knob);
            let offer = Offer {
                timestamps,
                ..Offer::PLAIN
            };
            let mut peer = world.peer().offering(offer);
            let id = world.connection_with(&mut peer);
            world.close_first(&mut peer, id);
            world.pass(Duration::from_secs(2));
            let next = world.open();
            world.set(next, TcpOption::ReuseAddr(true));
            let stack = &world.rig.stack;
            stack.tcp_bind(next, peer.host).expect("a shared port");
            let begun = stack.tcp_connect(world.rig.now(), next, peer.addr);
            assert_eq!(begun.is_ok(), is_reused);
            if is_reused {
                let syn = peer.answer(&mut world.rig);
                let ahead = syn.seq.wrapping_sub(peer.ack);
                assert!(syn.flags == SYN && ahead > 0 && ahead < 1 << 31);
                assert_eq!(world.states(), [TcpState::SynSent]);
            }
        });
    }
}

/// More ended connections than `tcp_max_tw_buckets` allows leave nothing at all.
#[test]
fn what_waits_is_bounded() {
    everywhere(|world| {
        world.rig.set("net.ipv4.tcp_max_tw_buckets", 3);
        let listener = world.listen(8);
        for n in 0..6 {
            let mut peer = world.peer_at(PEER_PORT + n);
            let id = peer.connect(&mut world.rig, listener);
            world.close(id);
            peer.take_fin(&mut world.rig);
            peer.finish(&mut world.rig);
        }
        assert_eq!(world.states(), [TcpState::TimeWait; 3]);
        assert_eq!(world.rig.count(Counter::TcpExtTCPTimeWaitOverflow), 3);
    });
}
