//! SipHash-1-3 over whole words: the keyed hash of every table that strangers fill, but for those of
//! sockets, which are asked for each packet ([`Flow::hash`](crate::demux::flow::Flow::hash)).
//!
//! A key that nobody outside knows keeps a stranger from choosing packets that all fall into one
//! bucket. One round a word and three at the end (Aumasson and Bernstein's fast variant) are what
//! Rust's own hash tables trust.

use core::hash::{BuildHasher, Hasher};

/// The secret of one stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key(pub(crate) [u64; 2]);

impl Key {
    /// The hash of `words` and up to seven bytes more: `tail` holds `tail_len` of them in its low
    /// bytes, the rest of it zero.
    #[inline]
    pub(crate) fn hash<const N: usize>(self, words: [u64; N], tail: u64, tail_len: usize) -> u64 {
        let mut state = State::new(self);
        for word in words {
            state.add(word);
        }
        state.finish(tail | ((N * 8 + tail_len) as u64) << 56)
    }
}

impl BuildHasher for Key {
    type Hasher = WordHasher;

    fn build_hasher(&self) -> WordHasher {
        WordHasher {
            state: State::new(*self),
            words: 0,
        }
    }
}

/// For the standard library's hash tables: each write is one word.
pub(crate) struct WordHasher {
    state: State,
    words: u64,
}

impl Hasher for WordHasher {
    fn write_u64(&mut self, word: u64) {
        self.state.add(word);
        self.words += 1;
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn finish(&self) -> u64 {
        self.state.clone().finish((self.words * 8) << 56)
    }
}

#[derive(Clone)]
struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline]
    fn new(Key([k0, k1]): Key) -> Self {
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline]
    fn add(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    fn finish(mut self, last: u64) -> u64 {
        self.add(last);
        self.v2 ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;

    proptest! {
        #[test]
        fn equals_the_published_function(k0: u64, k1: u64, words: [u64; 4], tail: [u8; 5]) {
            let mut oracle = SipHasher13::new_with_keys(k0, k1);
            for word in words {
                oracle.write(&word.to_le_bytes());
            }
            oracle.write(&tail);
            let mut low = [0; 8];
            low[..5].copy_from_slice(&tail);
            let ours = Key([k0, k1]).hash(words, u64::from_le_bytes(low), 5);
            prop_assert_eq!(ours, oracle.finish());
        }

        #[test]
        fn the_hasher_hashes_whole_words(k0: u64, k1: u64, words: Vec<u64>) {
            let mut oracle = SipHasher13::new_with_keys(k0, k1);
            let mut ours = Key([k0, k1]).build_hasher();
            for word in &words {
                oracle.write(&word.to_le_bytes());
                ours.write_u64(*word);
            }
            prop_assert_eq!(ours.finish(), oracle.finish());
        }
    }
}
