//! What a device counts.

use std::ops::AddAssign;

/// Counters of one device since it was made; the names are those of Linux's `ip -s link`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceStats {
    /// Packets handed to the stack.
    pub rx_packets: u64,
    /// Their bytes, from the IP header on.
    pub rx_bytes: u64,
    /// Packets that came in good and were lost on the way to the stack: no buffer free, or lost on
    /// purpose.
    pub rx_dropped: u64,
    /// Frames that were no packets, by reason.
    pub bad: BadFrames,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes, from the IP header on.
    pub tx_bytes: u64,
    /// Packets lost because nobody takes them at the other end, or on purpose.
    pub tx_dropped: u64,
    /// Packets that the device refused.
    pub tx_errors: u64,
}

impl DeviceStats {
    pub(super) fn received(&mut self, bytes: usize) {
        self.rx_packets += 1;
        self.rx_bytes += bytes as u64;
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.tx_packets += 1;
        self.tx_bytes += bytes as u64;
    }
}

impl AddAssign for DeviceStats {
    fn add_assign(&mut self, other: Self) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.rx_dropped += other.rx_dropped;
        self.bad += other.bad;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.tx_dropped += other.tx_dropped;
        self.tx_errors += other.tx_errors;
    }
}

/// Why a frame is no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadFrame {
    /// It has no bytes.
    #[error("an empty frame")]
    Empty,
    /// The first four bits say neither 4 nor 6.
    #[error("the IP version is neither 4 nor 6")]
    Version,
    /// It is longer than the MTU and not to be segmented.
    #[error("longer than the MTU")]
    TooLong,
    /// The device left a checksum to be filled in at a place where none can be.
    #[error("a checksum to be filled in outside of the packet's payload")]
    Checksum,
    /// It is to be segmented in a way that does not fit its protocol or its length.
    #[error("segmentation that does not fit the packet")]
    Segmentation,
    /// The link header is cut off or carries no IP.
    #[error("no IP packet behind the link header")]
    NotIp,
}

impl BadFrame {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::Version,
        Self::TooLong,
        Self::Checksum,
        Self::Segmentation,
        Self::NotIp,
    ];
}

/// Counts of bad frames by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BadFrames([u64; BadFrame::ALL.len()]);

impl BadFrames {
    /// Frames refused for `reason`.
    pub fn get(&self, reason: BadFrame) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// All of them: Linux's `rx_errors`.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn count(&mut self, reason: BadFrame) {
        if let Some(count) = self.0.get_mut(reason as usize) {
            *count += 1;
        }
    }
}

impl AddAssign for BadFrames {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_count_of_its_own() {
        let mut bad = BadFrames::default();
        for (times, reason) in (1..).zip(BadFrame::ALL) {
            (0..times).for_each(|_| bad.count(reason));
        }
        for (times, reason) in (1..).zip(BadFrame::ALL) {
            assert_eq!(bad.get(reason), times, "{reason}");
        }
        assert_eq!(bad.total(), 21);
    }
}
