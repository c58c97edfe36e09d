//! How much was moved in what time.

use std::time::Duration;

/// Datagrams, their bytes, and the time that they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) packets: u64,
    /// Of payload.
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
}

impl Amount {
    /// Nanoseconds for one; 0 if there were none.
    pub(crate) fn ns(&self) -> f64 {
        ratio(self.elapsed.as_secs_f64() * 1e9, self.packets as f64)
    }

    /// Packets in a second; 0 if there was no time.
    pub(crate) fn pps(&self) -> f64 {
        ratio(self.packets as f64, self.elapsed.as_secs_f64())
    }

    /// Mean payload in bytes, rounded down; 0 if there were none.
    pub(crate) fn payload(&self) -> u64 {
        self.bytes.checked_div(self.packets).unwrap_or(0)
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moved_is_nothing_a_second() {
        let nothing = Amount::default();
        assert_eq!(
            (nothing.ns(), nothing.pps(), nothing.payload()),
            (0.0, 0.0, 0)
        );
        let no_time = Amount {
            packets: 3,
            bytes: 10,
            ..nothing
        };
        assert_eq!(
            (no_time.ns(), no_time.pps(), no_time.payload()),
            (0.0, 0.0, 3)
        );
        let idle = Amount {
            elapsed: Duration::from_secs(1),
            ..nothing
        };
        assert_eq!((idle.ns(), idle.pps(), idle.payload()), (0.0, 0.0, 0));
    }
}
