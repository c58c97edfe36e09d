//! Socket filters: what they keep, what is counted, and what happens while they change.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::filter::code::*;
use forebay_stack::filter::{Instruction, ProgramError, parse};
use forebay_stack::socket::SocketId;
use forebay_stack::udp::FilterError;
use forebay_tests::{Net, Rig, everywhere, packets};

const PORT: u16 = 2_000;
const PEER_PORT: u16 = 3_000;

fn keep(bytes: u32) -> [Instruction; 1] {
    [Instruction::stmt(RET | K, bytes)]
}

fn attach(rig: &Rig, id: SocketId, program: &[Instruction]) {
    rig.stack.udp_attach_filter(id, program).expect("a program");
}

fn drops(rig: &Rig, id: SocketId) -> u32 {
    rig.stack.udp_info(id).expect("an open socket").drops
}

fn in_errors(rig: &Rig, net: &Net) -> u64 {
    rig.count(net.pick(Counter::UdpInErrors, Counter::Udp6InErrors))
}

/// What a program returns counts from the UDP header on, and the header stays.
#[test]
fn a_filter_keeps_what_it_returns_but_never_cuts_the_header() {
    let table: [(u32, Option<&[u8]>); 9] = [
        (0, None),
        (1, Some(b"")),
        (4, Some(b"")),
        (7, Some(b"")),
        (8, Some(b"")),
        (9, Some(b"s")),
        (12, Some(b"some")),
        (18, Some(b"some bytes")),
        (u32::MAX, Some(b"some bytes")),
    ];
    everywhere(|mut rig, net| {
        for connected in [false, true] {
            for (bytes, expected) in table {
                let id = rig.bind(net.own(PORT));
                if connected {
                    rig.connect(id, net.peer(PEER_PORT));
                }
                attach(&rig, id, &keep(bytes));
                let (errors, dropped) =
                    (in_errors(&rig, &net), rig.dropped(DropReason::SocketFilter));
                rig.deliver(net.peer(PEER_PORT), net.own(PORT), b"some bytes");
                let expected: Vec<_> = expected.into_iter().map(<[u8]>::to_vec).collect();
                assert_eq!(rig.drain(id), expected, "{bytes}");
                let lost = u64::from(expected.is_empty());
                assert_eq!(in_errors(&rig, &net), errors + lost);
                assert_eq!(rig.dropped(DropReason::SocketFilter), dropped + lost);
                assert_eq!(u64::from(drops(&rig, id)), lost);
                rig.close(id);
            }
        }
        assert!(rig.is_silent(), "nobody is told of it");
        assert_eq!(rig.buffers_in_use(), 0);
        assert_eq!(rig.stack.socket_memory(), 0);
    });
}

/// In many buffers, too: and the socket is charged for what was kept.
#[test]
fn long_datagrams_are_cut_wherever_the_filter_says() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        let payload: Vec<u8> = (0..9_000).map(|at| (at % 251) as u8).collect();
        let mut charged = Vec::new();
        for bytes in [8, 1_000, 2_000, 5_000, 9_007, 9_008, 9_009] {
            attach(&rig, id, &keep(bytes));
            rig.deliver(net.peer(PEER_PORT), net.own(PORT), &payload);
            charged.push(rig.stack.socket_memory());
            let kept = (bytes as usize - 8).min(payload.len());
            assert_eq!(rig.drain(id), [&payload[..kept]], "{bytes}");
        }
        assert!(charged.is_sorted() && charged.first() < charged.last());
        rig.close(id);
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn a_bad_checksum_is_found_before_the_filter_is_asked() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        attach(&rig, id, &keep(0));
        for size in [1, 60, 1_400] {
            let good = packets::udp(net.peer, net.own, PEER_PORT, PORT, &vec![7; size]);
            let mut bad = good;
            *bad.last_mut().expect("a payload") ^= 1;
            rig.inject("tun0", bad);
        }
        assert_eq!(rig.dropped(DropReason::UdpCsum), 3);
        assert_eq!(rig.dropped(DropReason::SocketFilter), 0);
        assert_eq!(in_errors(&rig, &net), 3);
    });
}

/// What `tcpdump -y RAW -ddd 'ip proto 17'` begins with, and `ip6` likewise; the offsets are moved to
/// the IP header (`SKF_NET_OFF`) by hand.
#[test]
fn a_program_may_look_at_the_ip_header() {
    let program = |net: &Net| {
        let version = format!("48 0 0 {NET_OFF}");
        let protocol = NET_OFF + net.pick(9, 6);
        parse(&format!(
            "7\n{version}\n84 0 0 240\n21 0 3 {}\n48 0 0 {protocol}\n21 0 1 17\n6 0 0 262144\n6 0 0 0",
            net.pick(64, 96),
        ))
        .expect("a program")
    };
    everywhere(|mut rig, net| {
        let other = if net.is_v4() { Net::V6 } else { Net::V4 };
        let id = rig.bind(net.own(PORT));
        for (program, expected) in [(program(&net), 1), (program(&other), 0)] {
            attach(&rig, id, &program);
            rig.deliver(net.peer(PEER_PORT), net.own(PORT), b"?");
            assert_eq!(rig.drain(id).len(), expected);
        }
    });
}

#[test]
fn each_socket_of_a_broadcast_has_its_own_filter() {
    let (mut rig, net) = (Rig::new(), Net::V4);
    let to: SocketAddr = "10.0.0.255:2000".parse().expect("an address");
    let sockets = [0, 10, 0, u32::MAX, 12].map(|bytes| {
        let id = rig.bind(net.any(PORT));
        attach(&rig, id, &keep(bytes));
        id
    });
    rig.deliver(net.peer(PEER_PORT), to, b"everybody");
    let received = sockets.map(|id| rig.drain(id));
    let expected: [&[&[u8]]; 5] = [&[], &[b"ev"], &[], &[b"everybody"], &[b"ever"]];
    assert_eq!(
        received.map(|all| all.concat()),
        expected.map(<[_]>::concat)
    );
    assert_eq!(rig.dropped(DropReason::SocketFilter), 2);
    for id in sockets {
        rig.close(id);
    }
    assert_eq!(rig.buffers_in_use(), 0);
}

#[test]
fn filters_are_replaced_detached_and_locked() {
    everywhere(|mut rig, net| {
        let id = rig.bind(net.own(PORT));
        let received = |rig: &mut Rig| {
            rig.deliver(net.peer(PEER_PORT), net.own(PORT), b"datagram");
            rig.drain(id).concat()
        };
        assert_eq!(
            rig.stack.udp_detach_filter(id),
            Err(FilterError::NotAttached)
        );
        attach(&rig, id, &keep(0));
        assert_eq!(received(&mut rig), b"");
        // What is refused leaves what was there.
        let bad = rig.stack.udp_attach_filter(id, &[]);
        assert_eq!(bad, Err(FilterError::Program(ProgramError::Length(0))));
        assert_eq!(received(&mut rig), b"");
        attach(&rig, id, &keep(12));
        assert_eq!(received(&mut rig), b"data");
        rig.stack.udp_detach_filter(id).expect("a filter");
        assert_eq!(received(&mut rig), b"datagram");

        attach(&rig, id, &keep(12));
        rig.stack.udp_lock_filter(id).expect("an open socket");
        let again = rig.stack.udp_attach_filter(id, &keep(0));
        assert_eq!(again, Err(FilterError::Locked));
        assert_eq!(rig.stack.udp_detach_filter(id), Err(FilterError::Locked));
        assert_eq!(received(&mut rig), b"data");

        // The slot's next socket starts without.
        rig.close(id);
        let next = rig.bind(net.own(PORT));
        rig.deliver(net.peer(PEER_PORT), net.own(PORT), b"datagram");
        assert_eq!(rig.drain(next), [b"datagram"]);
        attach(&rig, next, &keep(0));
    });
}

/// A filter that changes, and a socket that moves, while datagrams arrive: each datagram is judged
/// by one program or the other, whole, and none is lost.
#[test]
fn filters_change_while_datagrams_arrive() {
    const ROUNDS: usize = 2_000;
    for net in [Net::V4, Net::V6] {
        let mut rig = Rig::new();
        let id = rig.bind(net.own(PORT));
        let stack = rig.stack.clone();
        let (stop, now) = (AtomicBool::new(false), rig.now());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    attach_to(&stack, id, &keep(12));
                    attach_to(&stack, id, &keep(0));
                    stack
                        .udp_connect(now, id, net.peer(PEER_PORT))
                        .expect("a peer");
                    stack.udp_detach_filter(id).expect("a filter");
                    stack.udp_disconnect(id).expect("an open socket");
                }
            });
            let mut received = 0;
            for _ in 0..ROUNDS {
                rig.deliver(net.peer(PEER_PORT), net.own(PORT), b"datagram");
                for payload in rig.drain(id) {
                    assert!(payload == b"data" || payload == b"datagram");
                    received += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
            let filtered = rig.dropped(DropReason::SocketFilter);
            assert_eq!(received + filtered, ROUNDS as u64);
        });
        rig.close(id);
        assert_eq!(rig.buffers_in_use(), 0);
    }
}

fn attach_to(stack: &forebay_stack::Stack, id: SocketId, program: &[Instruction]) {
    stack.udp_attach_filter(id, program).expect("a program");
}
