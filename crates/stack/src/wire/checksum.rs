//! The Internet checksum (RFC 1071), whole and by difference (RFC 1624).

/// A running one's complement sum over 16-bit big-endian words.
///
/// ```
/// use forebay_stack::wire::Checksum;
///
/// let mut sum = Checksum::new();
/// sum.add_bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
/// assert_eq!(sum.finish(), !0xddf2);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Checksum {
    /// Sums of native-endian words: the one's complement sum may be taken in either byte order
    /// (RFC 1071 section 2 B) and is swapped once at the end.
    sum: u64,
    /// Whether an odd number of bytes was added so far.
    odd: bool,
}

impl Checksum {
    /// The empty sum.
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds bytes that follow those added before; chunks may have odd lengths.
    #[inline]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let mut chunk = fold(sum_words(bytes));
        if self.odd {
            chunk = chunk.swap_bytes();
        }
        self.odd ^= bytes.len() % 2 == 1;
        self.sum += u64::from(chunk);
    }

    /// Adds a 16-bit word at an even place.
    #[inline]
    pub fn add_u16(&mut self, word: u16) {
        self.sum += u64::from(word.to_be());
    }

    /// Adds a 32-bit word at an even place.
    #[inline]
    pub fn add_u32(&mut self, word: u32) {
        self.sum += u64::from(word.to_be());
    }

    /// The one's complement of the sum: the value of the checksum field.
    #[inline]
    pub fn finish(self) -> u16 {
        !u16::from_be(fold(self.sum))
    }

    /// Adds a 128-bit word at an even place: an IPv6 address.
    #[inline]
    pub fn add_u128(&mut self, word: u128) {
        let word = word.to_be();
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let (sum, carry) = (word as u64).overflowing_add((word >> 64) as u64);
        self.sum += (sum & 0xffff_ffff) + (sum >> 32) + u64::from(carry);
    }

    /// Whether the bytes added, checksum field included, sum up to all ones: a valid checksum.
    #[inline]
    pub fn is_valid(self) -> bool {
        is_all_ones(self.sum)
    }
}

/// Whether the checksum in an IPv4 header without options is right.
#[inline]
pub fn header_is_valid(header: &[u8; 20]) -> bool {
    let ([a, b], rest) = header.as_chunks::<8>() else {
        return false;
    };
    let rest = rest
        .first_chunk::<4>()
        .map_or(0, |rest| u32::from_ne_bytes(*rest));
    let add = |one: u64, other: u64| {
        let (sum, carry) = one.overflowing_add(other);
        // 2^64 is 1 in one's complement. (The sum of two that carries is no longer all ones.)
        sum + u64::from(carry)
    };
    let sum = add(u64::from_ne_bytes(*a), u64::from_ne_bytes(*b));
    is_all_ones(add(sum, rest.into()))
}

/// Whether a sum folds to 16 ones. A multiple of them does, since 2^16 is 1 modulo 2^16 - 1; but not
/// zero. By one multiplication: what gives back the quotient of a multiple gives more than any
/// quotient for all other numbers (Hacker's Delight, section 10-17).
#[inline]
fn is_all_ones(sum: u64) -> bool {
    const HIGHEST_QUOTIENT: u64 = u64::MAX / 0xffff;
    const INVERSE: u64 = HIGHEST_QUOTIENT.wrapping_neg();

    let quotient = sum.wrapping_mul(INVERSE);
    quotient.wrapping_sub(1) < HIGHEST_QUOTIENT
}

/// Whether `bytes` and words that sum up to `others`, in the machine's own byte order, sum up to all
/// ones: for few bytes, and an even number of them before those that may be odd in number.
#[inline]
pub(crate) fn is_valid_with(others: u64, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    // The last bytes once more, those that the words have had shifted out.
    let last = match bytes.last_chunk::<8>() {
        Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        _ => sum_of_rest(rest),
    };
    let mut sum = others;
    for word in words {
        let (more, carry) = sum.overflowing_add(u64::from_ne_bytes(*word));
        sum = more + u64::from(carry);
    }
    let (more, carry) = sum.overflowing_add(last.to_le());
    is_all_ones(more + u64::from(carry))
}

/// The checksum over `bytes`.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = Checksum::new();
    sum.add_bytes(bytes);
    sum.finish()
}

/// Updates `field` for a 16-bit word that changes from `old` to `new` (RFC 1624 equation 3).
#[inline]
pub fn update_u16(field: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!field) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits above")]
    let sum = sum as u16;
    !sum
}

/// Up to so many bytes are summed one word after the other: a vector's beginning and end take longer.
const SHORT: usize = 64;

#[inline]
fn sum_words(bytes: &[u8]) -> u64 {
    if bytes.len() <= SHORT {
        sum_of_few(bytes)
    } else {
        sum_of_many(bytes)
    }
}

/// Eight bytes at a time, carries added back in: 2^64 is 1 in one's complement.
#[inline]
fn sum_of_few(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = sum_of_rest(rest);
    for word in words {
        let (more, carry) = sum.overflowing_add(u64::from_ne_bytes(*word));
        sum = more + u64::from(carry);
    }
    (sum & 0xffff_ffff) + (sum >> 32)
}

/// Fewer than eight bytes: four, two and one of them, where there are so many.
#[inline]
fn sum_of_rest(rest: &[u8]) -> u64 {
    let (four, rest) = rest.as_chunks::<4>();
    let (two, one) = rest.as_chunks::<2>();
    let four = four.first().map_or(0, |word| u32::from_ne_bytes(*word));
    let two = two.first().map_or(0, |word| u16::from_ne_bytes(*word));
    let one = one.first().map_or(0, |byte| u16::from_ne_bytes([*byte, 0]));
    u64::from(four) + u64::from(two) + u64::from(one)
}

/// Any four bytes are two words, and 64 bits hold the sum of 2^32 of them.
fn sum_of_many(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let mut last = [0; 4];
    for (byte, of_rest) in last.iter_mut().zip(rest) {
        *byte = *of_rest;
    }
    sum + u64::from(u32::from_ne_bytes(last))
}

/// Adds the carries back in (RFC 1071 section 2 A), without a branch: first the upper half to the
/// lower, then the two halves of that to each other. Of a number and itself with its halves swapped,
/// the upper half of the sum is the sum of the halves with the carry of the lower one.
#[inline]
fn fold(sum: u64) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let (low, high) = (sum as u32, (sum >> 32) as u32);
    let (sum, carry) = low.overflowing_add(high);
    let sum = sum.wrapping_add(u32::from(carry));
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Word by word, as RFC 1071 section 1 describes it.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest! {
        #[test]
        fn equals_the_naive_sum_in_any_chunks(bytes: Vec<u8>, cuts in prop::collection::vec(0_usize..64, 0..6)) {
            let mut sum = Checksum::new();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (chunk, tail) = rest.split_at(cut.min(rest.len()));
                sum.add_bytes(chunk);
                rest = tail;
            }
            sum.add_bytes(rest);
            prop_assert_eq!(sum.finish(), naive(&bytes));
        }

        #[test]
        fn a_header_is_valid_if_it_sums_to_ones(
            mut header: [u8; 20],
            ones in 0_usize..20,
            is_mended: bool,
        ) {
            header[..ones].fill(0xff);
            if is_mended {
                header[10..12].fill(0);
                let sum = naive(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            let mut sum = Checksum::new();
            sum.add_bytes(&header);
            let expected = naive(&header) == 0 && header != [0; 20];
            prop_assert_eq!((header_is_valid(&header), sum.is_valid()), (expected, expected));
        }

        #[test]
        fn an_update_equals_a_new_sum(mut bytes in prop::collection::vec(any::<u8>(), 20), new: u16) {
            // A header with a checksum of its own never sums to zero (RFC 1624 section 3).
            bytes[0] = 0x45;
            let old_sum = checksum(&bytes);
            let old = u16::from_be_bytes([bytes[8], bytes[9]]);
            bytes[8..10].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update_u16(old_sum, old, new), checksum(&bytes));
        }
    }
}
