//! The table under every interleaving and memory order that loom can think of, up to a bound on
//! preemptions:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p forebay-stack --release --lib interleavings
//! ```
//!
//! What is looked up is what its users rely on: an entry that stays is found by every lookup, one
//! whose insertion has returned is found, one whose removal has returned is not.

use loom::sync::Arc;
use loom::thread;

use super::*;

/// Entries that a table is said to have: one more or less makes two or three buckets neither grow
/// nor shrink of their own accord.
const ENTRIES_AT_REST: usize = 6;

/// The low bits of a word choose its bucket, so that each model says in numbers where its entries
/// are: of two buckets, 0b00 and 0b10 are in the first, and 0b10 leaves it for the third.
fn hash_of(word: u32) -> u64 {
    u64::from(word % 16 + 1) << 48 | u64::from(word % 4)
}

fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(f);
}

/// A table of two buckets.
fn table(words: impl IntoIterator<Item = u32>) -> Arc<Established> {
    let table = Established::new();
    for word in words {
        table.put(bucket_of(hash_of(word), 2), hash_of(word), word);
    }
    table.entries.store(ENTRIES_AT_REST, Ordering::Relaxed);
    Arc::new(table)
}

/// The same after a split: of three buckets.
fn split_table(words: impl IntoIterator<Item = u32>) -> Arc<Established> {
    let table = table(words);
    table.grow(hash_of);
    assert_eq!(table.buckets(), 3);
    table
}

fn find(table: &Established, word: u32) -> bool {
    let is_it = |found| (found == word).then_some(());
    table.find(hash_of(word), is_it).is_some()
}

/// Runs `write` in a thread of its own while this one looks for the words, which stay.
fn assert_found_while(
    table: &Arc<Established>,
    words: impl IntoIterator<Item = u32>,
    write: impl FnOnce(&Established) + Send + 'static,
) {
    let writer = thread::spawn({
        let table = Arc::clone(table);
        move || write(&table)
    });
    for word in words {
        assert!(find(table, word), "{word}");
    }
    writer.join().unwrap();
}

#[test]
fn a_reader_finds_what_stays_while_neighbours_come_and_go() {
    model(3, || {
        // 16 has 0's tag as well, and takes the place that 4 leaves.
        let table = table([4, 0]);
        assert_found_while(&table, [0, 0], |table| {
            assert!(table.remove(hash_of(4), 4, hash_of));
            table.insert(hash_of(16), 16, hash_of);
        });
        assert!(!find(&table, 4));
        assert!(find(&table, 16));
    });
}

#[test]
fn a_reader_finds_what_stays_while_its_bucket_is_split() {
    model(3, || {
        let table = table([0, 2]);
        assert_found_while(&table, [2, 0], |table| table.grow(hash_of));
        assert_eq!(table.buckets(), 3);
    });
}

#[test]
fn a_reader_finds_what_stays_while_buckets_are_merged() {
    model(3, || {
        let table = split_table([0, 2]);
        assert_found_while(&table, [2, 0], |table| table.shrink(hash_of));
        assert_eq!(table.buckets(), 2);
    });
}

#[test]
fn a_reader_finds_what_moves_there_and_back() {
    model(3, || {
        let table = table([2]);
        assert_found_while(&table, [2], |table| {
            table.grow(hash_of);
            table.shrink(hash_of);
        });
    });
}

#[test]
fn a_reader_finds_what_moves_back_and_there() {
    model(3, || {
        let table = split_table([2]);
        assert_found_while(&table, [2], |table| {
            table.shrink(hash_of);
            table.grow(hash_of);
        });
    });
}

/// The place in the old bucket that a split leaves is taken at once by another entry with the same
/// tag.
#[test]
fn a_reader_finds_what_moves_while_its_place_is_taken() {
    model(3, || {
        let table = table([2]);
        assert_found_while(&table, [2], |table| {
            table.grow(hash_of);
            table.put(0, hash_of(2), 0);
        });
    });
}

/// The line that a reader is on, on its way to the last one of the bucket, becomes empty, and serves
/// another bucket.
#[test]
fn a_reader_finds_its_way_from_a_line_that_is_used_again() {
    model(3, || {
        let first = (0..8).map(|nth| nth * 4);
        let [leaving, staying] = [0x1000, 0x2000];
        let second = [leaving].into_iter().chain((1..8).map(|nth| nth * 64));
        let other = (0..8).map(|nth| nth * 4 + 1);
        let table = table(first.chain(second.clone()).chain([staying]).chain(other));
        for word in second.skip(1) {
            assert!(table.take(0, hash_of(word), word));
        }
        assert_found_while(&table, [staying], move |table| {
            assert!(table.remove(hash_of(leaving), leaving, hash_of));
            table.insert(hash_of(0x1001), 0x1001, hash_of);
        });
        assert_eq!(table.overflow.lines.len(), 2);
        assert!(find(&table, 0x1001));
    });
}

/// A split moves an entry off an overflow line, which is thereby free, and then used for the first
/// bucket again.
#[test]
fn a_reader_finds_what_is_split_off_an_overflow_line() {
    model(2, || {
        let table = table((0..8).map(|nth| nth * 4).chain([2]));
        assert_found_while(&table, [2], |table| {
            table.grow(hash_of);
            table.insert(hash_of(0x1000), 0x1000, hash_of);
        });
        assert_eq!(table.overflow.lines.len(), 1);
        assert!(find(&table, 0x1000));
    });
}

#[test]
fn what_was_inserted_is_found_and_what_was_removed_is_not_while_a_bucket_is_split() {
    model(2, || {
        let table = table([6]);
        let splitter = thread::spawn({
            let table = Arc::clone(&table);
            move || table.grow(hash_of)
        });
        comes_and_goes(&table, 2);
        assert!(find(&table, 6));
        splitter.join().unwrap();
        assert_eq!(table.buckets(), 3);
    });
}

#[test]
fn what_was_inserted_is_found_and_what_was_removed_is_not_while_buckets_are_merged() {
    model(2, || {
        let table = split_table([6]);
        let merger = thread::spawn({
            let table = Arc::clone(&table);
            move || table.shrink(hash_of)
        });
        comes_and_goes(&table, 2);
        assert!(find(&table, 6));
        merger.join().unwrap();
        assert_eq!(table.buckets(), 2);
    });
}

fn comes_and_goes(table: &Established, word: u32) {
    table.insert(hash_of(word), word, hash_of);
    assert!(find(table, word));
    assert!(table.remove(hash_of(word), word, hash_of));
    assert!(!find(table, word));
}

/// A third thread learns from the second how far it has come, and must see the table so: 18 has 2's
/// tag, and takes its place.
#[test]
fn a_reader_agrees_with_a_writer_that_it_has_heard_of() {
    model(2, || {
        let table = table([2]);
        let told = Arc::new(AtomicU32::new(0));
        let writer = thread::spawn({
            let (table, told) = (Arc::clone(&table), Arc::clone(&told));
            move || {
                assert!(table.remove(hash_of(2), 2, hash_of));
                told.store(1, Ordering::Release);
                table.insert(hash_of(18), 18, hash_of);
                told.store(2, Ordering::Release);
            }
        });
        let splitter = thread::spawn({
            let table = Arc::clone(&table);
            move || table.grow(hash_of)
        });
        let told = told.load(Ordering::Acquire);
        if told > 0 {
            assert!(!find(&table, 2));
        }
        if told > 1 {
            assert!(find(&table, 18));
        }
        writer.join().unwrap();
        splitter.join().unwrap();
    });
}

#[test]
fn writers_of_one_bucket_lose_nothing() {
    model(3, || {
        let table = table([0, 4]);
        let writer = thread::spawn({
            let table = Arc::clone(&table);
            move || {
                assert!(table.remove(hash_of(0), 0, hash_of));
                table.insert(hash_of(8), 8, hash_of);
            }
        });
        assert!(table.remove(hash_of(4), 4, hash_of));
        table.insert(hash_of(12), 12, hash_of);
        writer.join().unwrap();
        let there = [0, 4, 8, 12].map(|word| find(&table, word));
        assert_eq!(there, [false, false, true, true]);
        assert_eq!(table.len(), ENTRIES_AT_REST);
    });
}

/// Both are full, and the one free overflow line is for either.
#[test]
fn writers_of_two_buckets_share_no_overflow_line() {
    model(3, || {
        let full = (0..8).map(|nth| nth * 4);
        let table = table(
            full.clone()
                .chain(full.map(|word| word + 1))
                .chain([0x1000]),
        );
        assert!(table.take(0, hash_of(0x1000), 0x1000));
        let writer = thread::spawn({
            let table = Arc::clone(&table);
            move || table.insert(hash_of(0x2001), 0x2001, hash_of)
        });
        table.insert(hash_of(0x2000), 0x2000, hash_of);
        writer.join().unwrap();
        assert!(find(&table, 0x2000));
        assert!(find(&table, 0x2001));
        assert_eq!(table.overflow.lines.len(), 2);
    });
}

/// One wants to grow and the other to shrink: one of them has its way, or both, one after the other.
#[test]
fn a_reader_finds_what_stays_while_two_change_the_shape() {
    model(2, || {
        let table = split_table([2, 0]);
        let grower = thread::spawn({
            let table = Arc::clone(&table);
            move || table.grow(hash_of)
        });
        assert_found_while(&table, [2], |table| table.shrink(hash_of));
        grower.join().unwrap();
        assert!((2..=4).contains(&table.buckets()));
        assert!(find(&table, 0));
    });
}

/// A word that takes another's place: a lookup finds one of the two, wherever the bucket is by then.
#[test]
fn a_reader_finds_what_is_replaced_while_its_bucket_is_split() {
    model(2, || {
        let table = table([2]);
        let replacer = thread::spawn({
            let table = Arc::clone(&table);
            move || assert!(table.replace(hash_of(2), 2, 0x1002))
        });
        let splitter = thread::spawn({
            let table = Arc::clone(&table);
            move || table.grow(hash_of)
        });
        let either = |word| (word == 2 || word == 0x1002).then_some(());
        assert!(table.find(hash_of(2), either).is_some());
        replacer.join().unwrap();
        splitter.join().unwrap();
        assert!(!find(&table, 2));
        assert!(find(&table, 0x1002));
    });
}

#[test]
fn of_two_that_want_one_place_one_gets_it() {
    model(2, || {
        let table = table([6]);
        let insert = |table: &Established, word| {
            let is_taken = |other| (other == 2 || other == 0x1002).then_some(other);
            table.insert_unless(hash_of(2), word, hash_of, is_taken)
        };
        let rival = thread::spawn({
            let table = Arc::clone(&table);
            move || insert(&table, 0x1002)
        });
        let splitter = thread::spawn({
            let table = Arc::clone(&table);
            move || table.grow(hash_of)
        });
        let (mine, rivals) = (insert(&table, 2), rival.join().unwrap());
        splitter.join().unwrap();
        assert!(matches!(
            (mine, rivals),
            (None, Some(2)) | (Some(0x1002), None)
        ));
        assert_eq!(find(&table, 2), mine.is_none());
        assert_eq!(find(&table, 0x1002), rivals.is_none());
    });
}
