//! When packets are played.

/// Turns the times of a capture into those of the stack's clock: the same, but that no gap between
/// two packets is longer than what anything in the stack waits for. A capture whose times are
/// nonsense, or that is played very often, would be over the end of the clock else: 584 years.
pub(super) struct Timeline {
    longest: u64,
    before: u64,
    at: u64,
}

impl Timeline {
    /// From 0; no gap is longer than `longest` nanoseconds.
    pub(super) fn new(longest: u64) -> Self {
        Self {
            longest,
            before: 0,
            at: 0,
        }
    }

    /// When what the capture has at `at` is played.
    pub(super) fn played_at(&mut self, at: u64) -> u64 {
        let gap = at.saturating_sub(self.before).min(self.longest);
        self.before = self.before.max(at);
        // Never more than `at`, since no gap is.
        self.at = self.at.saturating_add(gap);
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_gaps_are_cut_and_short_ones_kept() {
        let mut timeline = Timeline::new(100);
        for (at, expected) in [
            (0, 0),
            (30, 30),
            (130, 130),
            (231, 230),
            (u64::MAX, 330),
            (u64::MAX, 330),
        ] {
            assert_eq!(timeline.played_at(at), expected, "{at}");
        }
    }
}
