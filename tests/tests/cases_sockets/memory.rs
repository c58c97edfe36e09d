//! What a socket keeps while nobody reads it.

use forebay::counters::Counter;

use super::host::{PEER_PORT, PORT, bad_packets_of, drain, rx};
use super::*;

/// Bytes that one buffer is charged.
const BUFFER: u32 = 2_112;

/// The budget counts buffers and not payload; but an empty queue takes one datagram of any size.
#[test]
fn a_small_buffer_takes_few_and_always_one() {
    everywhere(|host| {
        let socket = host.flow();
        for (asked, has) in [(10_000, 20_000), (u32::MAX, 2 * 212_992), (1, 2_304)] {
            assert_eq!(socket.set_recv_buffer_size(asked).expect("a size"), has);
            assert_eq!(socket.recv_buffer_size().expect("a size"), has);
        }
        let mut lost = 0;
        // Again after it was drained: the charge is given back to the byte.
        for _ in 0..2 {
            for size in [1, 1_000] {
                for _ in 0..50 {
                    host.peer_sends(&vec![1; size]);
                }
                assert_eq!(drain(&socket), [vec![1; size]]);
                lost += 49;
            }
            host.peer_sends(&[1; 20_000]);
            host.peer_sends(b"no room");
            assert_eq!(drain(&socket), [vec![1; 20_000]]);
            lost += 1;
            let rcvbuf = host.count(Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors);
            assert_eq!(
                (rcvbuf, host.in_errors(), host.csum_errors()),
                (lost, lost, 0)
            );
            assert_eq!(u64::from(socket.drops().expect("a number")), lost);
        }
        assert_eq!(host.stack.inner().socket_memory(), 0);
    });
}

/// Bad ones that nobody has looked at take room. Where reads block, poll makes room; where they
/// don't, only a read does.
#[test]
fn bad_datagrams_take_room_until_they_are_found_out() {
    everywhere(|host| {
        let (from, to) = (host.net.peer(PEER_PORT), host.net.own(PORT));
        let socket = host.flow();
        socket.set_recv_buffer_size(8_000).expect("a size");
        let fit = (16_000 / BUFFER) as usize;
        let held = || host.stack.inner().socket_memory();
        let bad = bad_packets_of(from, to, &[1; 200]);
        for _ in 0..20 {
            for _ in 0..10 {
                host.inject_all("tun0", &bad);
            }
            assert_eq!(held(), fit * BUFFER as usize);
            assert_eq!(socket.is_readable().expect("open"), !host.blocking);
            for _ in 0..10 {
                host.peer_sends(b"good");
            }
            let read = drain(&socket).len();
            assert_eq!(read, if host.blocking { fit } else { 0 });
            assert_eq!(held(), 0);
        }
    });
}

/// Read, peeked at and read, cut off, taken whole, found bad, filtered, refused, closed: each gives
/// its charge back, and once.
#[test]
fn every_way_out_of_the_queue_gives_its_charge_back_once() {
    use forebay::RecvSlot;
    use forebay::filter::{Instruction, code};
    everywhere(|host| {
        let (from, to) = (host.net.peer(PEER_PORT), host.net.own(PORT));
        let socket = host.flow();
        socket.set_recv_buffer_size(8_000).expect("a size");
        let memory = || host.stack.inner().socket_memory();
        for turn in 0..200_usize {
            // In one buffer and in several.
            let size = [10, 200, 3_000][turn % 3];
            let sent = vec![turn as u8; size];
            host.inject_all("tun0", bad_packets_of(from, to, &sent));
            host.peer_sends(&sent);
            let held = memory();
            assert!(held >= BUFFER as usize);
            match turn % 7 {
                0 => assert_eq!(rx(&socket), Some(sent)),
                1 => {
                    assert_eq!(socket.peek(&mut [0; 8]).expect("a datagram"), 8);
                    assert!(memory() <= held && memory() > 0);
                    assert_eq!(rx(&socket), Some(sent));
                }
                2 => assert_eq!(socket.recv(&mut [0; 4]).expect("a datagram"), 4),
                3 => {
                    let datagram = socket.recv_datagram().expect("a datagram");
                    assert!(memory() > 0, "lent, not gone");
                    match turn % 2 {
                        0 => drop(datagram),
                        _ => socket.recycle(datagram),
                    }
                }
                4 => {
                    let mut buf = vec![0; 4_000];
                    let slots = &mut [RecvSlot::new(&mut buf)];
                    assert_eq!(socket.recv_batch(slots).expect("a datagram"), 1);
                }
                5 => {
                    let nothing = [Instruction::stmt(code::RET | code::K, 0)];
                    assert_eq!(rx(&socket), Some(sent.clone()));
                    socket.attach_filter(&nothing).expect("a program");
                    host.peer_sends(&sent);
                    assert_eq!(memory(), 0, "filtered");
                    socket.detach_filter().expect("a filter");
                }
                _ => {
                    let other = host.bind(host.net.own(PORT + 1));
                    host.deliver("tun0", from, host.net.own(PORT + 1), &sent);
                    drop(other);
                    assert_eq!(rx(&socket), Some(sent));
                }
            }
            assert_eq!(memory(), 0, "{turn}");
            assert_eq!(rx(&socket), None);
        }
        // As many fit as ever did.
        for _ in 0..10 {
            host.peer_sends(b"good");
        }
        assert_eq!(drain(&socket).len(), (16_000 / BUFFER) as usize);
    });
}
