//! Sockets that move while datagrams arrive.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use forebay_stack::Stack;
use forebay_stack::drop::DropReason;
use forebay_stack::packet::PacketQueue;
use forebay_stack::time::Instant;
use forebay_tests::packets;

use super::*;

/// Datagrams that each test brings in: enough to meet a socket in every state.
const DATAGRAMS: u64 = 30_000;

/// Brings the same datagram in over and over; counts as it goes.
fn flood(stack: &Stack, tun0: u32, now: Instant, packet: &[u8], sent: &AtomicU64) {
    let mut core = stack.core();
    while sent.load(Ordering::Relaxed) < DATAGRAMS {
        let mut queue = PacketQueue::new();
        for _ in 0..8 {
            let Some(mut buf) = core.cache().alloc() else {
                continue;
            };
            buf.put(packet.len())
                .expect("it fits")
                .copy_from_slice(packet);
            queue.push(buf);
        }
        let count = queue.len() as u64;
        stack.receive(&mut core, now, tun0, &mut queue);
        sent.fetch_add(count, Ordering::Release);
    }
}

/// Reads until all that was sent has been read or told to stop; returns how many.
fn read(stack: &Stack, id: SocketId, peer: SocketAddr, done: &AtomicBool) -> u64 {
    let mut read = 0;
    loop {
        let stop = done.load(Ordering::Acquire);
        while let Some(received) = stack.udp_recv(id, &mut [], false).expect("open") {
            assert_eq!(received.from, peer, "somebody else's");
            read += 1;
        }
        if stop {
            return read;
        }
        thread::yield_now();
    }
}

#[test]
fn connecting_and_disconnecting_loses_nothing_and_takes_nothing_foreign() {
    both(|rig| {
        for (own, peer) in pairs() {
            let every: IpAddr = if own.is_ipv4() {
                [0, 0, 0, 0].into()
            } else {
                [0_u16; 8].into()
            };
            let mover = bound(&rig, every, 53);
            rig.stack.udp_set_rcvbuf(mover, 212_992).expect("open");
            let (stack, now, tun0) = (&rig.stack, rig.now(), rig.ifindex("tun0"));
            let (sent, done) = (AtomicU64::new(0), AtomicBool::new(false));
            let dropped_before = rig.counters().dropped_total();
            let packet = packets::udp(peer, own, 1000, 53, b"x");
            let got = thread::scope(|scope| {
                let flooder = scope.spawn(|| flood(stack, tun0, now, &packet, &sent));
                let reader = scope.spawn(|| read(stack, mover, (peer, 1000).into(), &done));
                while !flooder.is_finished() {
                    stack
                        .udp_connect(now, mover, (peer, 1000).into())
                        .expect("a route");
                    stack.udp_disconnect(mover).expect("open");
                }
                flooder.join().expect("the flooder");
                done.store(true, Ordering::Release);
                reader.join().expect("the reader")
            });
            let sent = sent.into_inner();
            let full = rig.dropped(DropReason::SocketRcvbuff);
            let memory = rig.dropped(DropReason::ProtoMem);
            assert_eq!(rig.dropped(DropReason::UdpNoSocket), 0);
            assert_eq!(rig.counters().dropped_total() - dropped_before, sent - got);
            assert_eq!(rig.counters().dropped_total(), full + memory);
            assert!(got > 0);
            stack.udp_close(mover).expect("open");
        }
        assert_eq!(rig.stack.socket_memory(), 0);
    });
}

#[test]
fn a_socket_that_changes_peers_gets_each_peers_datagrams_while_it_is_connected_there() {
    let rig = Rig::new();
    for (own, peer) in pairs() {
        let mover = connected(&rig, own, 53, peer, 1000);
        let fallback = bound(&rig, own, 53);
        let dropped_before = rig.counters().dropped_total();
        let (stack, now, tun0) = (&rig.stack, rig.now(), rig.ifindex("tun0"));
        let sent = AtomicU64::new(0);
        let packet = packets::udp(peer, own, 1000, 53, b"x");
        let got = thread::scope(|scope| {
            let flooder = scope.spawn(|| flood(stack, tun0, now, &packet, &sent));
            let mut got = 0;
            let mut count = |id: SocketId| {
                while stack.udp_recv(id, &mut [], false).expect("open").is_some() {
                    got += 1;
                }
            };
            for port in (1001..1004).cycle() {
                stack
                    .udp_connect(now, mover, (peer, port).into())
                    .expect("a route");
                // What had come in before is of the old peer; nothing of it comes from now on.
                count(mover);
                assert_eq!(stack.udp_recv(mover, &mut [], false), Ok(None));
                stack
                    .udp_connect(now, mover, (peer, 1000).into())
                    .expect("a route");
                count(mover);
                count(fallback);
                if flooder.is_finished() {
                    break;
                }
            }
            flooder.join().expect("the flooder");
            count(mover);
            count(fallback);
            got
        });
        let sent = sent.into_inner();
        stack.udp_close(mover).expect("open");
        stack.udp_close(fallback).expect("open");
        let dropped = rig.counters().dropped_total() - dropped_before;
        assert_eq!(dropped, sent - got, "only for want of room");
        assert!(got > 0);
        assert_eq!(rig.dropped(DropReason::UdpNoSocket), 0);
    }
}

#[test]
fn sockets_that_come_and_go_under_traffic_leave_nothing_behind() {
    let mut rig = Rig::new();
    for (own, peer) in pairs() {
        let (stack, now, tun0) = (&rig.stack, rig.now(), rig.ifindex("tun0"));
        let sent = AtomicU64::new(0);
        thread::scope(|scope| {
            let packet = packets::udp(peer, own, 1000, 53, b"x");
            let sent = &sent;
            let flooder = scope.spawn(move || flood(stack, tun0, now, &packet, sent));
            let workers = [0, 1].map(|worker| {
                scope.spawn(move || {
                    for turn in worker.. {
                        churn(stack, now, own, peer, turn);
                        if sent.load(Ordering::Acquire) >= DATAGRAMS {
                            break;
                        }
                    }
                })
            });
            // What a thread keeps at hand is to be had when it has ended.
            flooder.join().expect("the flooder");
            for worker in workers {
                worker.join().expect("no panic");
            }
        });
        assert!(rig.stack.udp_sockets().is_empty());
        assert_eq!(rig.stack.socket_memory(), 0);
        for interface in ["tun0", "tun1"] {
            let _ = rig.output(interface);
        }
        assert_eq!(rig.buffers_in_use(), 0);
    }
}

/// The life of a socket.
fn churn(stack: &Stack, now: Instant, own: IpAddr, peer: IpAddr, turn: u32) {
    let id = stack.udp_open(version_of(own)).expect("a socket");
    stack.udp_set_reuse_addr(id, true).expect("open");
    stack.udp_bind(id, (own, 53).into()).expect("they share");
    if !turn.is_multiple_of(3) {
        stack
            .udp_connect(now, id, (peer, 1000).into())
            .expect("a route");
    }
    if !turn.is_multiple_of(2) {
        while let Ok(Some(_)) = stack.udp_recv(id, &mut [], false) {}
    }
    stack.udp_close(id).expect("open");
    assert!(stack.udp_close(id).is_err());
}
