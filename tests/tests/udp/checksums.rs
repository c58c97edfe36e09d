//! When checksums are verified, and that everybody who looks at a queue sees the same.
//!
//! Up to 68 bytes of payload are verified on arrival, more when they are read.

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_tests::{Net, Rig, everywhere, packets};

use super::*;

const PORT: u16 = 53;
const PEER_PORT: u16 = 1000;

/// Longest payload that is verified on arrival.
const SHORT: usize = 68;

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

/// The packets of a datagram, in fragments if it is long.
fn packets_of(net: &Net, payload: &[u8], is_good: bool, id: u32) -> Vec<Vec<u8>> {
    let packet = packets::udp(net.peer, net.own, PEER_PORT, PORT, payload);
    let mut packets = match packet.len() <= 1_500 {
        true => vec![packet],
        false => packets::fragments(&packet, id, 1_400),
    };
    if !is_good {
        let last = packets.last_mut().and_then(|packet| packet.last_mut());
        *last.expect("a payload") ^= 1;
    }
    packets
}

/// Errors that were counted: of any kind, and of checksums.
fn errors(rig: &Rig, net: &Net) -> (u64, u64) {
    let all = net.pick(Counter::UdpInErrors, Counter::Udp6InErrors);
    let checksum = net.pick(Counter::UdpInCsumErrors, Counter::Udp6InCsumErrors);
    (rig.count(all), rig.count(checksum))
}

fn socket(rig: &Rig, net: &Net, connected: bool) -> SocketId {
    match connected {
        true => rig.bind_and_connect(net.own(PORT), net.peer(PEER_PORT)),
        false => rig.bind(net.own(PORT)),
    }
}

/// The regression of June 2017: poll verified a datagram, and the read that followed did so again,
/// with what was left of the state, and dropped it.
#[test]
fn poll_peek_and_read_agree_for_every_size() {
    everywhere(|mut rig, net| {
        for connected in [false, true] {
            let id = socket(&rig, &net, connected);
            let stack = rig.stack.clone();
            for (nth, len) in [0, 1, 60, 68, 69, 76, 77, 501, 1_400, 3_001]
                .into_iter()
                .enumerate()
            {
                for blocking in [true, false] {
                    let sent = payload(len);
                    rig.inject_all("tun0", packets_of(&net, &sent, true, nth as u32));
                    let mut buf = vec![0; 4_000];
                    for _ in 0..2 {
                        assert_eq!(stack.udp_is_readable(id, blocking), Ok(true), "{len}");
                    }
                    assert_eq!(stack.udp_next_len(id), Ok(len));
                    for peek in [true, true, false] {
                        let received = stack.udp_recv(id, &mut buf, peek).expect("no error");
                        let received = received.expect("a datagram");
                        assert_eq!((received.len, received.full_len), (len, len));
                        assert_eq!(buf[..len], sent);
                    }
                    assert_eq!(stack.udp_is_readable(id, blocking), Ok(false), "{len}");
                    assert_eq!(stack.udp_next_len(id), Ok(0));
                }
            }
            assert_eq!(errors(&rig, &net), (0, 0));
            rig.close(id);
        }
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

/// By length and by whether reads block: what is counted on arrival, what poll says, what is counted
/// then, and what a read finds.
#[test]
fn a_bad_checksum_is_found_once_and_never_read() {
    everywhere(|mut rig, net| {
        let id = socket(&rig, &net, false);
        let stack = rig.stack.clone();
        let cases = [
            (SHORT, true, 1, false, 1),
            (SHORT, false, 1, false, 1),
            (SHORT + 1, true, 0, false, 1),
            (SHORT + 1, false, 0, true, 0),
            (200, true, 0, false, 1),
            (200, false, 0, true, 0),
            (3_000, true, 0, false, 1),
            (3_000, false, 0, true, 0),
        ];
        for (len, blocking, on_arrival, readable, polled) in cases {
            for first_read in ["recv", "peek", "take", "batch", "next_len"] {
                let before = errors(&rig, &net).0;
                let counted = |rig: &Rig| {
                    let (all, checksum) = errors(rig, &net);
                    assert_eq!(all, checksum);
                    all - before
                };
                rig.inject_all("tun0", packets_of(&net, &payload(len), false, 9));
                assert_eq!(counted(&rig), on_arrival, "{len}");
                let said = stack.udp_is_readable(id, blocking);
                assert_eq!((said, counted(&rig)), (Ok(readable), polled), "{len}");
                match first_read {
                    "recv" => assert_eq!(stack.udp_recv(id, &mut [0; 9], false), Ok(None)),
                    "peek" => assert_eq!(stack.udp_recv(id, &mut [0; 9], true), Ok(None)),
                    "take" => assert!(stack.udp_take(id).expect("no error").is_none()),
                    "batch" => assert_eq!(
                        stack.udp_recv_batch(id, &mut [RecvSlot::new(&mut [0; 9])]),
                        Ok(0)
                    ),
                    _ => assert_eq!(stack.udp_next_len(id), Ok(0)),
                }
                assert_eq!(counted(&rig), 1, "{len} {first_read}");

                // A good one behind it is what is read.
                for is_good in [false, true] {
                    let packets = packets_of(&net, &payload(len), is_good, u32::from(is_good));
                    rig.inject_all("tun0", packets);
                }
                assert_eq!(rig.drain(id), [payload(len)], "{len}");
                assert_eq!(counted(&rig), 2, "{len}");
            }
        }
        let (all, _) = errors(&rig, &net);
        assert_eq!(rig.dropped(DropReason::UdpCsum), all);
        // Linux counts what never came to a socket for none.
        let drops = stack.udp_info(id).expect("open").drops;
        assert_eq!(u64::from(drops), all - 2 * 5 * 2);
    });
}

/// Bad datagrams take room until they are found out. Poll finds them out where reads block; where
/// they don't, the next read does.
#[test]
fn every_way_out_of_the_queue_gives_its_charge_back_once() {
    everywhere(|mut rig, net| {
        let id = socket(&rig, &net, true);
        let stack = rig.stack.clone();
        stack.udp_set_rcvbuf(id, 8_000).expect("open");
        let good: Vec<_> = (0..20)
            .flat_map(|_| packets_of(&net, &payload(200), true, 0))
            .collect();
        let bad: Vec<_> = (0..20)
            .flat_map(|_| packets_of(&net, &payload(200), false, 0))
            .collect();
        // Seven buffers of 2,112 bytes are within 16,000.
        let fit = 7;
        let held = |count: u32| {
            let info = stack.udp_info(id).expect("open");
            assert_eq!(info.recv_q, count * 2_112);
            assert_eq!(stack.socket_memory(), count as usize * 2_112);
        };
        for _ in 0..300 {
            rig.inject_all("tun0", &bad);
            held(fit);
            assert_eq!(stack.udp_is_readable(id, false), Ok(true));
            rig.inject_all("tun0", &good);
            held(fit);
            assert_eq!(stack.udp_is_readable(id, true), Ok(false));
            held(0);

            rig.inject_all("tun0", &good);
            held(fit);
            assert_eq!(
                stack
                    .udp_recv(id, &mut [0; 4], true)
                    .expect("one")
                    .expect("one")
                    .len,
                4
            );
            held(fit);
            for left in (0..fit).rev() {
                assert!(
                    stack
                        .udp_recv(id, &mut [0; 4], false)
                        .expect("no error")
                        .is_some()
                );
                held(left);
            }

            rig.inject_all("tun0", [&bad[..2], &good[..], &bad[..]].concat());
            assert_eq!(rig.drain(id).len(), fit as usize - 2);
            held(0);
        }
        rig.inject_all("tun0", &good);
        rig.close(id);
        assert_eq!((stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

/// Nobody is told of a closed port by a datagram that may never have been sent.
#[test]
fn a_long_bad_datagram_to_a_closed_port_gets_no_answer() {
    everywhere(|mut rig, net| {
        for len in [SHORT, SHORT + 1, 3_000] {
            for is_good in [false, true] {
                rig.inject_all("tun0", packets_of(&net, &payload(len), is_good, len as u32));
                assert_eq!(rig.output("tun0").len(), usize::from(is_good), "{len}");
            }
        }
        assert_eq!(errors(&rig, &net), (3, 3));
        let no_ports = net.pick(Counter::UdpNoPorts, Counter::Udp6NoPorts);
        assert_eq!(rig.count(no_ports), 3);
    });
}
