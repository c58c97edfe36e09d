//! Everything that can be changed changes, under load.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Instant;

use forebay::fib::{Prefix, Route, RouteKind, RouteMatch, TableId};
use forebay_stack::random::Random;

use super::*;

const FLOWS: u16 = 8;

/// Changes what steers, at random.
fn resteer(host: &Host, random: &mut Random) {
    let sizes = ["0", "1", "3", "64", "1024", "65536"];
    let size = sizes[random.below(6) as usize];
    match random.below(3) {
        0 => host.set("net.core.rps_sock_flow_entries", size),
        1 => {
            let queue = random.below(2);
            host.set(
                &format!("class/net/port0/queues/rx-{queue}/rps_flow_cnt"),
                size,
            );
        }
        _ => {
            let (queue, mask) = (
                random.below(2),
                ["0", "1", "2", "3", "f"][random.below(5) as usize],
            );
            host.set(&format!("class/net/port0/queues/rx-{queue}/rps_cpus"), mask);
        }
    }
}

/// Adds a route to elsewhere and removes it again.
fn reroute(host: &Host, random: &mut Random) {
    let inner = host.stack.inner();
    let prefix = Prefix::new(Ipv4Addr::from(0x3000_0000 | random.below(1 << 16) << 8), 24);
    let prefix = prefix.expect("24 bits");
    let route = Route::new(RouteKind::Blackhole, prefix);
    inner.fib4().add(TableId::MAIN, route).expect("a new route");
    let matching = RouteMatch::prefix(prefix);
    inner
        .fib4()
        .delete(TableId::MAIN, &matching)
        .expect("it is there");
}

#[test]
fn counters_add_up_and_memory_comes_back_whatever_changes() {
    let host = Host::new(2, 2);
    let end = Instant::now() + how_long();
    let done = AtomicBool::new(false);
    let (sent, read) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (host, done, sent, read) = (&host, &done, &sent, &read);
        let feeders: Vec<_> = (0..2_u16)
            .map(|queue| {
                scope.spawn(move || {
                    let port = host.port.queue(queue).expect("a queue");
                    let mut number = 0;
                    while Instant::now() < end {
                        for flow in 0..FLOWS {
                            port.send(&datagram(flow % 2 == 1, flow, number))
                                .expect("a packet");
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                        number += 1;
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..FLOWS)
            .map(|flow| {
                scope.spawn(move || {
                    // A socket that lives for a while, then another.
                    while !done.load(Ordering::Acquire) {
                        let socket = host.connected(flow % 2 == 1, flow);
                        let mut payload = [0; 8];
                        for _ in 0..500 {
                            match socket.recv(&mut payload) {
                                Ok(_) => drop(read.fetch_add(1, Ordering::Relaxed)),
                                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                                    if done.load(Ordering::Acquire) {
                                        break;
                                    }
                                }
                                Err(error) => unreachable!("{error}"),
                            }
                        }
                    }
                })
            })
            .collect();
        let mut random = Random::new(11);
        while Instant::now() < end {
            resteer(host, &mut random);
            reroute(host, &mut random);
        }
        for feeder in feeders {
            feeder.join().expect("no panic");
        }
        host.settle();
        done.store(true, Ordering::Release);
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
    host.settle();
    let status = host.stack.device_status("port0").expect("a device");
    let (sent, read) = (sent.into_inner(), read.into_inner());
    assert_eq!(status.stats.rx_packets + status.stats.rx_dropped, sent);
    let snapshot = host.stack.inner().counters();
    let dropped = snapshot.dropped_total();
    assert_eq!(
        status.stats.rx_packets,
        read + dropped,
        "{:?}",
        snapshot.drops().filter(|(_, n)| *n > 0).collect::<Vec<_>>()
    );
    host.stack.inner().flush_caches();
    assert_eq!(host.stack.inner().socket_memory(), 0);
    // What is left are the workers' caches, and what they hold ready to be filled.
    let in_use = host.stack.inner().pool().in_use();
    assert!(in_use <= 2 * 300, "{in_use} buffers are in use");
    eprintln!("{sent} sent, {read} read, {dropped} dropped");
}
