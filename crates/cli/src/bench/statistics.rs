//! Medians and quartiles.

/// The median, and how far the middle half of the values lies apart.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// The first quartile.
    pub(super) low: f64,
    /// The interquartile range.
    pub(super) spread: f64,
}

impl Summary {
    /// Of any number of values; of none, zeros.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self {
            median: quantile(&values, 0.5),
            low: quantile(&values, 0.25),
            spread: quantile(&values, 0.75) - quantile(&values, 0.25),
        }
    }

    /// The third quartile.
    pub(super) fn high(&self) -> f64 {
        self.low + self.spread
    }
}

/// The mean of the middle half of the values: as exact as the mean, and untouched by the batches in
/// which an interrupt or another program had the processor.
pub(super) fn middle_mean(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    let quarter = values.len() / 4;
    let middle = values.get(quarter..values.len() - quarter).unwrap_or(&[]);
    middle.iter().sum::<u64>() as f64 / middle.len().max(1) as f64
}

/// The median of the ratios of values that were measured in the same round: what the machine does
/// slowly, such as changing its clock, hits both.
pub(super) fn ratio(of: &[f64], to: &[f64]) -> f64 {
    let ratios = of.iter().zip(to).map(|(of, to)| of / to);
    Summary::of(ratios).median
}

/// Linear between the two nearest values; they must be sorted.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = share * last as f64;
    let at = |index: usize| sorted.get(index.min(last)).copied().unwrap_or_default();
    let (low, high) = (at(place as usize), at(place as usize + 1));
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_quartiles() {
        let table: [(&[f64], f64, f64, f64); 4] = [
            (&[], 0.0, 0.0, 0.0),
            (&[7.0], 7.0, 7.0, 7.0),
            (&[4.0, 1.0, 3.0, 2.0], 1.75, 2.5, 3.25),
            (&[5.0, 1.0, 100.0, 3.0, 4.0], 3.0, 4.0, 5.0),
        ];
        for (values, low, median, high) in table {
            let summary = Summary::of(values.iter().copied());
            let found = (summary.low, summary.median, summary.high());
            assert_eq!(found, (low, median, high), "{values:?}");
            assert_eq!(summary.spread, high - low, "{values:?}");
        }
    }

    #[test]
    fn the_middle_mean_leaves_out_both_ends() {
        for (values, mean) in [
            (vec![], 0.0),
            (vec![7], 7.0),
            (vec![1, 2], 1.5),
            (vec![1_000_000, 10, 20, 0], 15.0),
        ] {
            assert_eq!(middle_mean(values.clone()), mean, "{values:?}");
        }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // The machine was slow in the second half.
        let (on, off) = ([10.0, 10.0, 30.0, 30.0], [20.0, 20.0, 60.0, 60.0]);
        assert_eq!(ratio(&on, &off), 0.5);
    }
}
