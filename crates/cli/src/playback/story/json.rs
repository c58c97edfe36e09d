//! Stories for programs.

use forebay::core::packet::Destination;
use forebay::core::trace::{EarlyDemux, NotTried};
use serde_json::{Map, Value, json};

use super::{PacketTold, Told};
use crate::playback::words;

impl Told {
    /// As an object.
    pub(crate) fn json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| {
            object.insert(key.to_owned(), value);
        };
        put("number", self.number.into());
        put("time", (self.at as f64 / 1e9).into());
        put("verdict", self.fate.word().into());
        if let Some(reason) = self.fate.reason() {
            put("reason", reason.name().into());
        }
        if let Some(meanwhile) = &self.meanwhile {
            put("meanwhile", meanwhile.as_str().into());
        }
        match &self.packet {
            Err(why) => put("not_ip", why.as_str().into()),
            Ok(packet) => packet.json(put),
        }
        Value::Object(object)
    }
}

impl PacketTold {
    fn json(&self, mut put: impl FnMut(&str, Value)) {
        if let Some(summary) = &self.summary {
            put("src", summary.src.to_string().into());
            put("dst", summary.dst.to_string().into());
            put("protocol", summary.protocol.into());
            put("ttl", summary.ttl.into());
        }
        put("len", self.len.into());
        if let Some(seen) = &self.story.validated {
            let ports = seen
                .ports
                .map(|(src, dst)| json!({ "src": src, "dst": dst }));
            let validate = json!({
                "len": seen.len,
                "l4_offset": seen.l4_offset,
                "protocol": seen.protocol,
                "ports": ports,
                "destination": destination(seen.destination),
                "fragment": seen.is_fragment,
                "options": seen.has_options,
            });
            put("validate", validate);
        }
        put("early_demux", early_word(self.story.early_demux).into());
        put("route", self.route.clone().into());
        let drops = self.story.drops.iter();
        let drops: Map<String, Value> = drops
            .map(|(reason, count)| (reason.name().to_owned(), (*count).into()))
            .collect();
        put("drops", drops.into());
        let sockets = self.sockets.iter().map(
            |taken| json!({ "socket": taken.name, "bytes": taken.lens, "error": taken.error }),
        );
        put("sockets", sockets.collect());
        let sent = self.sent.iter().map(|sent| {
            let what = sent.summary.as_ref().map(words::headline);
            json!({ "dev": sent.interface, "len": sent.len, "packet": what })
        });
        put("sent", sent.collect());
        let counters = self.story.counters.iter();
        let counters: Map<String, Value> = counters
            .map(|(counter, count)| (counter.name().to_owned(), (*count).into()))
            .collect();
        put("counters", counters.into());
    }
}

/// `hit`, `stale`, `miss`, or why it was not tried.
pub(crate) fn early_word(early: EarlyDemux) -> &'static str {
    match early {
        EarlyDemux::Hit(_) => "hit",
        EarlyDemux::Stale(_) => "stale",
        EarlyDemux::Miss => "miss",
        EarlyDemux::NotTried(NotTried::Decided) => "not tried: decided",
        EarlyDemux::NotTried(NotTried::NotOwn) => "not tried: not own",
        EarlyDemux::NotTried(NotTried::NoPorts) => "not tried: no ports",
        EarlyDemux::NotTried(NotTried::KnobOff(_)) => "not tried: knob off",
        EarlyDemux::NotTried(NotTried::NoConnectedSocket) => "not tried: no connected socket",
    }
}

fn destination(destination: Destination) -> &'static str {
    match destination {
        Destination::Own => "own",
        Destination::Transit => "transit",
        Destination::Multicast => "multicast",
        Destination::LimitedBroadcast => "broadcast",
    }
}
