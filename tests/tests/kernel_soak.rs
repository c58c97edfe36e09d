//! At the kernel's full speed, and at none.

use std::env;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::device::{PacketPool, PacketQueue};
use forebay_tests::kernel::{
    Family, Heard, Host, Lab, LabConfig, Ping, bulk, drain, exchange, flood, in_private_network,
    ping, resident_bytes, worker_time,
};

/// Unread sockets: at `net.core.rmem_default` each they would take more than the whole pool.
const UNREAD: usize = 200;

/// How long a flood lasts in all.
fn duration() -> Duration {
    let seconds = env::var("FOREBAY_SOAK_SECS").ok();
    Duration::from_secs(seconds.map_or(6, |seconds| seconds.parse().expect("seconds")))
}

#[test]
fn unread_sockets_do_not_stop_the_router() {
    in_private_network("unread_sockets_do_not_stop_the_router", || {
        for early_demux in [true, false] {
            let config = LabConfig {
                early_demux,
                ..LabConfig::default()
            };
            let Some(lab) = Lab::start(config) else {
                return;
            };
            soak(lab, duration() / 2);
        }
    });
}

fn soak(lab: Lab, duration: Duration) {
    let pool = lab.stack.inner().pool().clone();
    touch(&pool);
    let unread: Vec<_> = (0..UNREAD).map(|at| unread_socket(&lab, at)).collect();
    let [v4, v6] = Family::both();
    let streams = [
        stream(&lab.left, &lab.right, v4.right),
        stream(&lab.right, &lab.left, v6.left),
    ];
    let stop = AtomicBool::new(false);
    let before = worker_time();
    let (heard, growth) = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (_, flooder) in &unread {
                    // The kernel's queue may be full.
                    let _ = flooder.send(&[0x55; 64]);
                }
            }
        });
        let drains = streams.each_ref().map(|(source, sink)| {
            scope.spawn(|| flood(source, 1_400, &stop));
            scope.spawn(|| drain(sink, &stop))
        });
        let early = resident_bytes();
        thread::sleep(duration);
        let growth = resident_bytes().saturating_sub(early);
        stop.store(true, Ordering::Relaxed);
        (drains.map(|drain| drain.join().expect("a drain")), growth)
    });
    let busy = worker_time() - before;
    eprintln!("{heard:?}, {growth} bytes more, {busy:?} of work");
    for Heard { datagrams, silence } in heard {
        assert!(datagrams > 1_000, "forwarding starved: {datagrams}");
        assert!(
            silence < (duration / 2).max(Duration::from_secs(2)),
            "forwarding stood still for {silence:?}"
        );
    }
    assert!(growth < 4 << 20, "grew by {growth} bytes");
    // The queues are as full as they were; connections get through all the same.
    for to in [v4.right, v6.right] {
        exchange(&lab.left, &lab.right, to, 1_000_000);
    }
    for (socket, _) in &unread {
        socket.set_nonblocking(true).expect("an option");
        socket.recv(&mut [0; 64]).expect("a full queue");
    }

    // Nothing is lost: when all is taken apart every buffer is home.
    drop(unread);
    drop(streams);
    let (_, _, stack) = lab.stop();
    drop(stack);
    assert_eq!(pool.in_use(), 0);
}

/// Uses every buffer once: from then on the pool takes no more memory.
fn touch(pool: &PacketPool) {
    let (mut cache, mut all) = (pool.cache(), PacketQueue::new());
    while let Some(mut packet) = cache.alloc() {
        packet.spare_mut().fill(1);
        all.push(packet);
    }
}

/// A socket of Forebay's, and one of the left host's that sends to it.
fn unread_socket(lab: &Lab, at: usize) -> (forebay::UdpSocket, UdpSocket) {
    let Family { left, own, .. } = Family::both()[at % 2];
    let socket = forebay::UdpSocket::bind(&lab.stack, (own, 0)).expect("bind");
    let flooder = lab.left.udp_to(socket.local_addr().expect("address"));
    // Half of them can be found early.
    if at % 4 < 2 {
        let port = flooder.local_addr().expect("address").port();
        socket.connect((left, port)).expect("connect");
    }
    (socket, flooder)
}

/// A connected socket of one host, and the one of the other that it sends to.
fn stream(from: &Host, to: &Host, at: std::net::IpAddr) -> (UdpSocket, UdpSocket) {
    let sink = to.udp(at, 0);
    (from.udp_to(sink.local_addr().expect("address")), sink)
}

/// With sockets open and links up, and nothing to do.
#[test]
fn an_idle_worker_sleeps() {
    in_private_network("an_idle_worker_sleeps", || {
        let Some(lab) = Lab::start(LabConfig::default()) else {
            return;
        };
        let sockets: Vec<_> = (0..4).map(|at| unread_socket(&lab, at)).collect();
        for Family { right, .. } in Family::both() {
            assert!(ping(&lab.left, right, Ping::default()));
        }
        thread::sleep(Duration::from_millis(200));
        let (before, start) = (worker_time(), Instant::now());
        thread::sleep(Duration::from_secs(3));
        let share = (worker_time() - before).as_secs_f64() / start.elapsed().as_secs_f64();
        eprintln!("idle: {:.3} % of a core", 100.0 * share);
        assert!(share < 0.01, "{share} of a core");
        drop(sockets);
        let (_, _, stack) = lab.stop();
        drop(stack);
    });
}

/// No more than a look at the figures: they say nothing on a machine with other things to do.
#[test]
fn figures() {
    in_private_network("figures", || {
        let time = duration() / 24;
        for offload in [true, false] {
            let config = LabConfig {
                offload,
                ..LabConfig::default()
            };
            let Some(lab) = Lab::start(config) else {
                return;
            };
            for Family { right, .. } in Family::both() {
                let before = worker_time();
                let gigabits = bulk(&lab.left, &lab.right, right, time) * 8e-9;
                let busy = (worker_time() - before).as_secs_f64();
                eprintln!(
                    "TCP to {right}, offload {offload}: {gigabits:.2} Gbit/s, worker {busy:.2} s"
                );
                assert!(gigabits > 0.0);

                let (source, sink) = stream(&lab.left, &lab.right, right);
                let (stop, before) = (AtomicBool::new(false), worker_time());
                let received = |lab: &Lab| {
                    lab.stack
                        .device_status("tun0")
                        .expect("tun0")
                        .stats
                        .rx_packets
                };
                let taken = received(&lab);
                let heard = thread::scope(|scope| {
                    scope.spawn(|| flood(&source, 18, &stop));
                    let drain = scope.spawn(|| drain(&sink, &stop));
                    thread::sleep(time);
                    stop.store(true, Ordering::Relaxed);
                    drain.join().expect("a drain")
                });
                let busy = (worker_time() - before).as_secs_f64();
                let taken = received(&lab) - taken;
                let cost = busy * 1e9 / taken as f64;
                eprintln!(
                    "UDP to {right}, offload {offload}: {} forwarded, {} heard, {cost:.0} ns a packet in the worker, system calls included",
                    taken, heard.datagrams
                );
                assert!(heard.datagrams > 0);
            }
        }
    });
}
