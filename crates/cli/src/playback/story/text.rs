//! Stories for people.

use std::fmt::{self, Write as _};

use forebay::core::packet::{Destination, Verdict};
use forebay::core::trace::{EarlyDemux, NotTried, Seen};
use forebay::drop::DropReason;

use super::{Fate, PacketTold, SentTold, Told};
use crate::playback::words;

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(meanwhile) = &self.meanwhile {
            writeln!(f, "meanwhile: {meanwhile}")?;
        }
        let (number, at) = (self.number, self.at as f64 / 1e9);
        write!(f, "#{number}  {at:.6} s  ")?;
        match &self.packet {
            Err(why) => writeln!(f, "no IP packet: {why}"),
            Ok(packet) => {
                match &packet.summary {
                    Some(summary) => {
                        let what = words::headline(summary);
                        write!(f, "{what}, {} bytes, ttl {}", packet.len, summary.ttl)?;
                    }
                    None => write!(f, "{} bytes without a whole IP header", packet.len)?,
                }
                writeln!(
                    f,
                    "{}",
                    if packet.is_cut {
                        " (cut by the capture)"
                    } else {
                        ""
                    }
                )?;
                packet.fmt_stages(f, self.fate)
            }
        }
    }
}

impl PacketTold {
    fn fmt_stages(&self, f: &mut fmt::Formatter<'_>, fate: Fate) -> fmt::Result {
        let story = &self.story;
        match &story.validated {
            Some(seen) if is_refused(seen.verdict) => {
                writeln!(f, "  validate     refused")?;
            }
            Some(seen) => writeln!(f, "  validate     {}", self.parsed(seen))?,
            None => writeln!(f, "  validate     not looked at: the interface is down")?,
        }
        let passed = story
            .validated
            .is_some_and(|seen| !is_refused(seen.verdict));
        if passed {
            writeln!(f, "  early demux  {}", self.early())?;
            writeln!(f, "  route        {}", self.routed())?;
        }
        writeln!(f, "  verdict      {}", self.verdict(fate))?;
        for taken in &self.sockets {
            let lens: Vec<_> = taken
                .lens
                .iter()
                .map(|len| format!("{len} bytes"))
                .collect();
            let told = taken.error.iter().map(|error| format!("is told: {error}"));
            let what: Vec<_> = lens.into_iter().chain(told).collect();
            writeln!(f, "  socket       {}: {}", taken.name, what.join(", "))?;
        }
        for sent in &self.sent {
            writeln!(f, "  sent         {sent}")?;
        }
        Ok(())
    }

    fn parsed(&self, seen: &Seen) -> String {
        let mut text = words::protocol(seen.protocol);
        if let Some((src, dst)) = seen.ports {
            let _ = write!(text, " {src} > {dst}");
        }
        let _ = write!(text, " at byte {}", seen.l4_offset);
        if seen.is_fragment {
            text.push_str(" of a fragment");
        }
        if seen.has_options {
            text.push_str(", behind options");
        }
        if let Some(padding) = self.len.checked_sub(seen.len).filter(|bytes| *bytes > 0) {
            let _ = write!(text, ", {padding} bytes of padding cut off");
        }
        text.push_str(match seen.destination {
            Destination::Own => "; to an address of this host",
            Destination::Transit => "; to another host",
            Destination::Multicast => "; to a group",
            Destination::LimitedBroadcast => "; to everybody on the link",
        });
        text
    }

    fn early(&self) -> String {
        match self.story.early_demux {
            EarlyDemux::Hit(_) => "hit: a connected socket, and its route still holds".to_owned(),
            EarlyDemux::Stale(_) => {
                "stale: a connected socket, whose route is to be looked up anew".to_owned()
            }
            EarlyDemux::Miss => "miss: no socket is connected so".to_owned(),
            EarlyDemux::NotTried(why) => match why {
                NotTried::Decided => "not tried: validation has decided".to_owned(),
                NotTried::NotOwn => "not tried: it is not for this host alone".to_owned(),
                NotTried::NoPorts => {
                    "not tried: no TCP or UDP header in one piece behind the IP header".to_owned()
                }
                NotTried::KnobOff(name) => format!("not tried: {name} is 0"),
                NotTried::NoConnectedSocket => "not tried: no socket is connected".to_owned(),
            },
        }
    }

    fn routed(&self) -> String {
        match (&self.route, self.story.early_demux) {
            (Some(route), _) => route.clone(),
            (None, EarlyDemux::Hit(_)) => "not looked up: the socket's".to_owned(),
            (None, _) => "none looked up".to_owned(),
        }
    }

    fn verdict(&self, fate: Fate) -> String {
        let own = fate.reason();
        let (mut its, mut others) = (String::new(), String::new());
        for drop in &self.story.drops {
            let words = in_words(*drop);
            match Some(drop.0) == own {
                true => its = words,
                false => others.push_str(&format!("; and dropped: {words}")),
            }
        }
        let decided = self.story.routed.map(|seen| seen.verdict);
        let word = match fate {
            Fate::NotIp => return String::new(),
            Fate::Held => "hold: the rest of its datagram is missing".to_owned(),
            Fate::Delivered | Fate::Forwarded => fate.word().to_owned(),
            Fate::Dropped(_) => format!("drop {its}"),
            Fate::Rejected(_) => format!("reject {its}"),
        };
        match decided {
            Some(Verdict::Deliver) if own.is_some() => {
                format!("deliver, and there {word}{others}")
            }
            Some(Verdict::Forward) if own.is_some() => {
                format!("forward, and there {word}{others}")
            }
            _ => format!("{word}{others}"),
        }
    }
}

fn is_refused(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Drop(_) | Verdict::Reject(_))
}

impl fmt::Display for SentTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, len, .. } = self;
        match &self.summary {
            Some(summary) => {
                let (what, ttl) = (words::headline(summary), summary.ttl);
                write!(f, "{what}, {len} bytes, ttl {ttl}, by {interface}")
            }
            None => write!(f, "{len} bytes by {interface}"),
        }
    }
}

/// A reason, and how often.
pub(super) fn in_words((reason, count): (DropReason, u64)) -> String {
    match count {
        1 => format!("{}: {}", reason.name(), reason.doc().trim()),
        _ => format!("{count} packets {}: {}", reason.name(), reason.doc().trim()),
    }
}
