//! Bounds of queues: options, knobs, and one burst against one by one.

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_tests::{everywhere, packets};

use super::*;

#[test]
fn a_forced_receive_buffer_may_exceed_the_knob_and_never_wraps() {
    let rig = Rig::new();
    let id = open(&rig, V4::OWN.into());
    let stack = &rig.stack;
    assert_eq!(stack.udp_info(id).expect("open").rcvbuf, 212_992);
    // As Linux's getsockopt tells them.
    let cases = [
        (0, 2_304, 2_304),
        (1, 2_304, 2_304),
        (1_152, 2_304, 2_304),
        (1_153, 2_306, 2_306),
        (10_000, 20_000, 20_000),
        (212_993, 425_984, 425_986),
        (1 << 30, 425_984, i32::MAX as u32 - 1),
        (u32::MAX, 425_984, i32::MAX as u32 - 1),
    ];
    for (asked, plain, forced) in cases {
        assert_eq!(stack.udp_set_rcvbuf(id, asked), Ok(plain), "{asked}");
        assert_eq!(stack.udp_force_rcvbuf(id, asked), Ok(forced), "{asked}");
    }
    rig.set("net.core.rmem_max", i64::from(i32::MAX));
    assert_eq!(stack.udp_set_rcvbuf(id, u32::MAX), Ok(i32::MAX as u32 - 1));
    rig.set("net.core.rmem_default", 5_000);
    let next = open(&rig, V6::OWN.into());
    assert_eq!(stack.udp_info(next).expect("open").rcvbuf, 5_000);
}

/// `udp_mem` bounds all sockets; below its third number, those that hold next to nothing get on.
#[test]
fn sockets_that_hold_little_get_memory_when_others_get_none() {
    everywhere(|mut rig, net| {
        // 64 buffers, and 71 with what is left of the last page.
        rig.stack
            .set_sysctl("net.ipv4.udp_mem", "33 33 37")
            .expect("three numbers");
        let ids: Vec<_> = (0..10)
            .map(|port| rig.bind(net.own(2_000 + port)))
            .collect();
        let mut kept = Vec::new();
        for (port, id) in (2_000..).zip(&ids) {
            for _ in 0..80 {
                rig.deliver(net.peer(1000), net.own(port), b"unread");
            }
            kept.push(rig.stack.udp_info(*id).expect("open").recv_q / 2_112);
        }
        assert_eq!(kept, [64, 2, 2, 2, 1, 0, 0, 0, 0, 0]);
        let memory = net.pick(Counter::UdpMemErrors, Counter::Udp6MemErrors);
        let refused = 10 * 80 - 71;
        assert_eq!(rig.count(memory), refused);
        assert_eq!(rig.dropped(DropReason::ProtoMem), refused);
        assert_eq!(rig.stack.udp_info(ids[9]).expect("open").drops, 80);

        // Less for those who hold little is nothing for them.
        rig.drain(ids[1]);
        rig.set("net.ipv4.udp_rmem_min", 1);
        for _ in 0..3 {
            rig.deliver(net.peer(1000), net.own(2_001), b"one");
        }
        assert_eq!(rig.drain(ids[1]), [b"one"], "whose queue is empty");
        for id in ids {
            rig.close(id);
        }
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

/// What a burst brings must not depend on whether it comes as one.
#[test]
fn a_burst_keeps_order_and_counts_as_one_by_one() {
    everywhere(|mut rig, net| {
        let connected = rig.bind_and_connect(net.own(53), net.peer(1000));
        let bound = rig.bind(net.own(53));
        let other = rig.bind(net.own(54));
        let sockets = [connected, bound, other];
        for id in sockets {
            rig.stack.udp_set_rcvbuf(id, 21_120).expect("open");
        }
        let mut burst = Vec::new();
        for nth in 0..64_u8 {
            // Runs of one socket's, of both peers mixed, of other ports, short and long, bad ones.
            let (from, to) = match nth {
                0..20 => (1000, 53),
                20..40 => (1000 + u16::from(nth % 3), 53),
                40..50 => (1000, 54),
                50..55 => (1000, 55),
                _ => (1000 + u16::from(nth % 2), 53 + u16::from(nth % 2)),
            };
            let len = if nth % 7 == 0 { 300 } else { 20 };
            let mut packet = packets::udp(net.peer, net.own, from, to, &vec![nth; len]);
            if nth % 5 == 4 {
                *packet.last_mut().expect("a payload") ^= 1;
            }
            burst.push(packet);
        }
        let outcome = |rig: &mut Rig, packets: &[Vec<u8>], at_once: usize| {
            let before = rig.counters();
            for part in packets.chunks(at_once) {
                rig.inject_all("tun0", part);
            }
            let read = sockets.map(|id| rig.drain(id));
            let after = rig.counters();
            let counted: Vec<_> = after
                .counters()
                .map(|(counter, value)| (counter, value - before.get(counter)))
                .filter(|(counter, _)| !counter.name().starts_with("Forebay"))
                .collect();
            let drops: Vec<_> = after
                .drops()
                .map(|(reason, value)| (reason, value - before.dropped(reason)))
                .collect();
            (read, counted, drops, rig.output("tun0").len())
        };
        rig.set("net.ipv4.icmp_ratelimit", 0);
        rig.set("net.ipv6.icmp.ratelimit", 0);
        let one_by_one = outcome(&mut rig, &burst, 1);
        assert!(one_by_one.0.iter().all(|read| !read.is_empty()));
        for at_once in [2, 7, 64] {
            assert_eq!(outcome(&mut rig, &burst, at_once), one_by_one, "{at_once}");
        }
    });
}

/// Readers of every kind, and who only looks, against each other and against arrivals.
#[test]
fn charges_balance_when_readers_and_cores_meet() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let id = connected(&rig, own, 53, peer, 1000);
        let (stack, now, tun0) = (&rig.stack.clone(), rig.now(), rig.ifindex("tun0"));
        let done = AtomicBool::new(false);
        let sent = 20_000_u64;
        let before = rig.counters();
        let read = thread::scope(|scope| {
            let read = || {
                let mut read = 0_u64;
                while !done.load(Ordering::Acquire) {
                    let (mut a, mut b) = ([0; 8], [0; 300]);
                    let mut slots = [RecvSlot::new(&mut a), RecvSlot::new(&mut b)];
                    read += stack.udp_recv_batch(id, &mut slots).expect("open") as u64;
                    read += u64::from(
                        stack
                            .udp_recv(id, &mut [0; 8], false)
                            .expect("open")
                            .is_some(),
                    );
                    // Looking takes nothing.
                    let _ = stack.udp_recv(id, &mut [0; 8], true).expect("open");
                    let _ = stack.udp_is_readable(id, true).expect("open");
                    if let Some(datagram) = stack.udp_take(id).expect("open") {
                        read += 1;
                        if read.is_multiple_of(2) {
                            stack.udp_recycle(datagram);
                        }
                    }
                }
                read
            };
            let readers = [scope.spawn(read), scope.spawn(read)];
            for nth in 0..sent / 8 {
                let len = if nth % 3 == 0 { 200 } else { 10 };
                let mut packet = packets::udp(peer, own, 1000, 53, &vec![1; len]);
                if nth % 16 == 3 {
                    *packet.last_mut().expect("a payload") ^= 1;
                }
                let mut queue = forebay_stack::packet::PacketQueue::new();
                for _ in 0..8 {
                    queue.push(rig.packet(&packet));
                }
                rig.stack.receive(&mut stack.core(), now, tun0, &mut queue);
            }
            done.store(true, Ordering::Release);
            readers
                .map(|reader| reader.join().expect("a reader"))
                .iter()
                .sum::<u64>()
        });
        let read = read + drain(&rig, id).len() as u64;
        let after = rig.counters();
        let dropped = |reason| after.dropped(reason) - before.dropped(reason);
        let csum = dropped(DropReason::UdpCsum);
        assert_eq!(read + csum + dropped(DropReason::SocketRcvbuff), sent);
        assert!(csum > 0);
        let info = stack.udp_info(id).expect("open");
        assert_eq!((info.recv_q, stack.socket_memory()), (0, 0));
        stack.udp_close(id).expect("open");
    }
    assert_eq!(rig.buffers_in_use(), 0);
}
