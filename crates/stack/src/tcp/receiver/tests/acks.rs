//! When acknowledgements leave, and what they say of the window.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Beyond the quick acknowledgements of the beginning, with everything read and acknowledged.
/// Returns where it is.
fn after_the_beginning(bench: &mut Bench) -> i64 {
    let mut at = 0;
    for _ in 0..40 {
        bench.waits(MS);
        bench.data(at, &[7; MSS as usize]);
        at += i64::from(MSS);
        bench.acknowledge();
        bench.read(10_000);
    }
    bench.announce();
    bench.receiver.ack_sent();
    at
}

#[test]
fn the_beginning_is_acknowledged_quickly() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        let quick = (0..40i64).take_while(|at| {
            bench.data(at * 100, &[7; 100]);
            bench.acknowledge()
        });
        assert_eq!(quick.count(), 16);
        assert_eq!(bench.receiver.ack_deadline(), Some(bench.now + 40 * MS));
    }
}

#[test]
fn every_second_full_segment_is_acknowledged() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        let mut at = after_the_beginning(&mut bench);
        let full = usize::from(MSS);
        for _ in 0..10 {
            bench.data(at, &vec![7; full]);
            assert!(!bench.acknowledge());
            assert!(bench.receiver.ack_deadline().is_some());
            bench.data(at + 1_000, &vec![7; full]);
            assert!(bench.acknowledge());
            assert_eq!(bench.receiver.ack_deadline(), None);
            bench.receiver.discard(bench.now, &mut bench.chunks);
            assert!(!bench.receiver.ack_is_due());
            at += 2_000;
        }
    }
}

#[test]
fn what_waits_is_acknowledged_in_time() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        let at = after_the_beginning(&mut bench);
        bench.counted();
        bench.data(at, &[7; MSS as usize]);
        assert!(!bench.receiver.ack_is_due());
        bench.waits(39 * MS);
        let now = bench.now;
        bench.receiver.on_ack_timeout(now, &mut bench.events);
        assert!(!bench.receiver.ack_is_due());
        bench.waits(MS);
        assert_eq!(bench.receiver.ack_deadline(), Some(bench.now));
        let now = bench.now;
        bench.receiver.on_ack_timeout(now, &mut bench.events);
        assert!(bench.acknowledge());
        assert_eq!(bench.counted(), [Counter::TcpExtDelayedACKs]);
        assert_eq!(bench.receiver.ack_deadline(), None);
    }
}

#[test]
fn what_is_missing_or_came_twice_is_told_at_once() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        let at = after_the_beginning(&mut bench);
        for (from, len) in [
            (at + 10, 10), // ahead
            (at + 30, 10),
            (at + 10, 10), // twice
            (at, 10),      // fills one gap, leaves another
            (at + 20, 10), // fills the last
            (at - 5, 5),   // old
            (at + 50_000, 1),
        ] {
            bench.data(from, &vec![7; len]);
            assert!(bench.acknowledge(), "{place}: {from}");
        }
    }
}

#[test]
fn an_answer_takes_the_acknowledgement_along() {
    let mut bench = Bench::new(7);
    let mut at = after_the_beginning(&mut bench);
    // The end of a question is acknowledged when it is read, as long as nobody answers.
    bench.data(at, &[7; 100]);
    assert!(!bench.acknowledge());
    bench.read(1_000);
    assert!(bench.acknowledge());
    at += 100;
    for _ in 0..3 {
        bench.waits(MS);
        bench.data(at, &[7; 100]);
        bench.receiver.data_sent(bench.now);
        bench.receiver.ack_sent();
        at += 100;
        bench.read(1_000);
        bench.data(at, &[7; 100]);
        bench.read(1_000);
        assert!(!bench.acknowledge());
        at += 100;
        bench.receiver.ack_sent();
    }
    // The application may say otherwise.
    bench.data(at, &[7; 100]);
    assert!(!bench.receiver.ack_is_due());
    bench.receiver.set_quick_ack(true);
    assert!(bench.acknowledge());
}

#[test]
fn the_window_closes_and_opens_as_the_application_reads() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        let mut at = 0;
        while bench.receiver.window() > 0 {
            let len = bench.receiver.window().min(1_000);
            assert_eq!(bench.data(at, &vec![7; len as usize]).bytes, len);
            at += i64::from(len);
            bench.acknowledge();
        }
        let all = (40_000 - 2 * CHUNK) as i64;
        assert_eq!(at, all);
        assert!(bench.store.used() * CHUNK <= 40_000);
        assert_eq!(bench.announce(), 0);
        bench.receiver.ack_sent();
        assert_eq!(bench.counted(), [Counter::TcpExtTCPToZeroWindowAdv]);
        // A small window is worse than none.
        bench.read(900);
        assert!(!bench.receiver.ack_is_due());
        assert_eq!(bench.announce(), 0);
        // A probe is answered, though not taken.
        assert_eq!(bench.data(at, &[7]).kind, NoRoom);
        assert!(bench.counted().contains(&Counter::TcpExtTCPZeroWindowDrop));
        assert!(bench.acknowledge());
        bench.read(2_000);
        assert!(bench.receiver.ack_is_due());
        assert_eq!(bench.announce(), 2_900);
        assert!(
            bench
                .counted()
                .contains(&Counter::TcpExtTCPFromZeroWindowAdv)
        );
        bench.receiver.ack_sent();
        // The next news are twice as much.
        bench.read(2_800);
        assert!(!bench.receiver.ack_is_due());
        bench.read(100);
        assert!(bench.receiver.ack_is_due());
    }
}

#[test]
fn a_scaled_window_does_not_creep() {
    for place in PLACES {
        let config = ReceiverConfig {
            window_scale: 7,
            window: 20_000,
            ..config(Seq(place))
        };
        let mut bench = Bench::with(&config, [1 << 20; 3]);
        let all = 40_000 - 2 * CHUNK as u32;
        let mut edge = bench.seq(20_000);
        let mut at = 0;
        loop {
            let announced = bench.announce();
            assert_eq!(announced % 128, 0);
            bench.receiver.ack_sent();
            // Whatever the scale, it takes back less than a unit.
            let now = bench.receiver.next() + announced;
            assert!((now + 127).is_after(edge) || now + 127 == edge);
            edge = edge.max(now);
            if announced == 0 {
                break;
            }
            assert_eq!(bench.data(at, &[7; 10]).bytes, 10);
            at += 10;
        }
        assert!((all - 128..=all + 128).contains(&bench.receiver.next().since(bench.first)));
    }
}
