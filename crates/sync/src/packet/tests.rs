use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::slot::{FRAME, Slot};
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

#[test]
fn the_layout_is_as_documented() {
    type Meta = [u64; META_MAX / 8];
    assert_eq!((STRIDE / 64) % 2, 1);
    assert_eq!(CAPACITY, 1856);
    assert_eq!(size_of::<Option<Buf<Meta>>>(), size_of::<usize>());
    assert_eq!(std::mem::offset_of!(Slot<Meta>, meta), 24);
    let pool = Pool::<Meta>::new(2);
    let mut cache = pool.cache();
    let buf = cache.alloc().unwrap();
    assert_eq!(buf.slot().addr().get() % 64, 0);
    assert_eq!(
        buf.data().as_ptr().addr(),
        buf.slot().addr().get() + 128 + HEADROOM
    );
}

#[test]
fn buffers_and_queues_move_between_threads() {
    fn send<T: Send>() {}
    send::<Buf<u32>>();
    send::<Queue<u32>>();
    send::<Cache<u32>>();
    send::<Pool<u32>>();
}

/// One buffer of the model: where its data starts, and the data.
#[derive(Clone, Debug)]
struct Plain {
    headroom: usize,
    data: Vec<u8>,
}

impl Plain {
    fn tailroom(&self) -> usize {
        FRAME - self.headroom - self.data.len()
    }
}

/// The naive model of a packet: its buffers.
#[derive(Debug)]
struct Model(Vec<Plain>);

impl Model {
    fn bytes(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|buf| buf.data.iter().copied())
            .collect()
    }

    fn truncate(&mut self, mut total: usize) {
        if total >= self.bytes().len() {
            return;
        }
        for (n, buf) in self.0.iter_mut().enumerate() {
            buf.data.truncate(total);
            total -= buf.data.len();
            if total == 0 {
                self.0.truncate(n + 1);
                return;
            }
        }
    }

    fn linearize(&mut self, n: usize) -> bool {
        let missing = n.saturating_sub(self.0[0].data.len());
        if n > self.bytes().len() || missing > self.0[0].tailroom() {
            return false;
        }
        for _ in 0..missing {
            while self.0[1].data.is_empty() {
                self.0.remove(1);
            }
            let byte = self.0[1].data.remove(0);
            self.0[1].headroom += 1;
            self.0[0].data.push(byte);
        }
        if missing > 0 && self.0[1].data.is_empty() {
            self.0.remove(1);
        }
        true
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    Pull(usize),
    Put(usize),
    Read(usize),
    SetLen(usize),
    SetHeadroom(usize),
    Truncate(usize),
    Linearize(usize),
    CopyTo(usize, usize),
    PushFrag(Vec<usize>),
    TakeFrags,
    DropHead,
    Flip,
}

/// Lengths of interest: small ones, and those near a buffer's bounds.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..40_usize,
        0..6000_usize,
        CAPACITY - 2..CAPACITY + 3,
        FRAME - 2..FRAME + 3
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => length().prop_map(Op::Push),
        1 => length().prop_map(Op::Pull),
        1 => length().prop_map(Op::Put),
        1 => length().prop_map(Op::Read),
        1 => length().prop_map(Op::SetLen),
        1 => length().prop_map(Op::SetHeadroom),
        1 => length().prop_map(Op::Truncate),
        2 => length().prop_map(Op::Linearize),
        2 => (length(), length()).prop_map(|(offset, len)| Op::CopyTo(offset, len)),
        4 => vec(0..CAPACITY, 1..4).prop_map(Op::PushFrag),
        1 => Just(Op::TakeFrags),
        1 => Just(Op::DropHead),
        1 => Just(Op::Flip),
    ]
}

/// Bytes that differ from call to call.
fn pattern(seed: &mut u8, n: usize) -> Vec<u8> {
    *seed = seed.wrapping_add(101);
    (0..n).map(|i| seed.wrapping_add((i % 251) as u8)).collect()
}

fn check(buf: &Buf<u32>, model: &Model) -> Result<(), TestCaseError> {
    let head = &model.0[0];
    prop_assert_eq!(buf.data(), &head.data);
    prop_assert_eq!(
        (buf.len(), buf.is_empty()),
        (head.data.len(), head.data.is_empty())
    );
    prop_assert_eq!(
        (buf.headroom(), buf.tailroom()),
        (head.headroom, head.tailroom())
    );
    prop_assert!(
        buf.chunks()
            .eq(model.0.iter().map(|plain| plain.data.as_slice()))
    );
    prop_assert_eq!(buf.total_len(), model.bytes().len());
    prop_assert_eq!(
        (buf.buffers(), buf.has_frags()),
        (model.0.len(), model.0.len() > 1)
    );
    prop_assert_eq!(buf.truesize(), model.0.len() * STRIDE);
    prop_assert_eq!(**buf, 7, "the metadata is nobody's but the user's");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_packet_does_as_the_model(ops in vec(op(), 1..60)) {
        let pool = Pool::<u32>::new(1000);
        let mut cache = pool.cache();
        let mut buf = cache.alloc().unwrap();
        *buf = 7;
        let mut model = Model(vec![Plain { headroom: HEADROOM, data: Vec::new() }]);
        let mut seed = 0;
        for op in ops {
            let head = &mut model.0[0];
            match op {
                Op::Push(n) => {
                    let new = buf.push(n);
                    prop_assert_eq!(new.is_some(), n <= head.headroom);
                    if let Some(new) = new {
                        let bytes = pattern(&mut seed, n);
                        new.copy_from_slice(&bytes);
                        head.data.splice(..0, bytes);
                        head.headroom -= n;
                    }
                }
                Op::Pull(n) => {
                    let fits = n <= head.data.len();
                    prop_assert_eq!(buf.pull(n), fits);
                    if fits {
                        head.data.drain(..n);
                        head.headroom += n;
                    }
                }
                Op::Put(n) => {
                    let new = buf.put(n);
                    prop_assert_eq!(new.is_some(), n <= head.tailroom());
                    if let Some(new) = new {
                        let bytes = pattern(&mut seed, n);
                        new.copy_from_slice(&bytes);
                        head.data.extend(bytes);
                    }
                }
                Op::Read(n) => {
                    let spare = buf.spare_mut();
                    prop_assert_eq!(spare.len(), head.tailroom());
                    let bytes = pattern(&mut seed, n.min(spare.len()));
                    spare[..bytes.len()].copy_from_slice(&bytes);
                    head.data.extend(bytes);
                    prop_assert!(buf.set_len(head.data.len()));
                }
                Op::SetLen(n) => {
                    let fits = n <= FRAME - head.headroom;
                    prop_assert_eq!(buf.set_len(n), fits);
                    if fits {
                        let bytes = pattern(&mut seed, n);
                        buf.data_mut().copy_from_slice(&bytes);
                        head.data = bytes;
                    }
                }
                Op::SetHeadroom(n) => {
                    let fits = head.data.is_empty() && n <= FRAME;
                    prop_assert_eq!(buf.set_headroom(n), fits);
                    if fits {
                        head.headroom = n;
                    }
                }
                Op::Truncate(n) => {
                    buf.truncate(n);
                    model.truncate(n);
                }
                Op::Linearize(n) => prop_assert_eq!(buf.linearize(n), model.linearize(n)),
                Op::CopyTo(offset, len) => {
                    let mut out = vec![0; len];
                    let copied = buf.copy_to(offset, &mut out);
                    let all = model.bytes();
                    let from = offset.min(all.len());
                    let to = (from + len).min(all.len());
                    prop_assert_eq!(&out[..copied], &all[from..to]);
                }
                Op::PushFrag(lens) => {
                    let mut frags = None::<Buf<u32>>;
                    for len in lens {
                        let mut frag = cache.alloc().unwrap();
                        *frag = 7;
                        let data = pattern(&mut seed, len);
                        frag.put(len).unwrap().copy_from_slice(&data);
                        model.0.push(Plain { headroom: HEADROOM, data });
                        match &mut frags {
                            None => frags = Some(frag),
                            Some(first) => first.push_frag(frag),
                        }
                    }
                    buf.push_frag(frags.unwrap());
                }
                Op::TakeFrags => {
                    let frags = buf.take_frags();
                    let rest = Model(model.0.split_off(1));
                    prop_assert_eq!(frags.is_some(), !rest.0.is_empty());
                    if let Some(frags) = frags {
                        check(&frags, &rest)?;
                        cache.free(frags);
                    }
                }
                Op::DropHead => {
                    if let Some(frags) = buf.take_frags() {
                        buf = frags;
                        model.0.remove(0);
                    }
                }
                Op::Flip => {
                    buf.for_each_chunk_mut(|chunk| chunk.iter_mut().for_each(|byte| *byte ^= 0xff));
                    let all = model.0.iter_mut().flat_map(|plain| plain.data.iter_mut());
                    all.for_each(|byte| *byte ^= 0xff);
                }
            }
            check(&buf, &model)?;
        }
        let buffers = buf.buffers();
        cache.flush();
        prop_assert_eq!(pool.in_use(), buffers);
        drop(buf);
        prop_assert_eq!(pool.in_use(), 0);
    }

    /// Two queues against two `VecDeque`s: packets are pushed, popped, and
    /// spliced from one to the other.
    #[test]
    fn a_queue_does_as_a_deque(ops in vec((0..2_usize, 0..9_u32), 1..200)) {
        let pool = Pool::<u32>::new(1000);
        let mut cache = pool.cache();
        let mut queues = [Queue::new(), Queue::default()];
        let mut models: [VecDeque<(u32, usize)>; 2] = Default::default();
        for (serial, (which, what)) in (0..).zip(ops) {
            let [one, other] = &mut queues;
            let (queue, other) = if which == 0 { (one, other) } else { (other, one) };
            match what {
                0..4 => {
                    let mut packet = cache.alloc().unwrap();
                    *packet = serial;
                    for _ in 1..what {
                        packet.push_frag(cache.alloc().unwrap());
                    }
                    models[which].push_back((serial, packet.buffers()));
                    queue.push(packet);
                }
                4 | 5 => {
                    let packet = queue.pop();
                    let popped = packet.as_ref().map(|packet| (**packet, packet.buffers()));
                    prop_assert_eq!(popped, models[which].pop_front());
                    packet.into_iter().for_each(|packet| cache.free(packet));
                }
                6 => {
                    let mut popped = Vec::new();
                    queue.pop_many(3, &mut popped);
                    let model = &mut models[which];
                    let expected = model.drain(..model.len().min(3));
                    let seen = popped.iter().map(|packet| (**packet, packet.buffers()));
                    prop_assert!(seen.eq(expected));
                    popped.into_iter().for_each(|packet| cache.free(packet));
                }
                7 => {
                    let mut moved = std::mem::take(&mut models[1 - which]);
                    models[which].append(&mut moved);
                    queue.append(other);
                }
                _ => {
                    if let Some(meta) = queue.peek_mut() {
                        *meta += 1000;
                        models[which][0].0 += 1000;
                    }
                }
            }
            for (queue, model) in queues.iter().zip(&models) {
                let seen = queue.iter().map(|packet| (**packet, packet.buffers()));
                prop_assert!(seen.eq(model.iter().copied()));
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
                let buffers: usize = model.iter().map(|(_, buffers)| buffers).sum();
                prop_assert_eq!(queue.bytes(), buffers * STRIDE);
                prop_assert_eq!(queue.peek().map(|packet| **packet), model.front().map(|m| m.0));
            }
        }
        drop(queues);
        cache.flush();
        prop_assert_eq!(pool.in_use(), 0);
    }
}
