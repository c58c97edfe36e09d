//! What a datagram must be like, and how many a socket keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::packet::{ChecksumState, Gso, GsoKind, PacketQueue};
use forebay_stack::udp::{NotOpen, RecvError};
use forebay_tests::packets;

use super::*;

/// One that waits alone is taken another way than those behind others.
#[test]
fn datagrams_are_read_in_order_whenever_they_come() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let id = bound(&rig, own, 53);
            let (mut sent, mut read) = (0_u8, 0_u8);
            // Sent, then read: from an empty queue, one that holds one, and ones that hold more.
            for (more, reads) in [
                (1, 1),
                (1, 0),
                (1, 1),
                (3, 2),
                (1, 3),
                (0, 1),
                (2, 1),
                (1, 3),
            ] {
                for _ in 0..more {
                    datagram(&mut rig, peer, own, (1000, 53), &[sent]);
                    sent += 1;
                }
                for _ in 0..reads {
                    let mut buf = [0; 8];
                    let received = rig.stack.udp_recv(id, &mut buf, false).expect("open");
                    let expected = (read < sent).then_some((1, read));
                    assert_eq!(received.map(|received| (received.len, buf[0])), expected);
                    read += u8::from(received.is_some());
                }
                let info = rig.stack.udp_info(id).expect("open");
                assert_eq!(info.recv_q, u32::from(sent - read) * 2_112);
                assert_eq!(rig.stack.udp_is_readable(id, false), Ok(read < sent));
            }
            assert_eq!((sent, read), (10, 10));
            rig.stack.udp_close(id).expect("open");
        }
        assert_eq!((rig.buffers_in_use(), rig.stack.socket_memory()), (0, 0));
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
