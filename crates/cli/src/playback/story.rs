//! What became of each packet of a capture.

use forebay::core::packet::Verdict;
use forebay::core::socket::SocketId;
use forebay::core::trace::{EarlyDemux, Story, Summary, Transport, drops_since};
use forebay::counters::Counter;
use forebay::drop::DropReason;

mod json;
mod route;
mod text;

use super::rig::{Rig, Sent};
use super::{Capture, Frame};
use route::route;
use text::in_words;

/// Longer than any fragment is waited for (`net.ipv4.ipfrag_time`, 30 s, and IPv6's 60 s).
const TIME_OUT: u64 = 61_000_000_000;

/// The verdict that counts: what came of it in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// To a socket or a protocol of this host.
    Delivered,
    /// A fragment that waits for the others.
    Held,
    /// Sent on.
    Forwarded,
    /// Dropped in silence.
    Dropped(DropReason),
    /// Dropped, and the sender was told.
    Rejected(DropReason),
    /// No IP packet.
    NotIp,
}

/// A frame's story.
pub(crate) struct Told {
    pub(crate) number: usize,
    at: u64,
    pub(crate) fate: Fate,
    /// The packet's, if there is one.
    packet: Result<PacketTold, String>,
    /// What happened before it came, because time went by.
    meanwhile: Option<String>,
}

struct PacketTold {
    summary: Option<Summary>,
    len: usize,
    is_cut: bool,
    story: Story,
    route: Option<String>,
    sockets: Vec<Taken>,
    sent: Vec<SentTold>,
}

/// What a socket got.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Taken {
    id: SocketId,
    name: String,
    lens: Vec<usize>,
    error: Option<String>,
}

/// What the stack sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SentTold {
    interface: String,
    len: usize,
    summary: Option<Summary>,
}

/// Plays the whole capture, packet by packet. The last string says what happened when whatever
/// waited for more had waited long enough.
pub(crate) fn tell(
    rig: &mut Rig,
    capture: &Capture,
) -> anyhow::Result<(Vec<Told>, Option<String>)> {
    let mut told = Vec::with_capacity(capture.frames.len());
    let mut last = 0;
    for frame in &capture.frames {
        let meanwhile = let_time_pass(rig, frame.at);
        last = frame.at;
        told.push(match &frame.packet {
            Ok(bytes) => tell_packet(rig, frame, bytes, meanwhile)?,
            Err(why) => Told {
                number: frame.number,
                at: frame.at,
                fate: Fate::NotIp,
                packet: Err(why.to_string()),
                meanwhile,
            },
        });
    }
    let end = let_time_pass(rig, last.saturating_add(TIME_OUT));
    Ok((told, end))
}

/// What happens by itself until `at`, if anything.
fn let_time_pass(rig: &mut Rig, at: u64) -> Option<String> {
    let before = rig.stack().inner().counters();
    rig.advance(at);
    let drops = drops_since(&before, &rig.stack().inner().counters());
    let sent = rig.sent();
    if drops.is_empty() && sent.is_empty() {
        return None;
    }
    let mut parts: Vec<String> = drops.iter().map(|drop| in_words(*drop)).collect();
    parts.extend(
        sent.iter()
            .map(|sent| format!("sent {}", SentTold::new(sent))),
    );
    Some(parts.join("; "))
}

fn tell_packet(
    rig: &mut Rig,
    frame: &Frame,
    bytes: &[u8],
    meanwhile: Option<String>,
) -> anyhow::Result<Told> {
    let summary = Summary::of(bytes);
    let packet = rig.packet(bytes)?;
    let iif = rig.iif();
    let (stack, core, now) = rig.parts();
    let story = stack.inner().trace(core, now, iif, packet);
    // An answer to ourselves is on its way over the loopback.
    rig.advance(frame.at);
    let sent: Vec<SentTold> = rig.sent().iter().map(SentTold::new).collect();
    let sockets = taken(rig, &story, bytes);
    let route = summary.and_then(|summary| route(rig, &summary, &story));
    let fate = Fate::of(&story, &sent);
    Ok(Told {
        number: frame.number,
        at: frame.at,
        fate,
        packet: Ok(PacketTold {
            summary,
            len: bytes.len(),
            is_cut: frame.is_cut,
            story,
            route,
            sockets,
            sent,
        }),
        meanwhile,
    })
}

/// Who got something of it: mostly the socket of its flow, else whoever has something.
fn taken(rig: &Rig, story: &Story, packet: &[u8]) -> Vec<Taken> {
    let is_for_us = story
        .routed
        .is_some_and(|seen| seen.verdict == Verdict::Deliver);
    if !is_for_us {
        return Vec::new();
    }
    let read = |id: SocketId| {
        let (lens, error) = rig.read(id);
        let name = rig.socket_name(id);
        (!lens.is_empty() || error.is_some()).then_some(Taken {
            id,
            name,
            lens,
            error,
        })
    };
    match rig.flow_socket(packet).and_then(read) {
        Some(taken) => vec![taken],
        None => rig.all_sockets().into_iter().filter_map(read).collect(),
    }
}

impl Fate {
    fn of(story: &Story, sent: &[SentTold]) -> Self {
        if let Some((reason, _)) = story.drops.first() {
            return match sent.iter().any(SentTold::is_refusal) {
                true => Self::Rejected(*reason),
                false => Self::Dropped(*reason),
            };
        }
        let counted = |wanted: [Counter; 2]| -> u64 {
            let counters = story.counters.iter();
            let wanted = counters.filter(|(counter, _)| wanted.contains(counter));
            wanted.map(|(_, count)| count).sum()
        };
        let asked = counted([Counter::IpReasmReqds, Counter::Ip6ReasmReqds]);
        let done = counted([Counter::IpReasmOKs, Counter::Ip6ReasmOKs]);
        match story.routed.map(|seen| seen.verdict) {
            Some(Verdict::Forward) => Self::Forwarded,
            _ if asked > done => Self::Held,
            _ => Self::Delivered,
        }
    }

    /// The word for filters and for JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Delivered => "deliver",
            Self::Held => "hold",
            Self::Forwarded => "forward",
            Self::Dropped(_) => "drop",
            Self::Rejected(_) => "reject",
            Self::NotIp => "not-ip",
        }
    }

    /// Why it was dropped, if it was.
    pub(crate) fn reason(self) -> Option<DropReason> {
        match self {
            Self::Dropped(reason) | Self::Rejected(reason) => Some(reason),
            _ => None,
        }
    }
}

impl Told {
    /// What the early look for a socket came to.
    pub(crate) fn early_demux(&self) -> Option<EarlyDemux> {
        Some(self.packet.as_ref().ok()?.story.early_demux)
    }

    /// The sockets that got it.
    pub(crate) fn takers(&self) -> impl Iterator<Item = SocketId> {
        let sockets = self.packet.iter().flat_map(|packet| &packet.sockets);
        sockets.map(|taken| taken.id)
    }

    /// Whether the same came of the packet in another stack.
    pub(crate) fn same_outcome(&self, other: &Self) -> bool {
        let outcome = |told: &Self| {
            let packet = told.packet.as_ref().ok()?;
            let sockets: Vec<_> = packet
                .sockets
                .iter()
                .map(|taken| (taken.name.clone(), taken.lens.clone(), taken.error.clone()))
                .collect();
            Some((packet.story.drops.clone(), packet.sent.clone(), sockets))
        };
        self.fate == other.fate
            && self.meanwhile == other.meanwhile
            && outcome(self) == outcome(other)
    }
}

impl SentTold {
    fn new(sent: &Sent) -> Self {
        Self {
            interface: sent.interface.clone(),
            len: sent.bytes.len(),
            summary: Summary::of(&sent.bytes),
        }
    }

    /// Whether it tells a sender that its packet went no further.
    fn is_refusal(&self) -> bool {
        self.summary.is_some_and(|summary| match summary.transport {
            Transport::Reset(..) => true,
            Transport::Icmp(kind, _) if summary.src.is_ipv6() => kind < 128,
            Transport::Icmp(kind, _) => matches!(kind, 3 | 11 | 12),
            _ => false,
        })
    }
}
