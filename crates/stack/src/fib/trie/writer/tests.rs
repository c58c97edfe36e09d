use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::fib::trie::BATCH;

/// Prefixes and their values, searched one by one.
struct Model<A>(BTreeMap<Prefix<A>, u32>);

impl<A: Address> Model<A> {
    fn leaf(&self, covers: impl Fn(&Prefix<A>) -> bool) -> Option<(Prefix<A>, u32)> {
        let found = self.0.iter().filter(|(prefix, _)| covers(prefix));
        let longest = found.max_by_key(|(prefix, _)| prefix.len());
        longest.map(|(prefix, value)| (*prefix, *value))
    }

    fn lookup(&self, addr: A) -> u32 {
        let leaf = self.leaf(|prefix| prefix.contains(addr));
        leaf.map_or(0, |(_, value)| value)
    }

    fn shorter(&self, than: &Prefix<A>) -> Leaf {
        let found = self.leaf(|prefix| prefix.len() < than.len() && prefix.contains(than.addr()));
        match found {
            Some((prefix, value)) if !prefix.is_default() => Leaf {
                value,
                len: prefix.len(),
            },
            _ => Leaf::NONE,
        }
    }
}

/// A trie beside its model.
struct Pair<A> {
    domain: Domain,
    trie: TrieWriter<A>,
    model: Model<A>,
}

impl<A: Address> Pair<A> {
    fn new() -> Self {
        let domain = Domain::new();
        Pair {
            trie: TrieWriter::new(&domain),
            model: Model(BTreeMap::new()),
            domain,
        }
    }

    fn insert(&mut self, prefix: Prefix<A>, value: u32) {
        self.model.0.insert(prefix, value);
        self.trie.insert(&prefix, value);
    }

    fn remove(&mut self, prefix: Prefix<A>) {
        self.model.0.remove(&prefix);
        let shorter = self.model.shorter(&prefix);
        self.trie.remove(&prefix, shorter);
    }

    /// Compares the addresses at the edges of a prefix and beyond them.
    fn check_edges(&self, prefix: &Prefix<A>) {
        let first = prefix.addr().to_u128();
        let host_bits = u32::from(A::BITS - prefix.len());
        let last = first | 1u128.checked_shl(host_bits).unwrap_or(0).wrapping_sub(1);
        let addrs = [first.wrapping_sub(1), first, last, last.wrapping_add(1)].map(A::from_u128);
        self.check(&addrs);
    }

    fn check(&self, addrs: &[A]) {
        let reader = self.domain.reader();
        let guard = reader.guard();
        let published = self.trie.published();
        let trie = published.reader(&guard);
        for addrs in addrs.chunks(BATCH) {
            let expected: Vec<u32> = addrs.iter().map(|addr| self.model.lookup(*addr)).collect();
            let singly: Vec<u32> = addrs.iter().map(|addr| trie.lookup(*addr)).collect();
            let mut batch = [A::UNSPECIFIED; BATCH];
            batch[..addrs.len()].copy_from_slice(addrs);
            let mut bulk = [u32::MAX; BATCH];
            trie.lookup_many(&batch, addrs.len(), &mut bulk);
            assert_eq!(singly, expected, "{addrs:?} in {:?}", self.model.0);
            assert_eq!(
                bulk[..addrs.len()],
                expected,
                "{addrs:?} in {:?}",
                self.model.0
            );
        }
    }

    fn check_every_edge(&self) {
        for prefix in self.model.0.keys() {
            self.check_edges(prefix);
        }
    }

    /// Pages of words.
    fn pages_in_use(&self) -> usize {
        let pages = self.trie.pages.iter().filter(|page| !page.is_records());
        let retired = self.trie.retired.iter();
        let retired = retired.filter(|(_, what)| matches!(what, Unlinked::Page(_)));
        pages.count() - self.trie.free.len() - retired.count()
    }

    fn records_in_use(&self) -> usize {
        let pages = self.trie.pages.iter().filter(|page| page.is_records());
        let retired = self.trie.retired.iter();
        let retired = retired.filter(|(_, what)| matches!(what, Unlinked::Record(_)));
        let records = pages.count() * PAGE / Record::words::<A>();
        records - self.trie.free_records.len() - retired.count()
    }
}

/// A prefix from few distinct bits, so that prefixes nest and meet.
fn prefixes<A: Address>() -> impl Strategy<Value = Prefix<A>> {
    let octet = prop::sample::select(vec![0u8, 1, 127, 128, 255]);
    (prop::collection::vec(octet, 16), 0..=A::BITS).prop_map(|(octets, len)| {
        let bits = octets
            .iter()
            .fold(0, |bits, octet| bits << 8 | u128::from(*octet));
        Prefix::truncated(A::from_u128(bits), len)
    })
}

#[derive(Debug, Clone)]
enum Step<A> {
    Insert(Prefix<A>, u32),
    /// Gives a prefix that is there another value.
    Change(Index, u32),
    Remove(Index),
    Widen,
}

fn steps<A: Address>() -> impl Strategy<Value = Vec<Step<A>>> {
    let step = prop_oneof![
        6 => (prefixes(), 1u32..9).prop_map(|(prefix, value)| Step::Insert(prefix, value)),
        1 => (any::<Index>(), 1u32..9).prop_map(|(which, value)| Step::Change(which, value)),
        4 => any::<Index>().prop_map(Step::Remove),
        1 => Just(Step::Widen),
    ];
    prop::collection::vec(step, 1..60)
}

/// Runs the steps, then removes what is left in an order that the steps choose.
fn agrees_with_the_model<A: Address>(steps: Vec<Step<A>>, order: Index) {
    let mut pair = Pair::new();
    for step in steps {
        let known: Vec<_> = pair.model.0.keys().copied().collect();
        let pick = |which: Index| known[which.index(known.len())];
        let concerned = match step {
            Step::Insert(prefix, value) => {
                pair.insert(prefix, value);
                prefix
            }
            Step::Change(which, value) if !known.is_empty() => {
                pair.insert(pick(which), value);
                pick(which)
            }
            Step::Remove(which) if !known.is_empty() => {
                pair.remove(pick(which));
                pick(which)
            }
            Step::Widen if !pair.trie.arena.wide => {
                pair.trie.widen();
                Prefix::DEFAULT
            }
            _ => continue,
        };
        pair.check_edges(&concerned);
    }
    pair.check_every_edge();
    while !pair.model.0.is_empty() {
        let nth = order.index(pair.model.0.len());
        let prefix = pair
            .model
            .0
            .keys()
            .nth(nth)
            .copied()
            .expect("within length");
        pair.remove(prefix);
        pair.check_edges(&prefix);
        pair.check_every_edge();
    }
    let root = if pair.trie.arena.wide { WIDE_ROOT } else { 1 };
    assert_eq!(pair.pages_in_use(), root, "pages collapse as routes go");
    assert_eq!(pair.records_in_use(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn v4_agrees_with_a_scan(steps in steps::<Ipv4Addr>(), order: Index) {
        agrees_with_the_model(steps, order);
    }

    #[test]
    fn v6_agrees_with_a_scan(steps in steps::<Ipv6Addr>(), order: Index) {
        agrees_with_the_model(steps, order);
    }
}

#[test]
fn nested_prefixes_go_in_every_order() {
    let nested = [
        "default",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.2.0/24",
        "10.1.2.3",
    ];
    let nested = nested.map(|text| text.parse::<Prefix<Ipv4Addr>>().expect(text));
    // Heap's way through the 120 orders would be shorter, but this is plainer.
    for code in 0..5usize.pow(5) {
        let order = [0, 1, 2, 3, 4].map(|digit| code / 5usize.pow(digit) % 5);
        if (0..5).any(|index| !order.contains(&index)) {
            continue;
        }
        let mut pair = Pair::new();
        for (prefix, value) in nested.iter().zip(1..) {
            pair.insert(*prefix, value);
        }
        for index in order {
            pair.remove(nested[index]);
            nested.iter().for_each(|prefix| pair.check_edges(prefix));
        }
        assert_eq!(pair.pages_in_use(), 1);
    }
}

#[test]
fn grows_and_becomes_wide_by_itself() {
    let mut pair = Pair::<Ipv4Addr>::new();
    let fresh = pair.trie.memory();
    assert!(fresh < 8 * 1024, "{fresh}");
    for i in 0..2_000u32 {
        let addr = Ipv4Addr::from(i.wrapping_mul(0x9e37_79b9));
        pair.insert(Prefix::truncated(addr, 24 - (i % 3) as u8), i + 1);
    }
    assert!(pair.trie.arena.wide);
    pair.check_every_edge();
    let first: Vec<_> = pair.model.0.keys().copied().step_by(2).collect();
    first.iter().for_each(|prefix| pair.remove(*prefix));
    pair.check_every_edge();
}

#[test]
fn a_prefix_that_is_alone_has_a_record_and_shares_pages_else() {
    let mut pair = Pair::<Ipv6Addr>::new();
    let [wide, lone, near, far]: [Prefix<Ipv6Addr>; 4] = [
        "2001:db8::/32",
        "2001:db8:1234:5678::/64",
        "2001:db8:1234:5600::/56",
        "2001:db8:9999::/48",
    ]
    .map(|text| text.parse().expect(text));
    let mut values = 1..;
    // What is in the way, and how many pages and records there are then beside the narrow root and
    // the page below it.
    for (prefix, insert, pages, records) in [
        (lone, true, 0, 1),
        (wide, true, 2, 1),
        (near, true, 5, 1),
        (near, false, 2, 1),
        (far, true, 3, 2),
        (lone, false, 2, 1),
        (wide, false, 0, 1),
        (far, false, 0, 0),
    ] {
        match insert {
            true => pair.insert(prefix, values.next().expect("endless")),
            false => pair.remove(prefix),
        }
        for prefix in [wide, lone, near, far] {
            pair.check_edges(&prefix);
        }
        let found = (pair.pages_in_use(), pair.records_in_use());
        let root = if pair.model.0.is_empty() { 1 } else { 2 };
        assert_eq!(found, (root + pages, records), "{prefix}, {insert}");
    }
}

#[test]
fn a_record_is_reused_only_after_its_readers_left() {
    let mut pair = Pair::<Ipv4Addr>::new();
    let nets = ["10.0.0.0/24", "10.1.0.0/24"];
    let [net, other]: [Prefix<Ipv4Addr>; 2] = nets.map(|text| text.parse().expect(text));
    pair.insert(net, 1);
    let free = pair.trie.free_records.len();
    let reader = pair.domain.reader();
    let guard = reader.guard();
    pair.remove(net);
    pair.insert(other, 2);
    assert_eq!(pair.trie.free_records.len(), free - 1);
    drop(guard);
    pair.insert(net, 1);
    assert_eq!(pair.trie.free_records.len(), free - 1);
}

#[test]
fn a_page_is_reused_only_after_its_readers_left() {
    let mut pair = Pair::<Ipv4Addr>::new();
    let net: Prefix<Ipv4Addr> = "10.0.0.0/12".parse().expect("a prefix");
    let other: Prefix<Ipv4Addr> = "11.0.0.0/12".parse().expect("a prefix");
    pair.insert(net, 1);
    let reader = pair.domain.reader();
    let guard = reader.guard();
    pair.remove(net);
    pair.insert(other, 2);
    assert_eq!(pair.trie.pages.len(), 3, "the old page may have a reader");
    drop(guard);
    pair.remove(other);
    pair.insert(net, 1);
    pair.insert(other, 2);
    assert_eq!(pair.trie.pages.len(), 3);
}
