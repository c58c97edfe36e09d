use super::*;

#[test]
fn a_fresh_buffer_is_empty_with_headroom() {
    let pool = Pool::<u32>::new(1);
    let mut cache = pool.cache();
    let buf = cache.alloc().unwrap();
    assert_eq!(
        (buf.len(), buf.headroom(), buf.tailroom()),
        (0, HEADROOM, CAPACITY)
    );
    assert!(cache.alloc().is_none());
}
