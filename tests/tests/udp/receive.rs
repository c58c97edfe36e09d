//! What a datagram must be like, and how many a socket keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::packet::{ChecksumState, Gso, GsoKind, PacketQueue};
use forebay_stack::udp::{NotOpen, RecvError};
use forebay_stack::wire::protocol;
use forebay_tests::{V4, packets};

use super::*;

/// A datagram with a length field and checksum of our choice; `None` computes it over the length.
fn crafted(src: IpAddr, dst: IpAddr, len: u16, checksum: Option<u16>, bytes: &[u8]) -> Vec<u8> {
    let mut datagram = [
        &1000_u16.to_be_bytes()[..],
        &53_u16.to_be_bytes(),
        &len.to_be_bytes(),
        &[0, 0],
        bytes,
    ]
    .concat();
    let covered = usize::from(len).min(datagram.len());
    let sum = checksum.unwrap_or_else(|| {
        match packets::transport_checksum(src, dst, protocol::UDP, &datagram[..covered]) {
            0 => 0xffff,
            sum => sum,
        }
    });
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    packets::ip(src, dst, protocol::UDP, &datagram)
}

/// Length field, checksum, what is delivered, why not.
type Case = (u16, Option<u16>, Option<&'static [u8]>, DropReason);

#[test]
fn lengths_and_checksums() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let v4 = own.is_ipv4();
            let id = connected(&rig, own, 53, peer, 1000);
            let cases: [Case; 10] = [
                (16, None, Some(b"12345678"), DropReason::UdpCsum),
                (10, None, Some(b"12"), DropReason::UdpCsum),
                (8, None, Some(b""), DropReason::UdpCsum),
                (16, Some(0), v4.then_some(b"12345678"), DropReason::UdpCsum),
                (10, Some(0), v4.then_some(b"12"), DropReason::UdpCsum),
                (16, Some(1), None, DropReason::UdpCsum),
                (0, None, None, DropReason::UdpLength),
                (7, None, None, DropReason::UdpLength),
                (17, None, None, DropReason::UdpLength),
                (65_535, None, None, DropReason::UdpLength),
            ];
            for (len, checksum, expected, reason) in cases {
                let before = rig.dropped(reason);
                rig.inject("tun0", crafted(peer, own, len, checksum, b"12345678"));
                let received = recv(&rig, id).map(|(_, payload)| payload);
                assert_eq!(received.as_deref(), expected, "{own} {len} {checksum:?}");
                assert_eq!(rig.dropped(reason) - before, u64::from(expected.is_none()));
            }
            for short in [0, 2, 7] {
                rig.inject(
                    "tun0",
                    packets::ip(peer, own, protocol::UDP, &[0; 7][..short]),
                );
            }
            assert!(recv(&rig, id).is_none());
        }
        assert!(rig.output("tun0").is_empty(), "nobody is told");
        assert_eq!(rig.count(Counter::UdpInErrors), 8);
        assert_eq!(rig.count(Counter::Udp6InErrors), 10);
        assert_eq!(rig.count(Counter::UdpInCsumErrors), 1);
        assert_eq!(rig.count(Counter::Udp6InCsumErrors), 3);
        assert_eq!(
            (
                rig.count(Counter::UdpInDatagrams),
                rig.count(Counter::Udp6InDatagrams)
            ),
            (5, 3)
        );
    });
}

#[test]
fn what_does_not_fit_the_buffer_is_lost_and_its_size_told() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let id = bound(&rig, own, 53);
        datagram(&mut rig, peer, own, (1000, 53), b"0123456789");
        datagram(&mut rig, peer, own, (1000, 53), b"");
        let mut buf = [0; 4];
        for peek in [true, true, false] {
            let received = rig
                .stack
                .udp_recv(id, &mut buf, peek)
                .expect("open")
                .expect("one");
            assert_eq!((received.len, received.full_len, &buf), (4, 10, b"0123"));
            assert_eq!(
                (received.from, received.local),
                ((peer, 1000).into(), (own, 53).into())
            );
            assert_eq!(received.iif, rig.ifindex("tun0"));
        }
        let empty = rig
            .stack
            .udp_recv(id, &mut buf, false)
            .expect("open")
            .expect("an empty one");
        assert_eq!((empty.len, empty.full_len), (0, 0));
        assert_eq!(rig.stack.udp_recv(id, &mut buf, false), Ok(None));
    }
    assert_eq!(rig.stack.socket_memory(), 0);
}

#[test]
fn the_budget_counts_buffers_but_one_datagram_always_fits() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let id = bound(&rig, own, 53);
            assert_eq!(rig.stack.udp_set_rcvbuf(id, 10_000), Ok(20_000));
            assert_eq!(rig.stack.udp_set_rcvbuf(id, 1), Ok(2_304));
            assert_eq!(rig.stack.udp_set_rcvbuf(id, u32::MAX), Ok(2 * 212_992));
            rig.stack.udp_set_rcvbuf(id, 1).expect("open");
            for round in 1..4_u32 {
                // A buffer has 2,112 bytes: two are over the limit.
                for size in [1, 1000] {
                    for _ in 0..200 {
                        datagram(&mut rig, peer, own, (1000, 53), &vec![7; size]);
                    }
                    assert_eq!(drain(&rig, id).len(), 1);
                }
                datagram(&mut rig, peer, own, (1000, 53), &[7; 20_000]);
                datagram(&mut rig, peer, own, (1000, 53), b"full");
                assert_eq!(drain(&rig, id), [vec![7; 20_000]]);
                let info = rig.stack.udp_info(id).expect("open");
                assert_eq!((info.drops, info.recv_q), (round * (199 + 199 + 1), 0));
            }
            rig.stack.udp_close(id).expect("open");
        }
        for (errors, rcvbuf, csum) in [
            (
                Counter::UdpInErrors,
                Counter::UdpRcvbufErrors,
                Counter::UdpInCsumErrors,
            ),
            (
                Counter::Udp6InErrors,
                Counter::Udp6RcvbufErrors,
                Counter::Udp6InCsumErrors,
            ),
        ] {
            assert_eq!(
                [errors, rcvbuf, csum].map(|counter| rig.count(counter)),
                [1197, 1197, 0]
            );
        }
        assert_eq!(rig.stack.socket_memory(), 0);
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn all_sockets_together_leave_the_reserve_alone() {
    let mut rig = Rig::new();
    let (own, peer) = pairs()[0];
    let ids: Vec<_> = (0..80).map(|port| bound(&rig, own, 2000 + port)).collect();
    for (port, _) in (2000..).zip(&ids) {
        for _ in 0..105 {
            datagram(&mut rig, peer, own, (1000, port), b"unread");
        }
    }
    // Of 8,192 buffers less a reserve of 2,048, seven eighths: 53 sockets have all that they may,
    // one has 76 buffers, and the others two, which are more than udp_rmem_min.
    let held = 5_376 + 26 * 2;
    assert_eq!(rig.stack.socket_memory(), held * 2_112);
    assert!(rig.buffers_in_use() <= held + 64);
    let kept: usize = ids
        .iter()
        .map(|id| rig.stack.udp_info(*id).expect("open").recv_q as usize)
        .sum();
    assert_eq!(kept, rig.stack.socket_memory());
    assert!(rig.dropped(DropReason::ProtoMem) > 0);
    assert_eq!(
        rig.count(Counter::UdpMemErrors),
        rig.dropped(DropReason::ProtoMem)
    );
    for id in ids {
        rig.stack.udp_close(id).expect("open");
    }
    assert_eq!(rig.dropped(DropReason::SocketClosed), held as u64);
    assert_eq!(rig.stack.socket_memory(), 0);
    assert_eq!(rig.buffers_in_use(), 0);
}

struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_is_woken_by_a_datagram_and_by_the_end() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let bell = Arc::new(Bell(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&bell));
        let rung = || bell.0.swap(0, Ordering::Relaxed);
        let id = bound(&rig, own, 53);
        rig.stack.udp_register_waker(id, &waker).expect("open");
        rig.stack.udp_register_waker(id, &waker).expect("open");
        assert_eq!(rung(), 0);
        for _ in 0..3 {
            datagram(&mut rig, peer, own, (1000, 53), b"x");
        }
        assert_eq!(rung(), 1, "a burst rings once");
        rig.stack.udp_register_waker(id, &waker).expect("open");
        assert_eq!(rung(), 1, "there is something to read already");
        drain(&rig, id);
        rig.stack.udp_register_waker(id, &waker).expect("open");
        rig.stack.udp_close(id).expect("open");
        assert_eq!(rung(), 1);
        assert_eq!(rig.stack.udp_register_waker(id, &waker), Err(NotOpen));
        let closed = rig.stack.udp_recv(id, &mut [], false);
        assert_eq!(closed, Err(RecvError::NotOpen(NotOpen)));
    }
}

#[test]
fn wakers_that_are_forgotten_stay_silent() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let id = bound(&rig, own, 53);
        for forgotten in [&[0][..], &[1], &[2], &[0, 2], &[2, 1], &[0, 1, 2], &[3]] {
            let bells: [_; 4] = std::array::from_fn(|_| Arc::new(Bell(AtomicU32::new(0))));
            let wakers = bells.each_ref().map(|bell| Waker::from(Arc::clone(bell)));
            for waker in &wakers[..3] {
                rig.stack.udp_register_waker(id, waker).expect("open");
            }
            for waker in forgotten {
                rig.stack.udp_forget_waker(id, &wakers[*waker]);
            }
            datagram(&mut rig, peer, own, (1000, 53), b"x");
            for (which, bell) in bells.iter().enumerate() {
                let expected = which < 3 && !forgotten.contains(&which);
                let rung = bell.0.load(Ordering::Relaxed) == 1;
                assert_eq!(rung, expected, "{which} {forgotten:?}");
            }
            drain(&rig, id);
        }
    }
}

#[test]
fn who_arms_a_waker_hears_of_what_comes_next() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let bell = Arc::new(Bell(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&bell));
        let rung = || bell.0.swap(0, Ordering::Relaxed);
        let id = bound(&rig, own, 53);
        datagram(&mut rig, peer, own, (1000, 53), b"x");
        rig.stack.udp_arm_waker(id, &waker).expect("open");
        assert_eq!(rung(), 0, "that was there before");
        datagram(&mut rig, peer, own, (1000, 53), b"x");
        assert_eq!(rung(), 1);
        rig.stack.udp_arm_waker(id, &waker).expect("open");
        rig.stack.udp_close(id).expect("open");
        assert_eq!(rung(), 1);
        assert_eq!(rig.stack.udp_arm_waker(id, &waker), Err(NotOpen));
        rig.stack.udp_forget_waker(id, &waker);
    }
}

#[test]
fn a_packet_that_stands_for_several_datagrams_is_taken_apart() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let id = connected(&rig, own, 53, peer, 1000);
            for _ in 0..2 {
                let bytes = packets::udp(peer, own, 1000, 53, b"onetwothre");
                let mut packet = rig.packet(&bytes);
                packet.checksum = ChecksumState::Verified;
                packet.gso = Some(Gso::new(3.try_into().expect("not zero"), GsoKind::Udp));
                let mut queue = PacketQueue::new();
                queue.push(packet);
                rig.receive("tun0", &mut queue);
                assert_eq!(drain(&rig, id), [&b"one"[..], b"two", b"thr", b"e"]);
            }
        }
        assert_eq!(rig.drops(), []);
    });
}

#[test]
fn fragments_arrive_as_one_datagram_on_the_connected_socket() {
    both(|mut rig| {
        let (own, peer) = (IpAddr::from(V4::OWN), IpAddr::from(V4::PEER));
        let id = connected(&rig, own, 53, peer, 1000);
        // The second fragment begins with what would be another flow's ports.
        let other = connected(&rig, own, 54, peer, 1001);
        let mut payload = vec![0; 2_992];
        payload[992..996].copy_from_slice(&[3, 233, 0, 54]);
        let whole = packets::udp(peer, own, 1000, 53, &payload);
        datagram(&mut rig, peer, own, (1000, 53), b"warm");
        drain(&rig, id);
        for offset in [2000, 1000, 0] {
            let mut piece = packets::ipv4(
                V4::PEER,
                V4::OWN,
                protocol::UDP,
                &whole[20 + offset..20 + offset + 1000],
            );
            let more = u16::from(offset < 2000) << 13;
            piece[6..8].copy_from_slice(&(more | (offset / 8) as u16).to_be_bytes());
            forebay_stack::wire::ipv4::fill_checksum(&mut piece);
            rig.inject("tun0", piece);
        }
        assert_eq!(drain(&rig, id), [payload]);
        assert!(drain(&rig, other).is_empty());
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn a_closed_socket_leaves_nothing_for_the_next_one() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let id = bound(&rig, own, 53);
        for _ in 0..3 {
            datagram(&mut rig, peer, own, (1000, 53), b"read or not");
        }
        // What has been looked at waits for the reader alone, what comes now for everybody.
        let mut buf = [0; 16];
        let peeked = rig.stack.udp_recv(id, &mut buf, true).expect("open");
        assert!(peeked.is_some());
        datagram(&mut rig, peer, own, (1000, 53), b"late");
        rig.stack.udp_close(id).expect("open");
        assert_eq!((rig.buffers_in_use(), rig.stack.socket_memory()), (0, 0));
        assert_eq!(rig.dropped(DropReason::SocketClosed), 4);

        let next = bound(&rig, own, 53);
        let received = rig.stack.udp_recv(next, &mut buf, false).expect("open");
        assert_eq!(received, None);
        rig.stack.udp_close(next).expect("open");
        rig = Rig::new();
    }
}
