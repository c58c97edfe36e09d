//! Against a naive model, and against itself from several threads.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;
use std::thread;

use proptest::prelude::*;

use super::*;

/// Two of these hash functions are what a table must survive rather than like.
#[derive(Debug, Clone, Copy)]
enum Hash {
    Good,
    /// Everything in one bucket under one tag.
    Constant,
    /// One tag, few buckets, which split late.
    HighBitsOnly,
}

impl Hash {
    fn of(self, word: u32) -> u64 {
        match self {
            Self::Good => Key([1, 2]).hash([u64::from(word)], 0, 0),
            Self::Constant => 0x0001_0000_0000_0007,
            Self::HighBitsOnly => u64::from(word % 5) << 20,
        }
    }
}

use crate::siphash::Key;

fn hash() -> impl Strategy<Value = Hash> {
    prop_oneof![
        Just(Hash::Good),
        Just(Hash::Constant),
        Just(Hash::HighBitsOnly)
    ]
}

fn find(table: &Established, hash: Hash, word: u32) -> bool {
    table
        .find(hash.of(word), |found| (found == word).then_some(()))
        .is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn holds_what_a_set_holds(hash in hash(), steps in prop::collection::vec((any::<bool>(), 0_u32..700), 1..1500)) {
        let table = Established::new();
        let mut model = BTreeSet::new();
        for (add, word) in steps {
            if add && model.insert(word) {
                table.insert(hash.of(word), word, |word| hash.of(word));
            } else if !add {
                let removed = table.remove(hash.of(word), word, |word| hash.of(word));
                prop_assert_eq!(removed, model.remove(&word));
            }
        }
        prop_assert_eq!(table.len(), model.len());
        for word in 0..700 {
            prop_assert_eq!(find(&table, hash, word), model.contains(&word), "{}", word);
        }
    }

    #[test]
    fn lanes_compare_as_single_tags_do(lanes: [u16; 4], tag: u16, same in 0_usize..5) {
        let mut lanes = lanes;
        if let Some(lane) = lanes.get_mut(same) {
            *lane = tag;
        }
        let word = lanes.iter().rev().fold(0, |word, lane| word << 16 | u64::from(*lane));
        let naive = lanes.iter().enumerate().map(|(at, lane)| u32::from(*lane == tag) << at).sum();
        prop_assert_eq!(equal_lanes(word, tag), naive);
    }
}

#[test]
fn a_line_is_a_cache_line() {
    assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
}

#[test]
fn grows_and_shrinks_with_its_entries() {
    let (table, hash) = (Established::new(), Hash::Good);
    let of = |word| hash.of(word);
    for word in 0..20_000 {
        table.insert(of(word), word, of);
    }
    let full = table.buckets() as usize;
    assert!(
        (20_000 / GROW_ABOVE - 1..=20_000 / GROW_ABOVE + 1).contains(&full),
        "{full}"
    );
    let lines = table.overflow.lines.len();
    assert!(
        lines < full as u32 / 4,
        "{lines} overflow lines behind {full} buckets"
    );
    for word in 0..20_000 {
        assert!(table.remove(of(word), word, of));
    }
    assert_eq!(table.buckets(), SHARDS);
    assert_eq!(
        lock(&table.overflow.free).len(),
        table.overflow.lines.len() as usize
    );
}

#[test]
fn every_bucket_number_below_the_count_is_hit_and_no_other() {
    for buckets in [64, 65, 100, 127, 128, 129] {
        let hit: BTreeSet<u32> = (0..4096).map(|hash| bucket_of(hash, buckets)).collect();
        assert_eq!(hit, (0..buckets).collect());
    }
}

/// What stays in the table is found all the time, while others come and go so that buckets split,
/// merge and overflow.
#[test]
fn readers_never_miss_what_stays() {
    for hash in [Hash::Good, Hash::HighBitsOnly] {
        let table = Established::new();
        let of = |word| hash.of(word);
        let staying = 0..200_u32;
        staying
            .clone()
            .for_each(|word| table.insert(of(word), word, of));
        let rounds = AtomicU32::new(0);
        let go_on = || rounds.load(Ordering::Relaxed) < 2_000;
        thread::scope(|scope| {
            let (table, rounds, staying, go_on) = (&table, &rounds, &staying, &go_on);
            for writer in 1..3_u32 {
                scope.spawn(move || {
                    let words = writer * 10_000..writer * 10_000 + 1_000;
                    while go_on() {
                        for word in words.clone() {
                            table.insert(of(word), word, of);
                        }
                        for word in words.clone() {
                            assert!(table.remove(of(word), word, of));
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    while go_on() {
                        for word in staying.clone() {
                            assert!(find(table, hash, word), "{word} was missed");
                        }
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(table.len(), 200);
    }
}
