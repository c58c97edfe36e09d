//! `[[device]]`: where packets come from and go to.

use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use super::problem::Problem;
use super::reader::Table;
use super::units::{BitRate, Net, Percent};

/// The range of MTUs that an interface takes, in bytes.
const MTUS: std::ops::RangeInclusive<u64> = 68..=65_535;

/// A device, and the stack's addresses on it.
#[derive(Debug)]
pub(crate) struct Device {
    /// The interface's name, in the stack and (for TUN devices) in the kernel.
    pub(crate) name: Spanned<String>,
    pub(crate) kind: Kind,
    /// Largest IP packet, in bytes; none leaves it to the device.
    pub(crate) mtu: Option<u32>,
    pub(crate) addresses: Vec<Spanned<Net>>,
    pub(crate) impair: Option<Impair>,
}

/// What kind of device it is.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A TUN device of the kernel.
    Tun(Tun),
    /// The TUN device of the private network that `forebay exec` makes.
    Exec(Tun),
    /// A wire whose far end is in this process.
    Wire(Wire),
    /// Captures: one in, one out.
    Pcap(Pcap),
}

/// A TUN device, and how it looks from the other side.
#[derive(Debug)]
pub(crate) struct Tun {
    /// 1 to 256.
    pub(crate) queues: usize,
    /// Whether checksums and segmentation may be left to the other side.
    pub(crate) offload: bool,
    /// The kernel's addresses at its end, or the command's.
    pub(crate) peer_addresses: Vec<Spanned<Net>>,
}

/// A wire's far end.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The hosts at the far end, which `[[traffic]]` comes from.
    pub(crate) peer_addresses: Vec<Spanned<Net>>,
}

/// Captures to read and to write.
#[derive(Debug)]
pub(crate) struct Pcap {
    /// Packets that come in.
    pub(crate) read: Option<Spanned<PathBuf>>,
    /// Where packets that go out are written.
    pub(crate) write: Option<Spanned<PathBuf>>,
    /// How fast the capture is played.
    pub(crate) speed: Speed,
    /// Whether it begins again at its end.
    pub(crate) repeat: bool,
}

/// How fast a capture is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Speed {
    /// So many times as fast as it was recorded.
    Times(f64),
    /// As fast as it is taken.
    Max,
}

/// What happens to packets on their way, in both directions.
#[derive(Debug)]
pub(crate) struct Impair {
    pub(crate) seed: u64,
    pub(crate) loss: Percent,
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    pub(crate) reorder: Percent,
    pub(crate) duplicate: Percent,
    pub(crate) corrupt: Percent,
    pub(crate) rate: Option<BitRate>,
}

/// The words for [`Kind`].
#[derive(Clone, Copy)]
enum KindName {
    Tun,
    Exec,
    Wire,
    Pcap,
}

const KINDS: &[(&str, KindName)] = &[
    ("tun", KindName::Tun),
    ("wire", KindName::Wire),
    ("pcap", KindName::Pcap),
    ("exec", KindName::Exec),
];

impl Device {
    pub(super) fn read(mut table: Table<'_, '_>) -> Result<Self, Problem> {
        let kind = table.word("kind", KINDS)?;
        let device = Self {
            name: table.required("name")?,
            mtu: table.number("mtu", MTUS)?,
            addresses: table.optional("addresses")?.unwrap_or_default(),
            impair: match table.value("impair") {
                Some(value) => Some(Impair::read(Table::of("[device.impair]", value)?)?),
                None => None,
            },
            kind: match kind.ok_or_else(|| table.missing("kind"))? {
                KindName::Tun => Kind::Tun(Tun::read(&mut table)?),
                KindName::Exec => Kind::Exec(Tun::read(&mut table)?),
                KindName::Wire => Kind::Wire(Wire::read(&mut table)?),
                KindName::Pcap => Kind::Pcap(Pcap::read(&mut table)?),
            },
        };
        table.finish()?;
        device.check_name()?;
        Ok(device)
    }

    /// The kernel takes a `%d` in the name of a device for a number that it chooses: the device
    /// would have another name there than here.
    fn check_name(&self) -> Result<(), Problem> {
        let is_in_the_kernel = matches!(self.kind, Kind::Tun(_) | Kind::Exec(_));
        if is_in_the_kernel && self.name.get_ref().contains('%') {
            let expected = "a name without '%', in which the kernel would put a number";
            let found = format!("{:?}", self.name.get_ref());
            return Err(Problem::expected(self.name.span(), &found, expected).of_key("name"));
        }
        Ok(())
    }
}

impl Tun {
    fn read(table: &mut Table<'_, '_>) -> Result<Self, Problem> {
        Ok(Self {
            queues: table.number("queues", 1..=256)?.unwrap_or(1),
            offload: table.optional("offload")?.unwrap_or(true),
            peer_addresses: table.optional("peer_addresses")?.unwrap_or_default(),
        })
    }
}

impl Wire {
    fn read(table: &mut Table<'_, '_>) -> Result<Self, Problem> {
        Ok(Self {
            peer_addresses: table.optional("peer_addresses")?.unwrap_or_default(),
        })
    }
}

impl Pcap {
    fn read(table: &mut Table<'_, '_>) -> Result<Self, Problem> {
        let pcap = Self {
            read: table.optional("read")?,
            write: table.optional("write")?,
            speed: match table.value("speed") {
                Some(value) => Speed::read(value).map_err(|problem| problem.of_key("speed"))?,
                None => Speed::Times(1.0),
            },
            repeat: table.optional("loop")?.unwrap_or(false),
        };
        if pcap.read.is_none() && pcap.write.is_none() {
            let what = "a pcap device needs a file: `read`, `write` or both";
            return Err(Problem::new(table.span(), what));
        }
        Ok(pcap)
    }
}

impl Speed {
    fn read(value: &super::reader::Value<'_>) -> Result<Self, Problem> {
        super::reader::text(
            value,
            "\"max\", or how many times as fast: \"1x\", \"0.5x\"",
            |text| {
                if text == "max" {
                    return Some(Self::Max);
                }
                let times: f64 = text.strip_suffix('x')?.parse().ok()?;
                (times.is_finite() && times > 0.0).then_some(Self::Times(times))
            },
        )
    }
}

impl Impair {
    fn read(mut table: Table<'_, '_>) -> Result<Self, Problem> {
        let impair = Self {
            seed: table.number("seed", 0..=u64::MAX)?.unwrap_or(0),
            loss: table.optional("loss")?.unwrap_or_default(),
            delay: table.optional("delay")?.unwrap_or_default(),
            jitter: table.optional("jitter")?.unwrap_or_default(),
            reorder: table.optional("reorder")?.unwrap_or_default(),
            duplicate: table.optional("duplicate")?.unwrap_or_default(),
            corrupt: table.optional("corrupt")?.unwrap_or_default(),
            rate: table.optional("rate")?,
        };
        table.finish()?;
        Ok(impair)
    }
}
