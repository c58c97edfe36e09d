use std::io::IoSliceMut;

use super::*;
use crate::tcp::chunks::{CHUNK, Chunk, ChunkStore};

mod acks;
mod memory;
mod shuffled;
mod urgent;

/// Initial places at which arithmetic goes round, or changes its sign, soon.
const PLACES: [u32; 6] = [0, 1, 0x7fff_fff0, 0x8000_0000, 0xffff_fff0, u32::MAX];

const MSS: u16 = 1_000;

/// A receiver, with what it needs; places are counted from the first byte.
struct Bench {
    first: Seq,
    now: Instant,
    store: ChunkStore,
    chunks: Chunks,
    events: Events,
    receiver: Receiver,
    /// Chunks that other connections hold.
    others: Vec<Chunk>,
}

fn config(first: Seq) -> ReceiverConfig {
    ReceiverConfig {
        next: first,
        window: 20_000,
        window_scale: 0,
        buffer: 40_000,
        max_buffer: 40_000,
        sack: true,
        dsack: true,
        mss: MSS,
        now: Instant::ZERO,
    }
}

impl Bench {
    fn new(place: u32) -> Self {
        Self::with(&config(Seq(place)), [1 << 20; 3])
    }

    fn with(config: &ReceiverConfig, tcp_mem: [u32; 3]) -> Self {
        let store = ChunkStore::new(tcp_mem);
        Self {
            first: config.next,
            now: Instant::ZERO,
            chunks: store.chunks(),
            store,
            events: Events::default(),
            receiver: Receiver::new(config),
            others: Vec::new(),
        }
    }

    fn seq(&self, at: i64) -> Seq {
        Seq(self.first.0.wrapping_add(at as u32))
    }

    fn segment(&mut self, at: i64, payload: &[u8], fin: bool) -> Arrival {
        let text = Text {
            seq: self.seq(at),
            payload: &[payload],
            segment_size: payload.len() as u32,
            fin,
            psh: false,
        };
        let (now, events) = (self.now, &mut self.events);
        let arrival = self.receiver.accept(now, &mut self.chunks, &text, events);
        let used = self.store.used() - self.others.len();
        assert_eq!(self.receiver.charged(), used * CHUNK);
        arrival
    }

    fn data(&mut self, at: i64, payload: &[u8]) -> Arrival {
        self.segment(at, payload, false)
    }

    fn read(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let (now, bufs) = (self.now, &mut [IoSliceMut::new(&mut bytes)]);
        let len = self.receiver.read(now, &mut self.chunks, bufs, false);
        bytes.truncate(len);
        bytes
    }

    /// Whether an acknowledgement leaves now, if one is due.
    fn acknowledge(&mut self) -> bool {
        let is_due = self.receiver.ack_is_due();
        if is_due {
            self.announce();
            self.receiver.ack_sent();
        }
        is_due
    }

    fn announce(&mut self) -> u32 {
        self.receiver.window_to_announce(&mut self.events)
    }

    fn sack(&self) -> Vec<(i64, i64)> {
        let place = |seq: Seq| i64::from((seq - self.first) as i32);
        let blocks = self.receiver.sack_blocks();
        blocks
            .iter()
            .map(|block| (place(block.start), place(block.end)))
            .collect()
    }

    fn counted(&mut self) -> Vec<Counter> {
        self.events.drain().map(|(counter, _)| counter).collect()
    }

    fn waits(&mut self, duration: Duration) {
        self.now += duration;
    }
}

fn arrival(bytes: u32, finished: bool, kind: ArrivalKind) -> Arrival {
    Arrival {
        bytes,
        finished,
        kind,
    }
}

use ArrivalKind::{InOrder, NoRoom, Old, OutOfOrder};

#[test]
fn segments_overlap() {
    // Segments in the order of their arrival, and the stream.
    type Case<'a> = (&'a [(i64, &'a str)], &'a str);
    let cases: &[Case<'_>] = &[
        (&[(0, "abc"), (3, "def")], "abcdef"),
        // What comes in order wins over what waits ahead.
        (&[(3, "DEF"), (0, "abcxyz")], "abcxyz"),
        (&[(3, "DEF"), (0, "abcx")], "abcxEF"),
        (&[(3, "DEFG"), (0, "abcxyz")], "abcxyzG"),
        (&[(2, "C"), (4, "E"), (0, "abxdyf")], "abxdyf"),
        // What is in order stays.
        (&[(0, "abc"), (0, "ABCD")], "abcD"),
        (&[(0, "abc"), (1, "XYZ")], "abcZ"),
        (&[(0, "abc"), (0, "xyz"), (1, "x")], "abc"),
        // Of two ahead, the byte that came first stays, however long they are.
        (&[(1, "bc"), (1, "BCDE"), (0, "a")], "abcDE"),
        (&[(1, "bcde"), (1, "XY"), (0, "a")], "abcde"),
        (&[(2, "cd"), (1, "XYZWV"), (0, "a")], "aXcdWV"),
        (
            &[(2, "c"), (4, "e"), (6, "g"), (1, "XXXXXXX"), (0, "a")],
            "aXcXeXgX",
        ),
        (&[(4, "ef"), (1, "bcde"), (0, "a")], "abcdef"),
        (&[(1, "bc"), (3, "de"), (5, "f"), (0, "a")], "abcdef"),
        (&[(5, "f"), (3, "de"), (1, "bc"), (0, "a")], "abcdef"),
    ];
    for place in PLACES {
        for (segments, stream) in cases {
            let mut bench = Bench::new(place);
            for (at, bytes) in *segments {
                bench.data(*at, bytes.as_bytes());
            }
            assert_eq!(bench.receiver.readable(), stream.len());
            assert_eq!(bench.read(100), stream.as_bytes(), "{place}: {segments:?}");
            assert_eq!(bench.receiver.next(), bench.seq(stream.len() as i64));
            assert_eq!((bench.store.used(), bench.receiver.readable()), (0, 0));
        }
    }
}

#[test]
fn what_becomes_of_a_segment() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        let cases = [
            (0, 10, arrival(10, false, InOrder)),
            (0, 10, arrival(0, false, Old)),
            (-5, 15, arrival(0, false, Old)),
            (-5, 16, arrival(1, false, InOrder)),
            (20, 5, arrival(0, false, OutOfOrder)),
            (20, 5, arrival(0, false, OutOfOrder)),
            (11, 9, arrival(14, false, InOrder)),
            // Beyond the window, and partly so.
            (20_000, 1, arrival(0, false, NoRoom)),
            (20_001, 1, arrival(0, false, NoRoom)),
            (1 << 30, 100, arrival(0, false, NoRoom)),
            (19_990, 100, arrival(0, false, OutOfOrder)),
            (25, 30_000, arrival(19_975, false, InOrder)),
            (20_000, 1, arrival(0, false, NoRoom)),
        ];
        for (at, len, expected) in cases {
            let arrival = bench.data(at, &vec![7; len]);
            assert_eq!(arrival, expected, "{place}: {at}+{len}");
        }
        assert_eq!(bench.receiver.readable(), 20_000);
        bench.receiver.discard(bench.now, &mut bench.chunks);
        assert_eq!(bench.store.used(), 0);
    }
}

#[test]
fn which_segments_are_of_now() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        bench.data(0, &[0; 50]);
        let acceptable = |bench: &Bench, at, len| bench.receiver.is_acceptable(bench.seq(at), len);
        // What was acknowledged last is the first byte; what came since is not old yet.
        for (at, len, expected) in [
            (0, 0, true),
            (-1, 0, false),
            (-1, 1, true),
            (50, 100, true),
            (20_000, 0, true),
            (20_000, 100, true),
            (20_001, 0, false),
            (-10_000, 20, false),
            (1 << 30, 1, false),
        ] {
            assert_eq!(acceptable(&bench, at, len), expected, "{place}: {at}+{len}");
        }
        assert!(bench.acknowledge());
        assert!(!acceptable(&bench, 0, 49) && acceptable(&bench, 0, 50));
        // With the window shut, what begins where we are still counts.
        let mut end = 50;
        while bench.receiver.window() > 0 {
            end += i64::from(bench.data(end, &[0; 30_000]).bytes);
            bench.acknowledge();
        }
        assert!(acceptable(&bench, end, 0) && acceptable(&bench, end, 1));
        assert!(acceptable(&bench, end - 1, 1) && !acceptable(&bench, end + 1, 0));
    }
}

#[test]
fn fins() {
    // Segments with whether they have a FIN, what becomes of the last, and where we are then.
    type Case<'a> = (&'a [(i64, usize, bool)], Arrival, i64);
    let cases: &[Case<'_>] = &[
        (&[(0, 0, true)], arrival(0, true, InOrder), 1),
        (&[(0, 5, true)], arrival(5, true, InOrder), 6),
        // Ahead, and kept until the gap is filled.
        (&[(3, 0, true)], arrival(0, false, OutOfOrder), 0),
        (&[(3, 0, true), (0, 3, false)], arrival(3, true, InOrder), 4),
        (&[(3, 3, true), (0, 3, false)], arrival(6, true, InOrder), 7),
        (&[(3, 3, true), (0, 9, false)], arrival(6, true, InOrder), 7),
        (&[(0, 5, true), (0, 5, true)], arrival(0, false, Old), 6),
        (&[(0, 5, true), (5, 0, true)], arrival(0, false, Old), 6),
        (&[(0, 5, false), (3, 2, true)], arrival(0, true, InOrder), 6),
        // The end of the window is no obstacle, but what is beyond is.
        (&[(0, 20_000, true)], arrival(20_000, true, InOrder), 20_001),
        (
            &[(0, 20_001, true)],
            arrival(20_000, false, InOrder),
            20_000,
        ),
        (
            &[(0, 20_000, false), (20_000, 0, true)],
            arrival(0, true, InOrder),
            20_001,
        ),
        (
            &[(20_000, 0, true), (0, 20_000, false)],
            arrival(20_000, true, InOrder),
            20_001,
        ),
        (&[(20_001, 0, true)], arrival(0, false, NoRoom), 0),
        // What lies behind one is nothing.
        (&[(0, 5, true), (6, 5, false)], arrival(0, false, NoRoom), 6),
        (
            &[(9, 5, false), (5, 0, true), (0, 5, false)],
            arrival(5, true, InOrder),
            6,
        ),
        (&[(5, 0, true), (7, 5, false)], arrival(0, false, NoRoom), 0),
    ];
    for place in PLACES {
        for (segments, expected, next) in cases {
            let mut bench = Bench::new(place);
            let mut last = None;
            for (at, len, fin) in *segments {
                last = Some(bench.segment(*at, &vec![7; *len], *fin));
            }
            assert_eq!(last, Some(*expected), "{place}: {segments:?}");
            assert_eq!(bench.receiver.next(), bench.seq(*next), "{segments:?}");
            let is_finished = bench.receiver.is_finished();
            assert!(!expected.finished || is_finished);
            assert!(bench.receiver.ack_is_due());
            let bytes = *next as usize - usize::from(is_finished);
            assert_eq!(bench.receiver.readable(), bytes);
            assert_eq!(bench.read(50_000).len(), bytes);
            assert_eq!(bench.receiver.is_finished(), is_finished);
            bench.receiver.free(&mut bench.chunks);
            assert_eq!(bench.store.used(), 0);
        }
    }
}

#[test]
fn blocks_of_sack() {
    type Blocks = &'static [(i64, i64)];
    for place in PLACES {
        let mut bench = Bench::new(place);
        let cases: [(i64, usize, Blocks); 11] = [
            (10, 5, &[(10, 15)]),
            // The latest first.
            (30, 5, &[(30, 35), (10, 15)]),
            (20, 5, &[(20, 25), (30, 35), (10, 15)]),
            (15, 2, &[(10, 17), (20, 25), (30, 35)]),
            (25, 5, &[(20, 35), (10, 17)]),
            (50, 1, &[(50, 51), (20, 35), (10, 17)]),
            (60, 1, &[(60, 61), (50, 51), (20, 35), (10, 17)]),
            (70, 1, &[(70, 71), (60, 61), (50, 51), (20, 35)]),
            // What came twice, and then where it lies.
            (22, 3, &[(22, 25), (20, 35), (70, 71), (60, 61)]),
            (0, 12, &[(20, 35), (70, 71), (60, 61), (50, 51)]),
            (0, 5, &[(0, 5), (20, 35), (70, 71), (60, 61)]),
        ];
        for (at, len, expected) in cases {
            bench.data(at, &vec![7; len]);
            assert_eq!(bench.sack(), expected, "{place}: {at}+{len}");
            assert!(bench.acknowledge());
        }
        // Each is told of once.
        assert_eq!(bench.sack(), [(20, 35), (70, 71), (60, 61), (50, 51)]);
        bench.data(17, &[7; 100]);
        assert_eq!(bench.sack(), []);
    }
    for (sack, dsack, expected) in [
        (false, true, &[][..]),
        (true, false, &[(10, 15)]),
        (true, true, &[(10, 15), (10, 15)]),
    ] {
        let config = ReceiverConfig {
            sack,
            dsack,
            ..config(Seq(0))
        };
        let mut bench = Bench::with(&config, [1 << 20; 3]);
        bench.data(10, &[7; 5]);
        bench.data(10, &[7; 5]);
        assert_eq!(bench.sack(), expected);
    }
}

#[test]
fn pieces_are_put_together() {
    for place in PLACES {
        let mut bench = Bench::new(place);
        let pieces: [&[u8]; 5] = [b"ab", b"", b"cde", b"f", b"ghi"];
        for (at, expected) in [(2, ""), (-4, "efghidefghi")] {
            let text = Text {
                seq: bench.seq(at),
                payload: &pieces,
                segment_size: 3,
                fin: false,
                psh: false,
            };
            let (now, events) = (bench.now, &mut bench.events);
            bench.receiver.accept(now, &mut bench.chunks, &text, events);
            assert_eq!(bench.receiver.readable(), expected.len(), "{at}");
            let shown = bench.receiver.fill_buf();
            assert_eq!(shown, expected.as_bytes());
        }
        assert_eq!(bench.read(100).len(), 11);
    }
}

#[test]
fn reading_without_copying() {
    let mut bench = Bench::new(u32::MAX - 5_000);
    let bytes: Vec<u8> = (0..10_000u32).map(|at| (at % 251) as u8).collect();
    bench.data(0, &bytes);
    let mut read = Vec::new();
    while bench.receiver.readable() > 0 {
        let shown = bench.receiver.fill_buf();
        let len = shown.len().min(1_000);
        read.extend_from_slice(&shown[..len]);
        bench.receiver.consume(bench.now, &mut bench.chunks, len);
    }
    assert_eq!(read, bytes);
    assert!(bench.receiver.fill_buf().is_empty());
    bench.receiver.consume(bench.now, &mut bench.chunks, 7);
    assert_eq!(bench.store.used(), 0);
}
