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

impl Algorithm {
    /// As `net.ipv4.tcp_congestion_control` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}
