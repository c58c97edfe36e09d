//! What chunks took.

/// Nanoseconds a datagram, chunk by chunk, and what became of the datagrams.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    ns: Vec<f64>,
    pub(crate) sent: u64,
    pub(crate) read: u64,
}

impl Series {
    pub(crate) fn add(&mut self, ns: f64, sent: u64, read: u64) {
        self.ns.push(ns);
        self.sent += sent;
        self.read += read;
    }

    /// Median and interquartile range.
    pub(crate) fn summary(&self) -> (f64, f64) {
        let mut ns = self.ns.clone();
        ns.sort_by(f64::total_cmp);
        (
            quantile(&ns, 0.5),
            quantile(&ns, 0.75) - quantile(&ns, 0.25),
        )
    }
}

/// The median of the ratios of chunks that were measured in the same round.
pub(crate) fn median_of_ratios(of: &Series, to: &Series) -> f64 {
    let ratios = of.ns.iter().zip(&to.ns).map(|(of, to)| of / to);
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    quantile(&ratios, 0.5)
}

/// The mean of the middle half of the values: interrupts lengthen few batches by much.
pub(crate) fn middle_mean(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    let quarter = values.len() / 4;
    let middle = values.get(quarter..values.len() - quarter).unwrap_or(&[]);
    middle.iter().sum::<u64>() as f64 / middle.len().max(1) as f64
}

/// Linear between the two nearest values; they must be sorted.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = share * last as f64;
    let at = |index: usize| sorted[index.min(last)];
    let (low, high) = (at(place as usize), at(place as usize + 1));
    low + (high - low) * place.fract()
}
