//! What the hosts at the far ends have sent, and what has become of it.

use serde::Serialize;

macro_rules! tally {
    ($(#[doc = $what:literal] $count:ident,)+) => {
        /// Counts of packets.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub(crate) struct Tally {
            $(#[doc = $what] pub(crate) $count: u64,)+
        }

        impl Tally {
            /// What was counted since `earlier`.
            pub(crate) fn since(&self, earlier: &Self) -> Self {
                Self { $($count: self.$count.saturating_sub(earlier.$count),)+ }
            }
        }
    };
}

tally! {
    /// Sent to be forwarded.
    sent_transit,
    /// Sent to connected sockets.
    sent_connected,
    /// Sent to the unconnected socket.
    sent_unconnected,
    /// Echo requests sent.
    sent_ping,
    /// Sent with a fault.
    sent_malformed,
    /// Not sent, as the wire was full.
    refused,
    /// Forwarded packets that arrived at a far end.
    came_forwarded,
    /// Echo replies that arrived.
    came_echo_replies,
    /// ICMP errors that arrived.
    came_icmp_errors,
    /// Whatever else arrived.
    came_other,
    /// Datagrams that the connected sockets got.
    read_connected,
    /// Datagrams that the unconnected socket got.
    read_unconnected,
}

impl Tally {
    /// All that was sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent_transit
            + self.sent_connected
            + self.sent_unconnected
            + self.sent_ping
            + self.sent_malformed
    }
}
