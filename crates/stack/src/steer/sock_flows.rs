//! Where flows are read: the table that applications write and steering reads (Linux's
//! `rps_sock_flow_table`).

use core::sync::atomic::{AtomicU32, Ordering};

use forebay_sync::huge::ZeroedSlice;

use super::cpu_mask::MAX_CPUS;

/// Bits of an entry that say the core; the others are the hash's.
const CPU_BITS: u32 = 0xff;

/// Entries that are read to say how a table is used.
const LOOKED_AT: usize = 1 << 16;

const _: () = assert!(MAX_CPUS as u32 == CPU_BITS);

/// A word for each group of flows whose hashes have the same low bits: the flow that was read last,
/// by the high bits of its hash, and one more than the core that read it. 0 is nobody yet.
///
/// Written and read by any core, without order: an entry is a hint.
pub(crate) struct SockFlowTable {
    entries: ZeroedSlice<AtomicU32>,
    mask: u32,
}

impl SockFlowTable {
    /// A table of `entries`, a power of two up to 2^29.
    pub(crate) fn new(entries: u32) -> Self {
        Self {
            entries: ZeroedSlice::new(entries as usize),
            mask: entries - 1,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.mask + 1
    }

    /// A flow is read on a core. The line is written only when that is news: readers of flows share
    /// lines.
    #[inline]
    pub(crate) fn record(&self, hash: u32, cpu: u16) {
        let word = hash & !CPU_BITS | (u32::from(cpu) + 1) & CPU_BITS;
        if let Some(entry) = self.entry(hash)
            && entry.load(Ordering::Relaxed) != word
        {
            entry.store(word, Ordering::Relaxed);
        }
    }

    /// The core that a flow was read on last, unless another flow has taken its place since.
    #[inline]
    pub(crate) fn cpu_of(&self, hash: u32) -> Option<u16> {
        let word = self.entry(hash)?.load(Ordering::Relaxed);
        let is_the_flow = (word ^ hash) & !CPU_BITS == 0;
        let cpu = (word & CPU_BITS) as u16;
        cpu.checked_sub(1).filter(|_| is_the_flow)
    }

    /// How many entries are in use.
    pub(crate) fn used(&self) -> usize {
        let is_used = |entry: &&AtomicU32| entry.load(Ordering::Relaxed) != 0;
        self.entries.iter().filter(is_used).count()
    }

    /// How many entries say each core, by its number. In a table of more than [`LOOKED_AT`] entries
    /// that is an estimate: hashes are spread evenly, and nobody should wait while 2 GiB are read.
    pub(crate) fn used_by_cpu(&self) -> Vec<usize> {
        let mut counts = vec![0; MAX_CPUS.into()];
        for entry in self.entries.iter().take(LOOKED_AT) {
            let cpu = (entry.load(Ordering::Relaxed) & CPU_BITS) as usize;
            if let Some(count) = cpu.checked_sub(1).and_then(|cpu| counts.get_mut(cpu)) {
                *count += 1;
            }
        }
        let scale = self.entries.len().div_ceil(LOOKED_AT);
        counts.iter_mut().for_each(|count| *count *= scale);
        counts
    }

    #[inline]
    fn entry(&self, hash: u32) -> Option<&AtomicU32> {
        self.entries.get((hash & self.mask) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_found_on_every_core() {
        for cpus in [1, 2, 3, 4, 5, 64, MAX_CPUS] {
            let table = SockFlowTable::new(1);
            for cpu in 0..cpus {
                for hash in [1, 0xff, 0x100, 0x8000_0001, u32::MAX] {
                    assert_eq!(table.cpu_of(hash ^ 0x4000_0000), None);
                    table.record(hash, cpu);
                    assert_eq!(table.cpu_of(hash), Some(cpu));
                }
            }
        }
    }

    #[test]
    fn another_flow_in_the_same_entry_is_told_apart() {
        let table = SockFlowTable::new(1);
        table.record(0x1234_5600, 1);
        assert_eq!(table.cpu_of(0x1234_5600), Some(1));
        assert_eq!(table.cpu_of(0x9934_5600), None);
        table.record(0x9934_5600, 0);
        assert_eq!(table.cpu_of(0x1234_5600), None);
        assert_eq!(table.used(), 1);
    }

    #[test]
    fn a_table_says_which_cores_read() {
        let table = SockFlowTable::new(1_024);
        for hash in 0..300 {
            table.record(hash, if hash < 100 { 0 } else { 3 });
        }
        let counts = table.used_by_cpu();
        assert_eq!(counts.iter().sum::<usize>(), table.used());
        assert_eq!((counts[0], counts[1], counts[3]), (100, 0, 200));

        // All entries of a large table are of core 2; half of them are beyond what is looked at.
        let large = SockFlowTable::new(2 * LOOKED_AT as u32);
        (0..2 * LOOKED_AT as u32).for_each(|hash| large.record(hash, 2));
        assert_eq!(large.used_by_cpu()[2], large.used());
    }

    #[test]
    fn a_fresh_table_knows_no_flow() {
        let table = SockFlowTable::new(64);
        assert_eq!((table.len(), table.used()), (64, 0));
        assert!((0..1_000).all(|hash| table.cpu_of(hash).is_none()));
    }
}
