use std::collections::HashSet;
use std::sync::mpsc::channel;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[test]
fn hands_out_its_capacity_and_no_more() {
    // Within a chunk, a chunk exactly, and beyond.
    for capacity in [0, 1, 33, Chunk::<u32>::SLOTS, 2 * Chunk::<u32>::SLOTS + 10] {
        let pool = Pool::<u32>::new(capacity);
        let mut cache = pool.cache();
        let bufs: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
        assert_eq!((bufs.len(), pool.in_use()), (capacity, capacity));
        let slots: HashSet<_> = bufs.iter().map(Buf::slot).collect();
        assert_eq!(slots.len(), capacity);
        bufs.into_iter().for_each(|buf| cache.free(buf));
        cache.flush();
        assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn memory_comes_when_it_is_needed() {
    for (buffers, carved) in [(1 << 30, RUN), (80 * RUN_SHARE, 80), (100, BULK)] {
        let pool = Pool::<u32>::new(buffers);
        assert_eq!(pool.shared.home().chunks.len(), 0);
        let _buf = pool.cache().alloc().unwrap();
        let home = pool.shared.home();
        assert_eq!((home.chunks.len(), home.carved), (1, carved), "{buffers}");
    }
}

#[test]
fn a_fresh_buffer_shows_no_stale_memory() {
    let pool = Pool::<u32>::new(100);
    let mut cache = pool.cache();
    let bufs: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
    for mut buf in bufs {
        assert!(buf.set_headroom(0));
        assert!(buf.spare_mut().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn the_last_buffer_back_is_the_next_out() {
    let pool = Pool::<u32>::new(100);
    let mut cache = pool.cache();
    let (first, second) = (cache.alloc().unwrap(), cache.alloc().unwrap());
    let slots = (first.slot(), second.slot());
    cache.free(first);
    cache.free(second);
    assert_eq!(cache.alloc().unwrap().slot(), slots.1);
}

#[test]
fn a_cache_keeps_a_bounded_number() {
    let pool = Pool::<u32>::new(1000);
    let mut cache = pool.cache();
    let bufs: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
    bufs.into_iter().for_each(|buf| cache.free(buf));
    assert!(cache.slots.len() <= CACHE_MAX && pool.in_use() <= CACHE_MAX);
}

#[test]
fn a_buffer_of_another_pool_goes_home_to_its_own() {
    let (ours, theirs) = (Pool::<u32>::new(10), Pool::<u32>::new(10));
    let (mut cache, mut foreign) = (ours.cache(), theirs.cache());
    let mut packet = cache.alloc().unwrap();
    packet.push_frag(foreign.alloc().unwrap());
    foreign.flush();
    assert_eq!(theirs.in_use(), 1);
    cache.free(packet);
    assert_eq!(theirs.in_use(), 0);
    cache.flush();
    assert_eq!(ours.in_use(), 0);
}

#[test]
fn the_memory_goes_with_the_last_of_handles_caches_and_buffers() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let pool = Pool::<u32>::new(10);
        let shared = Arc::downgrade(&pool.shared);
        let mut cache = pool.cache();
        let mut buf = cache.alloc();
        let (mut pool, mut cache) = (Some(pool), Some(cache));
        for part in order {
            assert!(shared.upgrade().is_some(), "{order:?}");
            match part {
                0 => drop(pool.take()),
                1 => drop(cache.take()),
                _ => drop(buf.take()),
            }
        }
        assert!(shared.upgrade().is_none(), "{order:?}");
    }
}

#[test]
fn a_long_chain_is_dropped_without_recursion() {
    let pool = Pool::<u32>::new(5000);
    let mut cache = pool.cache();
    let mut packet = cache.alloc().unwrap();
    while let Some(frag) = cache.alloc() {
        packet.push_frag(frag);
    }
    let small = thread::Builder::new().stack_size(64 << 10);
    small.spawn(move || drop(packet)).unwrap().join().unwrap();
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn buffers_may_be_dropped_by_other_threads_as_the_pool_goes() {
    let pool = Pool::<u32>::new(200);
    let shared = Arc::downgrade(&pool.shared);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (sender, receiver) = channel();
            let pool = pool.clone();
            scope.spawn(move || {
                let mut cache = pool.cache();
                drop(pool);
                for n in 0..2000 {
                    if let Some(mut buf) = cache.alloc() {
                        *buf = n;
                        buf.put(4).unwrap().copy_from_slice(&n.to_ne_bytes());
                        sender.send(buf).unwrap();
                    }
                }
            });
            scope.spawn(move || {
                for buf in receiver {
                    assert_eq!(buf.data(), buf.to_ne_bytes());
                }
            });
        }
        drop(pool);
    });
    assert!(shared.upgrade().is_none());
}

#[derive(Clone, Debug)]
enum Op {
    Alloc { cache: usize },
    Free { cache: usize, at: usize },
    Drop { at: usize },
    Chain { head: usize, frag: usize },
    Flush { cache: usize },
    NewCache { cache: usize },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..2_usize).prop_map(|cache| Op::Alloc { cache }),
        4 => (0..2_usize, any::<usize>()).prop_map(|(cache, at)| Op::Free { cache, at }),
        1 => any::<usize>().prop_map(|at| Op::Drop { at }),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(head, frag)| Op::Chain { head, frag }),
        1 => (0..2_usize).prop_map(|cache| Op::Flush { cache }),
        1 => (0..2_usize).prop_map(|cache| Op::NewCache { cache }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every buffer is in one place: with a user, in a cache, or at home.
    #[test]
    fn the_balance_holds(ops in vec(op(), 1..400)) {
        let pool = Pool::<u32>::new(150);
        let mut caches = [pool.cache(), pool.cache()];
        let mut packets: Vec<Buf<u32>> = Vec::new();
        let mut serial = 0;
        for op in ops {
            match op {
                Op::Alloc { cache } => {
                    let other = caches[1 - cache].slots.len();
                    let users: usize = packets.iter().map(Buf::buffers).sum();
                    let buf = caches[cache].alloc();
                    prop_assert_eq!(buf.is_none(), users + other == pool.capacity());
                    if let Some(mut buf) = buf {
                        prop_assert_eq!((*buf, buf.len(), buf.has_frags()), (0, 0, false));
                        serial += 1;
                        *buf = serial;
                        buf.put(4).unwrap().copy_from_slice(&serial.to_ne_bytes());
                        packets.push(buf);
                    }
                }
                Op::Free { cache, at } if !packets.is_empty() => {
                    let at = at % packets.len();
                    caches[cache].free(packets.swap_remove(at));
                }
                Op::Drop { at } if !packets.is_empty() => {
                    let at = at % packets.len();
                    drop(packets.swap_remove(at));
                }
                Op::Chain { head, frag } if packets.len() > 1 => {
                    let frag = packets.swap_remove(frag % packets.len());
                    let head = head % packets.len();
                    packets[head].push_frag(frag);
                }
                Op::Flush { cache } => caches[cache].flush(),
                Op::NewCache { cache } => caches[cache] = pool.cache(),
                _ => {}
            }
            let users: usize = packets.iter().map(Buf::buffers).sum();
            let cached: usize = caches.iter().map(|cache| cache.slots.len()).sum();
            prop_assert_eq!(pool.in_use(), users + cached);
            prop_assert_eq!(pool.shared.home().lease.is_some(), users + cached > 0);
            for packet in &packets {
                prop_assert_eq!(packet.data(), packet.to_ne_bytes());
            }
        }
    }
}
