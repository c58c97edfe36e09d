//! Packets as bytes, one behind the other.

use std::collections::VecDeque;

/// A first-in-first-out queue of packets that allocates nothing per packet.
#[derive(Default)]
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    lengths: VecDeque<usize>,
}

impl Ring {
    /// Puts the packet that `chunks` make up at the end.
    pub(super) fn push<'a>(&mut self, chunks: impl Iterator<Item = &'a [u8]>) {
        let before = self.bytes.len();
        for chunk in chunks {
            self.bytes.extend(chunk);
        }
        self.lengths.push_back(self.bytes.len() - before);
    }

    /// Takes the packet at the front, of which `take` sees all bytes, in up to two pieces.
    pub(super) fn pop<T>(&mut self, take: impl FnOnce([&[u8]; 2]) -> T) -> Option<T> {
        let len = self.lengths.pop_front()?;
        let (front, back) = self.bytes.as_slices();
        let (front, _) = front.split_at(len.min(front.len()));
        let (back, _) = back.split_at(len - front.len());
        let taken = take([front, back]);
        self.bytes.drain(..len);
        Some(taken)
    }

    /// Bytes that the queue is charged for: small packets are not free.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.lengths.len() * size_of::<usize>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gives_back_what_was_put_in(steps: Vec<Option<Vec<u8>>>) {
            let mut ring = Ring::default();
            let mut model = VecDeque::new();
            for step in steps {
                match step {
                    Some(packet) => {
                        ring.push(packet.chunks(3));
                        model.push_back(packet);
                    }
                    None => prop_assert_eq!(ring.pop(|pieces| pieces.concat()), model.pop_front()),
                }
                prop_assert_eq!(ring.is_empty(), model.is_empty());
            }
        }
    }
}
