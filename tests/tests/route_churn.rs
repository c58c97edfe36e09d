//! Routes that change at random while packets are forwarded: each packet goes by the table as it was
//! before a change or as it is after it, and none is lost.
//!
//! `FOREBAY_ROUTE_CHANGES` says how many changes there are in each family.

use std::env;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use forebay_stack::Stack;
use forebay_stack::fib::{Address, Fib, Prefix, Route, RouteKind, RouteMatch, TableId};
use forebay_stack::interface::InterfaceConfig;
use forebay_tests::packets;
use forebay_tests::{Rig, V4, V6};

/// Changes of each family, unless the environment says otherwise.
const CHANGES: u64 = 3_000;

/// Interfaces that routes lead to.
const WAYS: [&str; 6] = ["way0", "way1", "way2", "way3", "way4", "way5"];

/// Each has three nested prefixes, and an address in one, in two and in all of them.
const SITES: usize = 200;
const DEPTH: usize = 3;

/// In the place of the count of batches, when there will be no further one.
const NO_MORE: u64 = u64::MAX;

/// Stands for the way that the default route leads.
const BY_DEFAULT: u32 = 1 << 31;

/// Where a family's sites are.
struct Plan {
    first: u128,
    /// Bits by which sites differ start here.
    shift: u32,
    lens: [u8; DEPTH],
    /// The address that lies in so many prefixes, from the site's first on.
    hosts: [u128; DEPTH],
    /// Prefixes that no packet goes to: the table grows and shrinks by them.
    fillers: u128,
    filler_len: u8,
    source: IpAddr,
}

/// In IPv4, what is decided by the root, by the second level and by the third.
const PLAN4: Plan = Plan {
    first: 20 << 24,
    shift: 17,
    lens: [15, 24, 30],
    hosts: [0x1_0000, 0x80, 1],
    fillers: 40 << 24,
    filler_len: 24,
    source: IpAddr::V4(V4::PEER),
};

const PLAN6: Plan = Plan {
    first: 0x2001_0db8 << 96,
    shift: 82,
    lens: [46, 57, 126],
    hosts: [1 << 75, 1 << 66, 1],
    fillers: 0x2a00 << 112,
    filler_len: 44,
    source: IpAddr::V6(V6::PEER),
};

#[test]
fn ipv4_packets_go_by_the_table_before_or_after_a_change() {
    churn::<std::net::Ipv4Addr>(&PLAN4, Stack::fib4);
}

#[test]
fn ipv6_packets_go_by_the_table_before_or_after_a_change() {
    churn::<std::net::Ipv6Addr>(&PLAN6, Stack::fib6);
}

/// What both threads know.
struct Shared {
    /// For each address, which ways a packet may take now: one, but for the time of a change.
    allowed: Vec<AtomicU32>,
    /// The same for the default route.
    by_default: AtomicU32,
    /// Batches that have begun.
    batches: AtomicU64,
}

fn churn<A: Address + Into<IpAddr>>(plan: &Plan, fib: fn(&Stack) -> &Fib<A>) {
    let mut rig = Rig::new();
    let ways = WAYS.map(|name| {
        let added = rig.stack.add_interface(InterfaceConfig::new(name));
        added.expect("a new name")
    });
    let shared = Shared {
        allowed: (0..SITES * DEPTH)
            .map(|_| AtomicU32::new(BY_DEFAULT))
            .collect(),
        by_default: AtomicU32::new(1),
        batches: AtomicU64::new(0),
    };
    let stack = std::sync::Arc::clone(&rig.stack);
    let mut changes = Changes {
        fib: fib(&stack),
        plan,
        ways,
        shared: &shared,
        routes: vec![[None; DEPTH]; SITES],
        changed_in: vec![0; SITES],
        default_changed_in: 0,
        random: Random(7),
    };
    changes.replace(Prefix::DEFAULT, 0);
    thread::scope(|scope| {
        let _no_waiting = NoWaiting(&shared.batches);
        let changing = scope.spawn(move || changes.make(how_many()));
        let mut random = Random(9);
        while !changing.is_finished() {
            forward::<A>(&mut rig, plan, &shared, &mut random);
        }
    });
    assert_eq!(rig.drops(), []);
    assert_eq!(rig.buffers_in_use(), 0);
}

fn how_many() -> u64 {
    let asked = env::var("FOREBAY_ROUTE_CHANGES").ok();
    asked.map_or(CHANGES, |asked| asked.parse().expect("a number"))
}

/// A batch to addresses at random; each packet must leave by a way that was allowed since it began.
fn forward<A: Address + Into<IpAddr>>(
    rig: &mut Rig,
    plan: &Plan,
    shared: &Shared,
    random: &mut Random,
) {
    shared.batches.fetch_add(1, Ordering::SeqCst);
    let targets: [usize; 64] = std::array::from_fn(|_| random.below(SITES * DEPTH));
    let before = shared.ways_to(&targets);
    rig.inject_all(
        "tun0",
        (0_u8..).zip(targets).map(|(nth, target)| {
            let dst = plan.address::<A>(target / DEPTH, target % DEPTH);
            packets::ip(plan.source, dst, 253, &[nth])
        }),
    );
    let after = shared.ways_to(&targets);
    let ways_to = |nth: usize| {
        let ways = before.1[nth] | after.1[nth];
        if ways & BY_DEFAULT == 0 {
            ways
        } else {
            ways | before.0 | after.0
        }
    };
    let mut arrived = 0;
    for (way, name) in WAYS.iter().enumerate() {
        for bytes in rig.output(name) {
            let packet = packets::parse(&bytes);
            let nth = usize::from(packet.payload[0]);
            assert_eq!(packet.ttl, 63);
            assert!(
                ways_to(nth) & 1 << way != 0,
                "{} went by {name}, with {:b} allowed",
                packet.dst,
                ways_to(nth)
            );
            arrived += 1;
        }
    }
    assert_eq!(arrived, targets.len(), "{:?}", rig.drops());
}

impl Shared {
    /// The ways allowed now by the default route, and to each of the targets.
    fn ways_to(&self, targets: &[usize; 64]) -> (u32, [u32; 64]) {
        let load = |ways: &AtomicU32| ways.load(Ordering::SeqCst);
        let to_targets = targets.map(|target| load(&self.allowed[target]));
        (load(&self.by_default), to_targets)
    }
}

impl Plan {
    fn prefix<A: Address>(&self, site: usize, depth: usize) -> Prefix<A> {
        let first = self.first + ((site as u128) << self.shift);
        Prefix::new(A::from_u128(first), self.lens[depth]).expect("no host bits")
    }

    /// The address in the first `depth` + 1 prefixes of a site.
    fn address<A: Address>(&self, site: usize, depth: usize) -> A {
        A::from_u128(self.first + ((site as u128) << self.shift) + self.hosts[depth])
    }
}

/// The thread that changes routes.
struct Changes<'a, A: Address> {
    fib: &'a Fib<A>,
    plan: &'a Plan,
    ways: [u32; WAYS.len()],
    shared: &'a Shared,
    /// The way that each route of each site leads.
    routes: Vec<[Option<usize>; DEPTH]>,
    /// The batch during which the site was last changed.
    changed_in: Vec<u64>,
    default_changed_in: u64,
    random: Random,
}

impl<A: Address> Changes<'_, A> {
    fn make(&mut self, changes: u64) {
        for nth in 0..changes {
            match self.random.below(32) {
                0 => self.change_default(),
                1..8 => self.change_filler(nth < changes / 2),
                _ => self.change_site(),
            }
        }
    }

    fn change_site(&mut self) {
        let (site, depth) = (self.random.below(SITES), self.random.below(DEPTH));
        self.shared.wait_for_batch_after(self.changed_in[site]);
        let way = match (self.routes[site][depth], self.random.below(2)) {
            (Some(_), 0) => None,
            _ => Some(self.random.below(WAYS.len())),
        };
        self.routes[site][depth] = way;
        let allowed = &self.shared.allowed[site * DEPTH..][..DEPTH];
        let routes = &self.routes[site];
        let new = [0, 1, 2].map(|depth| {
            let way = routes[..=depth].iter().rev().find_map(|way| *way);
            way.map_or(BY_DEFAULT, |way| 1 << way)
        });
        for (allowed, new) in allowed.iter().zip(new) {
            allowed.fetch_or(new, Ordering::SeqCst);
        }
        let prefix = self.plan.prefix(site, depth);
        match way {
            Some(way) => self.replace(prefix, way),
            // It is there, or this deletes nothing: both happen.
            None => drop(self.fib.delete(TableId::MAIN, &RouteMatch::prefix(prefix))),
        }
        for (allowed, new) in allowed.iter().zip(new) {
            allowed.store(new, Ordering::SeqCst);
        }
        self.changed_in[site] = self.shared.batches.load(Ordering::SeqCst);
    }

    fn change_default(&mut self) {
        self.shared.wait_for_batch_after(self.default_changed_in);
        let way = self.random.below(WAYS.len());
        self.shared.by_default.fetch_or(1 << way, Ordering::SeqCst);
        self.replace(Prefix::DEFAULT, way);
        self.shared.by_default.store(1 << way, Ordering::SeqCst);
        self.default_changed_in = self.shared.batches.load(Ordering::SeqCst);
    }

    fn change_filler(&mut self, add: bool) {
        let nth = self.random.below(4_000) as u128;
        let host_bits = u32::from(A::BITS - self.plan.filler_len);
        let addr = A::from_u128(self.plan.fillers + (nth << host_bits));
        let prefix = Prefix::new(addr, self.plan.filler_len).expect("no host bits");
        if add {
            self.replace(prefix, 0);
        } else {
            let _ = self.fib.delete(TableId::MAIN, &RouteMatch::prefix(prefix));
        }
    }

    fn replace(&self, prefix: Prefix<A>, way: usize) {
        let route = Route::new(RouteKind::Unicast, prefix).dev(self.ways[way]);
        self.fib.replace(TableId::MAIN, route).expect("a route");
    }
}

impl Shared {
    /// So that no batch sees two changes of one thing: what is allowed at its beginning and at its
    /// end is then all that may happen.
    fn wait_for_batch_after(&self, batch: u64) {
        let is_over = |now| now > batch || now == NO_MORE;
        while !is_over(self.batches.load(Ordering::SeqCst)) {
            thread::yield_now();
        }
    }
}

/// When the thread that forwards ends, if by a panic, the other one must not wait for it.
struct NoWaiting<'a>(&'a AtomicU64);

impl Drop for NoWaiting<'_> {
    fn drop(&mut self) {
        self.0.store(NO_MORE, Ordering::SeqCst);
    }
}

/// Numbers that look random (Marsaglia's xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}
