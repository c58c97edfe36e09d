//! Whatever the network does to segments, what is read is what was sent.

use proptest::prelude::*;

use super::*;

/// What is done at each step.
#[derive(Debug, Clone)]
enum Step {
    /// A segment of the stream comes: where it begins behind what is next, how long it is, and how
    /// many pieces it has.
    Segment(i64, usize, usize),
    Read(usize),
    Peek(usize),
    Acknowledge,
    Time(u64),
    SetBuffer(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let near = (-3_000..3_000i64, 0..3_000usize, 1..4usize);
    let far = (-60_000..60_000i64, 0..60_000usize, 1..40usize);
    let step = prop_oneof![
        6 => near.prop_map(|(at, len, pieces)| Step::Segment(at, len, pieces)),
        2 => far.prop_map(|(at, len, pieces)| Step::Segment(at, len, pieces)),
        2 => (0..20_000usize).prop_map(Step::Read),
        1 => (0..20_000usize).prop_map(Step::Peek),
        2 => Just(Step::Acknowledge),
        1 => (0..300u64).prop_map(Step::Time),
        1 => (0..100_000u32).prop_map(Step::SetBuffer),
    ];
    prop::collection::vec(step, 1..120)
}

/// The stream's byte at a place.
fn byte(at: i64) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 7) as u8
}

/// The naive model: which places have come.
struct Model {
    has_come: Vec<bool>,
    next: usize,
    read: usize,
    edge: usize,
}

impl Model {
    fn take(&mut self, from: usize, to: usize) {
        for place in from.max(self.next)..to.min(self.edge).max(from.max(self.next)) {
            self.has_come[place] = true;
        }
        while self.has_come.get(self.next) == Some(&true) {
            self.next += 1;
        }
    }
}

fn run(
    place: u32,
    total: usize,
    scale: u8,
    tcp_mem: u32,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let config = ReceiverConfig {
        window_scale: scale,
        buffer: 50_000,
        max_buffer: 200_000,
        ..config(Seq(place))
    };
    let mut bench = Bench::with(&config, [tcp_mem; 3]);
    let is_plenty = tcp_mem > 1_000;
    let mut model = Model {
        has_come: vec![false; total],
        next: 0,
        read: 0,
        edge: 20_000,
    };
    let mut buffer = 50_000;
    for step in steps {
        match step {
            Step::Segment(at, len, pieces) => {
                let from = (model.next as i64 + at).clamp(0, total as i64) as usize;
                let to = (from + len).min(total);
                let fin = to == total;
                if from == to && !fin {
                    continue;
                }
                let payload: Vec<u8> = (from..to).map(|at| byte(at as i64)).collect();
                let pieces: Vec<&[u8]> = payload.chunks(len / pieces + 1).collect();
                let text = Text {
                    seq: bench.seq(from as i64),
                    payload: &pieces,
                    segment_size: payload.len() as u32,
                    fin,
                    psh: false,
                };
                let before = bench.receiver.next();
                let (now, events) = (bench.now, &mut bench.events);
                let arrival = bench.receiver.accept(now, &mut bench.chunks, &text, events);
                let after = bench.receiver.next();
                prop_assert_eq!(after - before, arrival.bytes + u32::from(arrival.finished));
                if is_plenty {
                    model.take(from, to);
                } else {
                    model.next += arrival.bytes as usize;
                }
                prop_assert_eq!(bench.receiver.readable(), model.next - model.read);
                if bench.receiver.is_finished() {
                    prop_assert_eq!(model.next, total);
                }
            }
            Step::Read(len) => {
                let got = bench.read(*len);
                prop_assert_eq!(got.len(), (*len).min(model.next - model.read));
                for (at, got) in got.iter().enumerate() {
                    prop_assert_eq!(*got, byte((model.read + at) as i64));
                }
                model.read += got.len();
            }
            Step::Peek(len) => {
                let mut bytes = vec![0; *len];
                let (one, two) = bytes.split_at_mut(len / 3);
                let bufs = &mut [IoSliceMut::new(one), IoSliceMut::new(two)];
                let got = bench
                    .receiver
                    .read(bench.now, &mut bench.chunks, bufs, true);
                prop_assert_eq!(got, (*len).min(model.next - model.read));
                for (at, got) in bytes[..got].iter().enumerate() {
                    prop_assert_eq!(*got, byte((model.read + at) as i64));
                }
            }
            Step::Acknowledge => {
                let edge = bench.receiver.next() + bench.receiver.window();
                let announced = bench.announce();
                prop_assert_eq!(announced % (1 << scale), 0);
                prop_assert!(announced >> scale <= 65_535);
                let now = bench.receiver.next() + bench.receiver.window();
                // What is taken never shrinks, what is said by less than a unit.
                prop_assert!(!now.is_before(edge));
                prop_assert!(bench.receiver.window() - announced < 1 << scale);
                // Nothing is told to have come that has not; a FIN may have come twice.
                for block in bench.receiver.sack_blocks().iter() {
                    prop_assert!(!block.is_empty());
                    let start = block.start.since(bench.first) as usize;
                    let end = block.end.since(bench.first) as usize;
                    let told = &model.has_come[start.min(total)..end.min(total)];
                    prop_assert!(!is_plenty || told.iter().all(|has_come| *has_come));
                }
                bench.receiver.ack_sent();
            }
            Step::Time(ms) => {
                bench.waits(Duration::from_millis(*ms));
                let now = bench.now;
                bench.receiver.on_ack_timeout(now, &mut bench.events);
            }
            Step::SetBuffer(bytes) => bench.receiver.set_buffer(*bytes),
        }
        let is_finished = usize::from(bench.receiver.is_finished());
        let next = bench.receiver.next().since(bench.first) as usize - is_finished;
        prop_assert_eq!(next, model.next);
        model.edge = next + is_finished + bench.receiver.window() as usize;
        let charged = bench.receiver.charged();
        prop_assert_eq!(charged, bench.store.used() * CHUNK);
        buffer = buffer.max(bench.receiver.buffer() as usize);
        prop_assert!(charged <= buffer + 2 * CHUNK);
    }
    bench.receiver.free(&mut bench.chunks);
    prop_assert_eq!(bench.store.used(), 0);
    Ok(())
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_sent(
        near in prop::sample::select(&PLACES[..]),
        before in 0..40_000u32,
        total in 1..150_000usize,
        scale in 0..9u8,
        tcp_mem in prop_oneof![Just(1 << 20), Just(1 << 20), 0..30u32],
        steps in steps(),
    ) {
        run(near.wrapping_sub(before), total, scale, tcp_mem, &steps)?;
    }
}
