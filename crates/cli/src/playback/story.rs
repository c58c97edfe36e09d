//! What became of each packet of a capture.

use std::collections::BTreeMap;
use std::io;

use forebay::core::packet::Verdict;
use forebay::core::socket::SocketId;
use forebay::core::trace::{EarlyDemux, Seen, Story, Summary, Transport, drops_since};
use forebay::counters::Counter;
use forebay::drop::DropReason;

mod json;
mod route;
mod text;

pub(crate) use json::early_word;

use super::rig::{Rig, Sent};
use super::timeline::Timeline;
use super::words;
use super::{Capture, Frame};
use crate::numbers::grouped;
use route::route;
use text::in_words;

/// Nanoseconds: the longest gap between two packets. Nothing in the stack waits so long.
const LONGEST_GAP: u64 = 3_600_000_000_000;

/// Fragments that a datagram may have: with one more, all of them go.
const MAX_FRAGMENTS: u64 = 256;

/// So many of the packets that were sent meanwhile are named, and the rest counted.
const EXAMPLES: usize = 3;

/// Protocols whose errors quote what they are about, behind so many bytes.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const ICMP_HEADER: usize = 8;

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

/// Plays the whole capture, packet by packet; `hear` gets each story at once. The string says what
/// happened when whatever waited for more had waited long enough.
pub(crate) fn tell(
    rig: &mut Rig,
    capture: &Capture,
    mut hear: impl FnMut(Told) -> io::Result<()>,
) -> anyhow::Result<Option<String>> {
    let mut timeline = Timeline::new(LONGEST_GAP);
    for frame in &capture.frames {
        let meanwhile = let_time_pass(rig, timeline.played_at(frame.at));
        hear(match &frame.packet {
            Ok(bytes) => tell_packet(rig, frame, bytes, meanwhile)?,
            Err(why) => Told {
                number: frame.number,
                at: frame.at,
                fate: Fate::NotIp,
                packet: Err(why.to_string()),
                meanwhile,
            },
        })?;
    }
    let end = rig.elapsed().saturating_add(rig.time_out());
    Ok(let_time_pass(rig, end))
}

/// What happens by itself until `at`, if anything.
fn let_time_pass(rig: &mut Rig, at: u64) -> Option<String> {
    let before = rig.stack().inner().counters();
    let sent = rig.sent_until(at);
    let drops = drops_since(&before, &rig.stack().inner().counters());
    if drops.is_empty() && sent.is_empty() {
        return None;
    }
    let mut parts: Vec<String> = drops.iter().map(|drop| in_words(*drop)).collect();
    parts.extend(sent_in_words(&sent));
    Some(parts.join("; "))
}

/// What was sent; examples, if it is much.
fn sent_in_words(sent: &[Sent]) -> Vec<String> {
    let examples = sent.iter().take(EXAMPLES);
    let mut words: Vec<String> = examples
        .map(|sent| format!("sent {}", SentTold::new(sent)))
        .collect();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for sent in sent.iter().skip(EXAMPLES) {
        *kinds.entry(SentTold::new(sent).kind()).or_default() += 1;
    }
    words.extend(
        kinds
            .iter()
            .map(|(kind, count)| format!("sent {} more: {kind}", grouped(*count))),
    );
    words
}

fn tell_packet(
    rig: &mut Rig,
    frame: &Frame,
    bytes: &[u8],
    meanwhile: Option<String>,
) -> anyhow::Result<Told> {
    let summary = Summary::of(bytes);
    let packet = rig.packet(bytes)?;
    let can_wait = packet.truesize() <= rig.fragments_limit(bytes);
    let iif = rig.iif();
    let (stack, core, now) = rig.parts();
    let story = stack.inner().trace(core, now, iif, packet);
    // An answer to ourselves is on its way over the loopback.
    rig.advance(rig.elapsed());
    let sent: Vec<SentTold> = rig.sent().iter().map(SentTold::new).collect();
    let sockets = taken(rig, &story, bytes);
    let route = summary.and_then(|summary| route(rig, &summary, &story));
    let fate = Fate::of(&story, &sent, can_wait);
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

/// Who got something of it: mostly the socket of its flow. The others are asked only as long as
/// there is something to find, since a capture may have as many sockets as packets.
fn taken(rig: &Rig, story: &Story, packet: &[u8]) -> Vec<Taken> {
    let Some(seen) = story.routed.filter(|seen| seen.verdict == Verdict::Deliver) else {
        return Vec::new();
    };
    let read = |id: SocketId| {
        let (lens, error) = rig.read(id);
        let is_something = !lens.is_empty() || error.is_some();
        is_something.then(|| Taken {
            id,
            name: rig.socket_name(id),
            lens,
            error,
        })
    };
    let quoted = |seen: Seen| {
        let quote = usize::from(seen.l4_offset) + ICMP_HEADER;
        rig.sender_of(packet.get(quote..)?)
    };
    let of_flow = match seen.protocol {
        ICMP | ICMPV6 => quoted(seen),
        _ => rig.flow_socket(packet),
    };
    let mut taken: Vec<Taken> = of_flow.and_then(read).into_iter().collect();
    if taken.is_empty() {
        taken.extend(rig.services().iter().copied().filter_map(read));
        let others = rig.connected().iter().copied();
        taken.extend(others.take_while(|_| rig.has_unread()).filter_map(read));
    }
    taken
}

impl Fate {
    /// `can_wait` says whether reassembly would hold the packet, if it is a fragment.
    fn of(story: &Story, sent: &[SentTold], can_wait: bool) -> Self {
        let counted = |wanted: [Counter; 2]| -> u64 {
            let counters = story.counters.iter();
            let wanted = counters.filter(|(counter, _)| wanted.contains(counter));
            wanted.map(|(_, count)| count).sum()
        };
        let asked = counted([Counter::IpReasmReqds, Counter::Ip6ReasmReqds]);
        let done = counted([Counter::IpReasmOKs, Counter::Ip6ReasmOKs]);
        let failed = counted([Counter::IpReasmFails, Counter::Ip6ReasmFails]);
        // Fragments of other datagrams that made room are dropped along with the packet's story.
        let is_its_own = |(reason, count): &&(DropReason, u64)| match reason {
            DropReason::FragTimeout => false,
            DropReason::FragLimit if asked > 0 => {
                done == 0 && (!can_wait || *count > failed * MAX_FRAGMENTS)
            }
            _ => true,
        };
        if let Some((reason, _)) = story.drops.iter().find(is_its_own) {
            return match sent.iter().any(SentTold::is_refusal) {
                true => Self::Rejected(*reason),
                false => Self::Dropped(*reason),
            };
        }
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

    /// What it is, whoever it is for.
    fn kind(&self) -> String {
        let what = self.summary.map(|summary| match summary.transport {
            Transport::Icmp(kind, code) => words::icmp(summary.src.is_ipv6(), kind, code),
            _ => words::protocol(summary.protocol),
        });
        let what = what.unwrap_or_else(|| "no IP".to_owned());
        format!("{what}, by {}", self.interface)
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
