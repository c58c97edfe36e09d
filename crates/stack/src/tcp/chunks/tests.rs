use proptest::prelude::*;

use super::*;

/// Enough for everybody.
const PLENTY: [u32; 3] = [1 << 20; 3];

fn take_all(chunks: &mut Chunks, first: bool) -> Vec<Chunk> {
    let take = || match first {
        true => chunks.take_first(),
        false => chunks.take(),
    };
    core::iter::from_fn(take).collect()
}

#[test]
fn cores_together_get_what_tcp_mem_says() {
    for (tcp_mem, all, kept) in [
        ([0, 0, 0], 0, 0),
        ([3, 4, 5], 5, 0),
        ([60, 70, 80], 80, 10),
        ([1_000, 1_500, 2_000], 2_000, 250),
    ] {
        let store = ChunkStore::new(tcp_mem);
        let mut cores = [store.chunks(), store.chunks()];
        let mut held = take_all(&mut cores[0], false);
        // What the other has at hand nobody else gets.
        assert_eq!(store.used(), held.len());
        assert!(cores[0].under_pressure() || all == 0);
        assert_eq!(held.len(), all, "{tcp_mem:?}");
        assert!(cores[1].take().is_none());
        let first = take_all(&mut cores[1], true);
        assert_eq!((first.len(), store.used()), (kept, all + kept));
        held.extend(first);
        for (at, chunk) in held.drain(..).enumerate() {
            cores[at % 2].give(chunk);
        }
        assert_eq!(store.used(), 0);
        assert!(!cores[0].under_pressure());
        assert!(lock(&store.0.free).len() <= STORED);
        assert!(store.0.lent.load(Relaxed) <= 4 * PIECE);
        drop(cores);
        assert_eq!(store.0.lent.load(Relaxed), 0);
    }
}

#[test]
fn pressure_ends_at_the_lowest_limit() {
    let store = ChunkStore::new([4, 6, 8]);
    let mut core = store.chunks();
    let mut held = Vec::new();
    for expected in [false, false, false, false, false, false, true, true] {
        held.push(core.take().unwrap());
        assert_eq!(core.under_pressure(), expected, "{}", held.len());
    }
    for expected in [true, true, true, false] {
        core.give(held.pop().unwrap());
        assert_eq!(core.under_pressure(), expected, "{}", held.len());
    }
    store.set_limits([1, 2, 3]);
    assert!(core.under_pressure() && core.take().is_none());
    store.set_limits(PLENTY);
    assert!(!core.under_pressure());
    held.into_iter().for_each(|chunk| core.give(chunk));
}

#[test]
fn the_knob_is_in_force_at_once() {
    let stack = crate::Stack::new(&crate::StackConfig::default());
    let mut core = stack.tcp.memory.chunks();
    let chunk = core.take().unwrap();
    assert_eq!(stack.tcp_memory(), CHUNK);
    core.give(chunk);
    drop(core);
    for name in ["net.ipv4.tcp_mem", "net/ipv4/tcp_mem"] {
        for (value, pages) in [("2 2 2", 2), ("3 4 5", 5)] {
            stack.set_sysctl(name, value).unwrap();
            let mut core = stack.tcp.memory.chunks();
            let held = take_all(&mut core, false);
            assert_eq!((held.len(), stack.tcp_memory()), (pages, pages * CHUNK));
            held.into_iter().for_each(|chunk| core.give(chunk));
            assert_eq!(stack.tcp_memory(), 0);
        }
    }
}

#[test]
fn chunks_go_round_between_cores() {
    let store = ChunkStore::new(PLENTY);
    let (mut one, mut two) = (store.chunks(), store.chunks());
    for _ in 0..20 {
        let held: Vec<Chunk> = (0..5 * PIECE).filter_map(|_| one.take()).collect();
        held.into_iter().for_each(|chunk| two.give(chunk));
    }
    // Nobody hoards, and what one gave the other took.
    assert!(one.free.len() <= 2 * PIECE && two.free.len() <= 2 * PIECE);
    assert_eq!(store.used(), 0);
}

#[test]
fn little_takes_no_memory_but_its_chunk() {
    let store = ChunkStore::new(PLENTY);
    let mut chunks = store.chunks();
    let mut queue = ByteQueue::default();
    for _ in 0..100 {
        assert_eq!(queue.push(&mut chunks, &[7; 64]), 64);
        assert_eq!(queue.charged(), CHUNK);
        queue.drop_front(&mut chunks, 64);
        assert_eq!(queue.charged(), 0);
    }
    assert_eq!(chunks.slots.len(), 0);
    queue.push(&mut chunks, &[7; 3 * CHUNK]);
    queue.drop_front(&mut chunks, 3 * CHUNK);
    assert_eq!((chunks.slots.len(), queue.charged()), (1, 0));
}

#[test]
fn a_queue_takes_what_there_is_memory_for() {
    let store = ChunkStore::new([2; 3]);
    let mut chunks = store.chunks();
    let mut queue = ByteQueue::default();
    assert_eq!(queue.push(&mut chunks, &[1; 10_000]), 2 * CHUNK);
    assert_eq!(queue.push(&mut chunks, &[1]), 0);
    queue.drop_front(&mut chunks, CHUNK + 1);
    assert_eq!(queue.push(&mut chunks, &[2; 10_000]), CHUNK);
    assert_eq!(queue.len(), 2 * CHUNK - 1);
    queue.clear(&mut chunks);
    assert_eq!(store.used(), 0);
}

#[derive(Debug, Clone)]
enum Step {
    Push(usize),
    Drop(usize),
    Read(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..9_000usize).prop_map(Step::Push),
        (0..12_000usize).prop_map(Step::Drop),
        (0..20_000usize, 0..20_000usize).prop_map(|(at, len)| Step::Read(at, len)),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn a_queue_is_a_queue(steps in steps()) {
        let store = ChunkStore::new([5, 6, 8]);
        let mut chunks = store.chunks();
        let mut queue = ByteQueue::default();
        let mut model: Vec<u8> = Vec::new();
        let mut next = 0u8;
        for step in steps {
            match step {
                Step::Push(len) => {
                    let bytes: Vec<u8> = (0..len).map(|at| next.wrapping_add((at % 251) as u8)).collect();
                    next = next.wrapping_add(17);
                    let pushed = queue.push(&mut chunks, &bytes);
                    prop_assert!(pushed == len || store.used() == 8);
                    model.extend(&bytes[..pushed]);
                }
                Step::Drop(len) => {
                    queue.drop_front(&mut chunks, len);
                    model.drain(..len.min(model.len()));
                }
                Step::Read(at, len) => {
                    let mut read = Vec::new();
                    queue.slices(at, len).for_each(|bytes| read.extend_from_slice(bytes));
                    let at = at.min(model.len());
                    prop_assert_eq!(&read[..], &model[at..model.len().min(at + len)]);
                }
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.charged(), store.used() * CHUNK);
            prop_assert!(queue.charged() < model.len() + 2 * CHUNK);
        }
        queue.clear(&mut chunks);
        prop_assert_eq!(store.used(), 0);
    }
}
