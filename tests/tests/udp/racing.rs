//! Readers, lookers, and sockets that end, against arrivals: every datagram comes to one end, and to
//! one only.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use forebay_stack::Stack;
use forebay_stack::drop::DropReason;
use forebay_stack::filter::{Instruction, code};
use forebay_stack::packet::PacketQueue;
use forebay_stack::random::Random;
use forebay_stack::time::Instant;
use forebay_tests::packets;

use super::*;

/// Datagrams of each run, each with a number of its own.
const DATAGRAMS: u64 = 6_000;

/// A numbered datagram's payload: the number, and what follows from it, of some length.
fn numbered(number: u64, dice: &mut Random) -> Vec<u8> {
    let len = [8, 60, 69, 200, 1_400][dice.below(5) as usize];
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(len, number as u8);
    payload
}

/// The number of a payload that came whole.
fn number_of(payload: &[u8]) -> u64 {
    let (number, rest) = payload.split_first_chunk().expect("a number");
    let number = u64::from_be_bytes(*number);
    assert!(rest.iter().all(|byte| *byte == number as u8), "{number}");
    number
}

/// Brings all of them in, in small batches, no further ahead of the readers than `room`.
fn bring(stack: &Stack, at: (u32, Instant), flow: (IpAddr, IpAddr), room: impl Fn(u64) -> bool) {
    let (mut core, mut dice) = (stack.core(), Random::new(5));
    let (own, peer) = flow;
    let mut sent = 0;
    while sent < DATAGRAMS {
        let mut queue = PacketQueue::new();
        let batch = (1 + u64::from(dice.below(16))).min(DATAGRAMS - sent);
        while !room(sent + batch) {
            thread::yield_now();
        }
        for number in sent..sent + batch {
            let packet = packets::udp(peer, own, 1000, 53, &numbered(number, &mut dice));
            let mut buf = core.cache().alloc().expect("a buffer");
            buf.put(packet.len())
                .expect("it fits")
                .copy_from_slice(&packet);
            queue.push(buf);
        }
        stack.receive(&mut core, at.1, at.0, &mut queue);
        sent += batch;
    }
}

/// Ends a run whose threads no longer do their part.
struct EndOnPanic<'a>(&'a AtomicBool);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// Two who read, and one who does something else to the socket, over and over. Every datagram is
/// read once, whole.
fn each_is_read_once(
    rig: &Rig,
    id: SocketId,
    (own, peer): (IpAddr, IpAddr),
    mut disturb: impl FnMut(&Stack) + Send,
) {
    let stack = &*rig.stack;
    let at = (rig.ifindex("tun0"), rig.now());
    let (read, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let (read, done) = (&read, &done);
    let seen = Mutex::new(vec![0_u8; DATAGRAMS as usize]);
    thread::scope(|scope| {
        let reader = || {
            let _end = EndOnPanic(done);
            let mut buf = [0; 1_500];
            while !done.load(Ordering::Acquire) {
                match stack.udp_recv(id, &mut buf, false).expect("open") {
                    None => thread::yield_now(),
                    Some(received) => {
                        let number = number_of(&buf[..received.len]);
                        seen.lock().expect("no panic")[number as usize] += 1;
                        read.fetch_add(1, Ordering::Release);
                    }
                }
            }
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let disturber = scope.spawn(move || {
            let _end = EndOnPanic(done);
            while !done.load(Ordering::Acquire) {
                disturb(stack);
                thread::yield_now();
            }
        });
        // As many as fit beside what readers have not given back yet, so that none is lost.
        let is_over = || done.load(Ordering::Acquire) || stack.counters().dropped_total() > 0;
        let room = |sent| sent - read.load(Ordering::Acquire) <= 64 || is_over();
        bring(stack, at, (own, peer), room);
        while read.load(Ordering::Acquire) < DATAGRAMS && !is_over() {
            thread::yield_now();
        }
        done.store(true, Ordering::Release);
        // Not only their work: what a thread keeps at hand is to be had when it has ended.
        for thread in readers.into_iter().chain([disturber]) {
            thread.join().expect("no panic");
        }
    });
    let seen = seen.into_inner().expect("no panic");
    assert!(seen.iter().all(|times| *times == 1), "{:?}", rig.drops());
    assert_eq!(rig.drops(), []);
}

/// Looking takes nothing, and sees nothing twice that has moved on.
#[test]
fn what_some_look_at_others_read_once() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let id = connected(&rig, own, 53, peer, 1000);
            let (mut buf, mut last) = ([0; 1_500], 0);
            each_is_read_once(&rig, id, (own, peer), |stack| {
                let _ = stack.udp_is_readable(id, true).expect("open");
                let _ = stack.udp_next_len(id).expect("open");
                if let Some(peeked) = stack.udp_recv(id, &mut buf, true).expect("open") {
                    let number = number_of(&buf[..peeked.len]);
                    assert!(number >= last, "{number} after {last}");
                    last = number;
                }
            });
            stack_is_empty(&mut rig, id);
        }
    });
}

#[test]
fn a_socket_that_moves_reads_each_datagram_once() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let id = bound(&rig, own, 53);
            let (tun0, now) = (rig.ifindex("tun0"), rig.now());
            each_is_read_once(&rig, id, (own, peer), |stack| {
                let to = (peer, 1000).into();
                stack.udp_connect(now, id, to).expect("a way");
                stack.udp_set_device(id, Some(tun0)).expect("a device");
                stack.udp_disconnect(id).expect("open");
                stack.udp_set_device(id, None).expect("none");
            });
            stack_is_empty(&mut rig, id);
        }
    });
}

#[test]
fn filters_that_come_and_go_lose_nothing_that_they_keep() {
    let all = [Instruction::stmt(code::RET | code::K, u32::MAX)];
    both(|mut rig| {
        for (own, peer) in pairs() {
            let id = connected(&rig, own, 53, peer, 1000);
            each_is_read_once(&rig, id, (own, peer), |stack| {
                stack.udp_attach_filter(id, &all).expect("a program");
                stack.udp_attach_filter(id, &all).expect("a program");
                stack.udp_detach_filter(id).expect("a filter");
            });
            stack_is_empty(&mut rig, id);
        }
    });
}

/// Closes the last socket; nothing of any datagram is left.
fn stack_is_empty(rig: &mut Rig, id: SocketId) {
    rig.stack.udp_close(id).expect("open");
    assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
}

/// Sockets end while their datagrams come in, some of them read and some not: what was not read
/// ended with its socket, or found none.
#[test]
fn what_a_closing_socket_does_not_read_is_dropped_and_counted() {
    both(|mut rig| {
        for (own, peer) in pairs() {
            let stack = &rig.stack.clone();
            let at = (rig.ifindex("tun0"), rig.now());
            let before = rig.counters();
            let done = AtomicBool::new(false);
            let read = thread::scope(|scope| {
                let closer = scope.spawn(|| {
                    let (mut dice, mut read) = (Random::new(11), 0_u64);
                    let mut buf = [0; 1_500];
                    while !done.load(Ordering::Acquire) {
                        let id = stack.udp_open(version_of(own)).expect("a socket");
                        stack.udp_bind(id, (own, 53).into()).expect("a free port");
                        if dice.below(2) == 0 {
                            let peer = (peer, 1000).into();
                            stack.udp_connect(at.1, id, peer).expect("a way");
                        }
                        for _ in 0..dice.below(8) {
                            if let Some(received) =
                                stack.udp_recv(id, &mut buf, false).expect("open")
                            {
                                number_of(&buf[..received.len]);
                                read += 1;
                            }
                        }
                        stack.udp_close(id).expect("open");
                    }
                    read
                });
                bring(stack, at, (own, peer), |_| true);
                done.store(true, Ordering::Release);
                closer.join().expect("no panic")
            });
            let after = rig.counters();
            let dropped: u64 = [
                DropReason::SocketClosed,
                DropReason::UdpNoSocket,
                DropReason::SocketRcvbuff,
            ]
            .iter()
            .map(|reason| after.dropped(*reason) - before.dropped(*reason))
            .sum();
            assert_eq!(read + dropped, DATAGRAMS);
            assert_eq!(after.dropped_total() - before.dropped_total(), dropped);
            assert!(rig.stack.udp_sockets().is_empty());
            for interface in ["tun0", "tun1"] {
                let _ = rig.output(interface);
            }
        }
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}
