//! Urgent data (RFC 6093), as Linux has it.

use super::*;

/// Reads until there is nothing more; what each read got.
fn reads(bench: &mut Bench) -> Vec<String> {
    let mut got = Vec::new();
    while bench.receiver.readable() > 0 {
        let bytes = bench.read(100);
        assert!(!bytes.is_empty());
        got.push(String::from_utf8(bytes).unwrap());
    }
    got
}

#[test]
fn a_read_stops_at_the_urgent_byte_and_leaves_it_out() {
    // The pointer on "abc", and what reads get: as it is kept apart, and inline.
    let cases: [(u16, &[&str], &[&str]); 6] = [
        (0, &["bc"], &["abc"]),
        (1, &["bc"], &["abc"]),
        (2, &["a", "c"], &["a", "bc"]),
        (3, &["ab"], &["ab", "c"]),
        (4, &["abc"], &["abc"]),
        (500, &["abc"], &["abc"]),
    ];
    for place in PLACES {
        for (pointer, apart, inline) in cases {
            for is_inline in [false, true] {
                let mut bench = Bench::new(place);
                bench.receiver.set_oob_inline(is_inline);
                bench.receiver.set_urgent(bench.first, pointer, false);
                bench.data(0, b"abc");
                let expected = if is_inline { inline } else { apart };
                assert_eq!(reads(&mut bench), expected, "{place}: {pointer}");
                // The read that waits for more must not turn round for ever, nor see the byte.
                assert_eq!(bench.read(100), []);
                bench.data(3, b"de");
                let expected: &[&str] = match (pointer, is_inline) {
                    (4, false) => &["e"],
                    _ => &["de"],
                };
                assert_eq!(reads(&mut bench), expected, "{place}: {pointer}");
                assert_eq!(bench.store.used(), 0);
            }
        }
    }
}

#[test]
fn the_urgent_byte_is_taken_once() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        let take = |bench: &mut Bench, peek| bench.receiver.take_urgent(peek);
        assert_eq!(take(&mut bench, false), Err(NoUrgent::None));
        bench.receiver.set_urgent(bench.first, 3, false);
        assert_eq!(take(&mut bench, false), Err(NoUrgent::NotYet));
        bench.data(0, b"abcd");
        assert!(bench.receiver.has_urgent() && !bench.receiver.is_at_mark());
        assert_eq!(take(&mut bench, true), Ok(b'c'));
        assert_eq!(take(&mut bench, false), Ok(b'c'));
        assert_eq!(take(&mut bench, false), Err(NoUrgent::None));
        assert!(!bench.receiver.has_urgent());
        // The same pointer again says nothing new.
        bench.receiver.set_urgent(bench.first, 3, false);
        assert_eq!(take(&mut bench, false), Err(NoUrgent::None));
        assert_eq!(bench.read(100), b"ab");
        assert!(bench.receiver.is_at_mark());
        assert_eq!(bench.read(100), b"d");
        assert!(!bench.receiver.is_at_mark());
        // Another one, by the older reading of the pointer.
        bench.receiver.set_urgent(bench.seq(4), 0, true);
        bench.data(4, b"e");
        assert_eq!(
            (bench.receiver.readable(), take(&mut bench, false)),
            (0, Ok(b'e'))
        );
        bench.receiver.free(&mut bench.chunks);
        assert_eq!(bench.store.used(), 0);
    }
}

#[test]
fn a_newer_urgent_byte_puts_the_older_back_into_the_stream() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        bench.receiver.set_urgent(bench.first, 2, false);
        bench.data(0, b"abc");
        bench.receiver.set_urgent(bench.seq(3), 1, false);
        bench.data(3, b"def");
        assert_eq!(reads(&mut bench), ["abc", "ef"]);
        // Nor does one count that was read before.
        bench.receiver.set_urgent(bench.seq(2), 2, false);
        bench.data(6, b"g");
        assert_eq!(reads(&mut bench), ["g"]);
    }
}
