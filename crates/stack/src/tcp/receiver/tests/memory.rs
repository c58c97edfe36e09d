//! What a receiver holds, and what it learns to hold.

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn idle_costs_nothing() {
    assert!(size_of::<Receiver>() <= 400, "{}", size_of::<Receiver>());
    let mut bench = Bench::new(0);
    for at in 0..200 {
        bench.data(at * 64, &[7; 64]);
        assert_eq!(bench.receiver.charged(), CHUNK);
        assert_eq!(bench.read(64), [7; 64]);
        assert_eq!((bench.receiver.charged(), bench.store.used()), (0, 0));
        bench.acknowledge();
    }
}

#[test]
fn without_memory_what_is_in_order_comes_first() {
    for place in PLACES {
        let mut bench = Bench::with(&config(Seq(place)), [3; 3]);
        bench.data(0, &[1; 10]);
        assert_eq!(bench.data(5_000, &[2; 10]).kind, OutOfOrder);
        assert_eq!(bench.data(9_000, &[3; 10]).kind, OutOfOrder);
        assert_eq!(bench.store.used(), 3);
        // A fourth chunk is not to be had.
        bench.counted();
        assert_eq!(bench.data(13_000, &[4; 10]).kind, NoRoom);
        assert_eq!(bench.counted(), [Counter::TcpExtTCPOFODrop]);
        assert_eq!(bench.sack(), [(9_000, 9_010), (5_000, 5_010)]);
        // As far as there is memory.
        let ahead = bench.data(8_000, &[5; 10_000]);
        assert_eq!(ahead, arrival(0, false, OutOfOrder));
        assert_eq!(bench.sack()[1], (8_000, 3 * CHUNK as i64));
        // What is in order gets it all in the end; the rest is to be sent again.
        let taken = bench.data(10, &[6; 19_000]);
        assert_eq!(taken, arrival(3 * CHUNK as u32 - 10, false, InOrder));
        assert!(bench.counted().contains(&Counter::TcpExtTCPRcvQDrop));
        assert!(bench.acknowledge());
        assert_eq!(bench.sack(), []);
        assert_eq!(bench.data(12_288, &[7; 100]).kind, NoRoom);
        assert_eq!(bench.read(50_000).len(), 3 * CHUNK);
        assert_eq!(bench.data(12_288, &[7; 100]).kind, InOrder);
        bench.receiver.free(&mut bench.chunks);
        assert_eq!(bench.store.used(), 0);
    }
}

#[test]
fn stretches_ahead_give_way_to_what_is_in_order() {
    for place in PLACES {
        let mut bench = Bench::with(&config(Seq(place)), [3; 3]);
        for at in [17_000, 9_000, 13_000] {
            assert_eq!(bench.data(at, &[2; 10]).kind, OutOfOrder);
        }
        bench.counted();
        assert_eq!(bench.data(0, &[1; 100]).kind, InOrder);
        assert_eq!(
            bench.counted(),
            [Counter::TcpExtPruneCalled, Counter::TcpExtOfoPruned]
        );
        assert_eq!(bench.sack(), [(13_000, 13_010), (9_000, 9_010)]);
        assert_eq!(bench.read(1_000), [1; 100]);
        bench.receiver.free(&mut bench.chunks);
        assert_eq!(bench.store.used(), 0);
    }
}

#[test]
fn crumbs_ahead_are_limited() {
    let mut bench = Bench::with(
        &ReceiverConfig {
            buffer: 1 << 20,
            ..config(Seq(0x7fff_0000))
        },
        [1 << 20; 3],
    );
    let kinds = (1..9_000i64).map(|at| bench.data(2 * at, &[7]).kind);
    assert_eq!(kinds.filter(|kind| *kind == OutOfOrder).count(), 4_096);
    // Those that touch one that is there are no more.
    assert_eq!(bench.data(3, &[7; 20]).kind, OutOfOrder);
    bench.receiver.free(&mut bench.chunks);
    assert_eq!(bench.store.used(), 0);
}

/// A peer that sends a whole window every round trip, to an application that reads all at once.
/// Returns what the buffer has become.
fn after_round_trips(config: &ReceiverConfig, tells_rtt: bool) -> (u32, u32) {
    let mut bench = Bench::with(config, [1 << 20; 3]);
    let mut at = 0;
    for _ in 0..60 {
        bench.waits(20 * MS);
        if tells_rtt {
            bench.receiver.note_rtt(20 * MS);
        }
        let window = bench.receiver.window();
        for _ in 0..window / u32::from(MSS) {
            bench.data(at, &[7; MSS as usize]);
            at += i64::from(MSS);
            bench.read(10_000);
            bench.acknowledge();
        }
    }
    assert_eq!(bench.store.used(), 0);
    (bench.receiver.buffer(), bench.receiver.window())
}

#[test]
fn a_buffer_grows_with_what_is_read_in_a_round_trip() {
    for place in PLACES {
        for tells_rtt in [false, true] {
            let config = ReceiverConfig {
                buffer: 131_072,
                max_buffer: 6 << 20,
                window: 65_535,
                window_scale: 7,
                ..config(Seq(place))
            };
            let (buffer, window) = after_round_trips(&config, tells_rtt);
            assert_eq!(buffer, 6 << 20, "{tells_rtt}");
            assert!(window > 6_000_000, "{tells_rtt}: {window}");
            // One that the application has set stays.
            let config = ReceiverConfig {
                max_buffer: 131_072,
                ..config
            };
            assert_eq!(after_round_trips(&config, tells_rtt).0, 131_072);
        }
    }
}

#[test]
fn a_buffer_that_was_cut_keeps_its_promise() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        bench.data(0, &[7; 1_000]);
        bench.receiver.set_buffer(100);
        assert_eq!(bench.receiver.buffer(), 2_304);
        assert_eq!(bench.announce(), 19_000);
        assert_eq!(bench.data(1_000, &[7; 19_000]).bytes, 19_000);
        assert_eq!(bench.announce(), 0);
        bench.read(20_000);
        assert_eq!(bench.announce(), 1_152);
    }
}

#[test]
fn under_pressure_less_is_promised() {
    let mut bench = Bench::with(
        &ReceiverConfig {
            buffer: 1 << 20,
            window: 20_000,
            window_scale: 4,
            ..config(Seq(0))
        },
        [1, 2, 1_000],
    );
    bench.others = (0..2).filter_map(|_| bench.chunks.take()).collect();
    let mut at = 0;
    let mut send_all = |bench: &mut Bench| {
        let from = at;
        while bench.receiver.window() >= u32::from(MSS) {
            bench.data(at, &[7; MSS as usize]);
            at += i64::from(MSS);
            bench.acknowledge();
        }
        at - from
    };
    // What was promised before, and no more.
    let first = send_all(&mut bench);
    assert!((20_000..40_000).contains(&first), "{first}");
    // Who reads may go on, in small steps.
    for _ in 0..10 {
        bench.read(100_000);
        assert!(bench.acknowledge());
        let next = send_all(&mut bench);
        assert!((5_000..=8_000).contains(&next), "{next}");
    }
    for chunk in bench.others.drain(..) {
        bench.chunks.give(chunk);
    }
    bench.read(100_000);
    assert!(bench.acknowledge());
    assert!(send_all(&mut bench) > 20_000);
    bench.receiver.free(&mut bench.chunks);
}
