//! Sets of cores, as people write them in `rps_cpus`.

use core::fmt;

/// Most cores that packets can be steered to.
pub const MAX_CPUS: u16 = 255;

/// A set of cores. Written as Linux writes bitmaps: hexadecimal, in groups of 32 bits with commas
/// between them, the highest first (`"f"`, `"1,00000000"`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuMask {
    /// In ascending order.
    cpus: Box<[u16]>,
}

impl CpuMask {
    /// The set that a text describes. `None` for what is none, or names cores from
    /// [`MAX_CPUS`] up.
    ///
    /// ```
    /// use forebay_stack::steer::CpuMask;
    ///
    /// let mask = CpuMask::parse("1,00000003").unwrap();
    /// assert_eq!(mask.cpus(), [0, 1, 32]);
    /// assert_eq!(mask.to_string(), "1,00000003");
    /// assert!(CpuMask::parse("0x3").is_none());
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text
            .trim()
            .split(',')
            .map(parse_word)
            .collect::<Option<Vec<u32>>>()?;
        words.reverse();
        let bits = words.iter().zip(0_u16..).flat_map(|(word, group)| {
            let is_set = move |bit: &u16| word >> bit & 1 == 1;
            (0..32).filter(is_set).map(move |bit| group * 32 + bit)
        });
        let cpus: Box<[u16]> = bits.collect();
        let fits = words.len() <= 64 && cpus.iter().all(|cpu| *cpu < MAX_CPUS);
        fits.then_some(Self { cpus })
    }

    /// The cores of the set, in ascending order.
    pub fn cpus(&self) -> &[u16] {
        &self.cpus
    }
}

fn parse_word(text: &str) -> Option<u32> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && !text.is_empty() && text.len() <= 8)
        .then(|| u32::from_str_radix(text, 16).ok())
        .flatten()
}

impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.cpus.last().map_or(0, |cpu| cpu / 32);
        for group in (0..=last).rev() {
            let word = self
                .cpus
                .iter()
                .filter(|cpu| **cpu / 32 == group)
                .fold(0_u32, |word, cpu| word | 1 << (cpu % 32));
            if group == last {
                write!(f, "{word:x}")?;
            } else {
                write!(f, ",{word:08x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_as_linux_reads_them() {
        for (text, cpus, printed) in [
            ("0", &[][..], "0"),
            ("00", &[], "0"),
            ("1", &[0], "1"),
            ("3\n", &[0, 1], "3"),
            ("F", &[0, 1, 2, 3], "f"),
            ("80000000", &[31], "80000000"),
            ("1,00000000", &[32], "1,00000000"),
            ("1,0", &[32], "1,00000000"),
            ("00000000,00000003", &[0, 1], "3"),
        ] {
            let mask = CpuMask::parse(text).unwrap();
            assert_eq!(mask.cpus(), cpus, "{text:?}");
            assert_eq!(mask.to_string(), printed, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_mask_is_refused() {
        let highest = format!("80000000{}", ",00000000".repeat(7));
        let too_many = "0,".repeat(4_000) + "0";
        for text in [
            "",
            " ",
            "x",
            "0x3",
            "-1",
            "+1",
            "1,",
            ",1",
            "1,,1",
            "123456789",
            "1 2",
            &highest,
            &too_many,
        ] {
            assert_eq!(CpuMask::parse(text), None, "{text:?}");
        }
    }
}
