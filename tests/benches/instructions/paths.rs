//! The ways through the stack that are counted. Runs under callgrind, which knows two functions of
//! this file by name: it counts inside [`counted_work`], and writes down and begins anew after
//! [`end_of_path`].

use std::hint::black_box;

use forebay_stack::counters::Counter;
use forebay_stack::fib::{Address as _, Fib};
use forebay_sync::rcu::Domain;
use forebay_tests::{V4, V6};

use crate::family::Family;
use crate::router::Router;

/// Packets of a batch.
const BATCH: usize = 64;

/// Batches that are counted.
const BATCHES: usize = 32;

/// Batches before, which fill caches and first touch what is touched once.
const WARM_UP: usize = 4;

/// Goes all ways, and prints the name of each and how many packets went it.
pub(crate) fn run() {
    run_family::<V4>();
    run_family::<V6>();
}

fn run_family<F: Family>() {
    let mut router = Router::<F>::new();
    forward(&mut router, "forward, 1 route");
    router.open_unconnected();
    deliver(&mut router, "deliver, unconnected", To::Anybody);

    router.add_routes();
    look_up(&mut router, "lookup, 10000 routes");
    forward(&mut router, "forward, 10000 routes");

    router.open_connected();
    for (early_demux, knob) in [(1, "early"), (0, "late")] {
        router.rig.set("net.ipv4.ip_early_demux", early_demux);
        let name = |path| format!("{path}, 1000 connected, {knob}");
        forward(&mut router, &name("forward, 10000 routes"));
        deliver(&mut router, &name("deliver, unconnected"), To::Anybody);
        deliver(
            &mut router,
            &name("deliver"),
            To::Connected {
                early: early_demux == 1,
            },
        );
    }
}

/// Transit.
fn forward<F: Family>(router: &mut Router<F>, name: &str) {
    let packets = router.transit((WARM_UP + BATCHES) * BATCH);
    send(router, &packets, Router::forwarded);
    end_of_path::<F>(name);
}

/// Whose a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// A connected socket's, which the early look finds if it looks.
    Connected { early: bool },
    /// The unconnected socket's, which it does not find.
    Anybody,
}

/// Datagrams to sockets.
fn deliver<F: Family>(router: &mut Router<F>, name: &str, to: To) {
    let packets = router.local((WARM_UP + BATCHES) * BATCH, to != To::Anybody);
    // So that each socket knows the way by which its packets come.
    for batch in router.greetings().chunks(BATCH) {
        receive(router, batch);
        router.received();
    }
    let hits = router.rig.count(Counter::ForebayEarlyDemuxHits);
    send(router, &packets, Router::received);
    let hits = router.rig.count(Counter::ForebayEarlyDemuxHits) - hits;
    let all = packets.len() as u64;
    let expected = if to == (To::Connected { early: true }) {
        all
    } else {
        0
    };
    assert_eq!(hits, expected, "{name}");
    end_of_path::<F>(name);
}

/// Routes alone, as many at once as a batch has packets.
fn look_up<F: Family>(router: &mut Router<F>, name: &str) {
    let domain = Domain::new();
    let fib = Fib::new(&domain);
    router.add_routes_to(&fib);
    let reader = domain.reader();
    let guard = reader.guard();
    let view = fib.view(&guard);
    let transit = view.transit().expect("the default rules");
    for batch in 0..WARM_UP + BATCHES {
        let mut dsts = [F::Addr::UNSPECIFIED; BATCH];
        dsts.fill_with(|| router.stranger());
        let mut found = 0;
        let mut work = || {
            for route in transit.lookup_many(&dsts, BATCH).iter() {
                found += usize::from(transit.resolve(route).is_ok());
            }
        };
        if batch < WARM_UP {
            work();
        } else {
            counted_work(&mut work);
        }
        assert_eq!(found, BATCH, "{name}");
    }
    end_of_path::<F>(name);
}

/// Packets come in by the near interface, in batches, and all must get to where `arrived` looks.
fn send<F: Family>(
    router: &mut Router<F>,
    packets: &[Vec<u8>],
    arrived: impl Fn(&mut Router<F>) -> usize,
) {
    for (nth, batch) in packets.chunks(BATCH).enumerate() {
        if nth < WARM_UP {
            receive(router, batch);
        } else {
            receive_counted(router, batch);
        }
        assert_eq!(arrived(router), BATCH);
    }
}

fn receive<F: Family>(router: &mut Router<F>, batch: &[Vec<u8>]) {
    let mut queue = router.load(batch);
    let Router {
        rig, core, near, ..
    } = router;
    rig.stack.receive(core, rig.now(), *near, &mut queue);
}

fn receive_counted<F: Family>(router: &mut Router<F>, batch: &[Vec<u8>]) {
    let mut queue = router.load(batch);
    let Router {
        rig, core, near, ..
    } = router;
    counted_work(&mut || rig.stack.receive(core, rig.now(), *near, &mut queue));
}

/// Instructions are counted in here, and in whatever it calls.
#[inline(never)]
fn counted_work(work: &mut dyn FnMut()) {
    work();
    // Something is left to do, so that the call is one, and no jump to a function which then
    // returns from this one.
    black_box(&work);
}

/// Callgrind writes down what it has counted, and begins anew.
#[inline(never)]
fn end_of_path<F: Family>(name: &str) {
    println!("{}: {name} {}", F::NAME, BATCHES * BATCH);
}
