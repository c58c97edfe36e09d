//! Congestion control.

/// Which congestion control a connection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// RFC 5681, 6582.
    Reno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// Bottleneck bandwidth and round-trip propagation time.
    Bbr,
}
