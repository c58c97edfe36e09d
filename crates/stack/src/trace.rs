//! The story of one packet: what each stage made of it.
//!
//! For people who ask why. The packet takes the ordinary way, through
//! [`receive_observed`](Stack::receive_observed) and in a batch of its own; the story is what the
//! stages wrote on it, and what was counted meanwhile.

mod summary;

pub use summary::{Summary, Transport};

use crate::core::Core;
use crate::counters::{Counter, Snapshot};
use crate::drop::DropReason;
use crate::packet::{Destination, Meta, Packet, PacketQueue, Verdict};
use crate::receive::{Observer, Stage};
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::sysctl::Knob;
use crate::time::Instant;
use crate::wire::protocol;

/// What became of a packet, stage by stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// What validation wrote down; `None` if the interface was down, so that nobody looked.
    pub validated: Option<Seen>,
    /// The early look for a socket.
    pub early_demux: EarlyDemux,
    /// What routing decided; its verdict is what was then carried out.
    pub routed: Option<Seen>,
    /// Packets dropped, by reason: this one, or fragments that had waited for it.
    pub drops: Vec<(DropReason, u64)>,
    /// Counters that went up, and by how much.
    pub counters: Vec<(Counter, u64)>,
}

/// A packet's metadata behind a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Bytes of the packet, without what padded its frame.
    pub len: usize,
    /// Where its transport header begins, in bytes.
    pub l4_offset: u16,
    /// Protocol of what is there.
    pub protocol: u8,
    /// Source and destination port, if they were read.
    pub ports: Option<(u16, u16)>,
    /// What kind of destination it has.
    pub destination: Destination,
    /// Whether it is a fragment.
    pub is_fragment: bool,
    /// Whether it has IPv4 options.
    pub has_options: bool,
    /// Whether a route was looked up for it and found.
    pub has_route: bool,
    /// The socket that early demux found.
    pub socket: Option<SocketId>,
    /// The verdict so far.
    pub verdict: Verdict,
}

/// What came of the early look for a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyDemux {
    /// It was not tried.
    NotTried(NotTried),
    /// No socket is connected so.
    Miss,
    /// A socket, and the route that its last packet was delivered by: none was looked up.
    Hit(SocketId),
    /// A socket, whose route may have changed since: one was looked up as ever.
    Stale(SocketId),
}

/// Why early demux did not look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTried {
    /// Validation had decided about the packet.
    Decided,
    /// The destination is none of our addresses: transit, a group or a broadcast.
    NotOwn,
    /// It is no TCP or UDP packet in one piece: ports are not known.
    NoPorts,
    /// This knob is off.
    KnobOff(&'static str),
    /// No socket is connected at all.
    NoConnectedSocket,
}

impl Stack {
    /// Takes in one packet by an interface, and tells its story. To be called while no other core
    /// receives: what another counts would be taken for this packet's.
    pub fn trace(&self, core: &mut Core, now: Instant, ifindex: u32, packet: Packet) -> Story {
        let before = self.counters();
        let mut recorder = Recorder::default();
        let mut queue = PacketQueue::new();
        queue.push(packet);
        self.receive_observed(core, now, ifindex, &mut queue, &mut recorder);
        let after = self.counters();

        let Recorder {
            validated,
            demuxed,
            routed,
        } = recorder;
        let not_tried = validated.map_or(Some(NotTried::Decided), |validated| {
            self.why_no_early_look(&validated)
        });
        let early_demux = match (
            demuxed.and_then(|seen| Some((seen.socket?, seen.verdict))),
            not_tried,
        ) {
            (Some((socket, Verdict::Deliver)), _) => EarlyDemux::Hit(socket),
            (Some((socket, _)), _) => EarlyDemux::Stale(socket),
            (None, Some(why)) => EarlyDemux::NotTried(why),
            (None, None) => EarlyDemux::Miss,
        };
        Story {
            validated,
            early_demux,
            routed,
            drops: drops_since(&before, &after),
            counters: counted_since(&before, &after),
        }
    }

    /// The packet's own reasons first, so that the story of transit is the same whatever the knob
    /// says.
    fn why_no_early_look(&self, packet: &Seen) -> Option<NotTried> {
        let udp = (
            Knob::UdpEarlyDemux,
            "net.ipv4.udp_early_demux",
            self.demux.early_key(),
        );
        let tcp = (
            Knob::TcpEarlyDemux,
            "net.ipv4.tcp_early_demux",
            self.tcp.connections.early_key(),
        );
        let (knob, name, key) = match packet.protocol {
            protocol::UDP => udp,
            _ => tcp,
        };
        let reader = self.domain.reader();
        let guard = reader.guard();
        let sysctls = self.sysctls.read(&guard);
        match packet {
            _ if packet.verdict != Verdict::Undecided => Some(NotTried::Decided),
            _ if packet.destination != Destination::Own => Some(NotTried::NotOwn),
            _ if packet.ports.is_none() => Some(NotTried::NoPorts),
            _ if !sysctls.is_on(Knob::IpEarlyDemux) => {
                Some(NotTried::KnobOff("net.ipv4.ip_early_demux"))
            }
            _ if !sysctls.is_on(knob) => Some(NotTried::KnobOff(name)),
            _ if !key.is_enabled() => Some(NotTried::NoConnectedSocket),
            _ => None,
        }
    }
}

/// Reasons for which packets were dropped between two snapshots.
pub fn drops_since(before: &Snapshot, after: &Snapshot) -> Vec<(DropReason, u64)> {
    let since = |(reason, count): (DropReason, u64)| (reason, count - before.dropped(reason));
    let drops = after.drops().map(since);
    drops.filter(|(_, count)| *count > 0).collect()
}

fn counted_since(before: &Snapshot, after: &Snapshot) -> Vec<(Counter, u64)> {
    let since = |(counter, count): (Counter, u64)| (counter, count - before.get(counter));
    let counters = after.counters().map(since);
    counters.filter(|(_, count)| *count > 0).collect()
}

/// Looks on.
#[derive(Debug, Default)]
struct Recorder {
    validated: Option<Seen>,
    demuxed: Option<Seen>,
    routed: Option<Seen>,
}

impl Observer for Recorder {
    fn after(&mut self, stage: Stage, batch: &[Packet]) {
        let place = match stage {
            Stage::Validate => &mut self.validated,
            Stage::EarlyDemux => &mut self.demuxed,
            Stage::Route => &mut self.routed,
            Stage::Act => return,
        };
        *place = batch
            .first()
            .map(|packet| Seen::new(packet.total_len(), packet));
    }
}

impl Seen {
    fn new(len: usize, meta: &Meta) -> Self {
        Self {
            len,
            l4_offset: meta.l4_offset,
            protocol: meta.protocol,
            ports: meta.has_ports.then_some((meta.src_port, meta.dst_port)),
            destination: meta.destination,
            is_fragment: meta.is_fragment,
            has_options: meta.has_options,
            has_route: meta.route.is_some(),
            socket: meta.socket,
            verdict: meta.verdict,
        }
    }
}

#[cfg(test)]
mod tests;
