//! `[[traffic]]`: what the hosts at the far end of a wire send.

use toml::Spanned;

use super::problem::Problem;
use super::reader::Table;
use super::units::Net;

/// Generated traffic.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// The wire.
    pub(crate) device: Spanned<String>,
    /// Packets a second.
    pub(crate) rate: u32,
    pub(crate) seed: u64,
    /// Length of the IP packets in bytes: smallest and largest.
    pub(crate) sizes: (usize, usize),
    /// Networks that transit goes to.
    pub(crate) transit_to: Vec<Spanned<Net>>,
    /// Connected sockets that the stack opens for it, in each family.
    pub(crate) sockets: usize,
    pub(crate) mix: Mix,
}

/// How many packets of a kind there are among all of them: weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mix {
    /// To be forwarded.
    pub(crate) transit: u32,
    /// For connected UDP sockets.
    pub(crate) connected: u32,
    /// For an unconnected UDP socket.
    pub(crate) unconnected: u32,
    /// ICMP echo requests.
    pub(crate) ping: u32,
    /// Packets with a fault.
    pub(crate) malformed: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            transit: 60,
            connected: 20,
            unconnected: 10,
            ping: 5,
            malformed: 5,
        }
    }
}

/// Smallest and largest IP packet that can be asked for, in bytes: the smallest has an IPv6 and a
/// UDP header and eight bytes to say what it is, the largest fits into one buffer.
const SIZES: std::ops::RangeInclusive<u64> = 64..=1_500;

impl Traffic {
    pub(super) fn read(mut table: Table<'_, '_>) -> Result<Self, Problem> {
        let traffic = Self {
            device: table.required("device")?,
            rate: table.number("rate", 1..=10_000_000)?.unwrap_or(20_000),
            seed: table.number("seed", 0..=u64::MAX)?.unwrap_or(0),
            sizes: sizes(&mut table)?,
            transit_to: table.optional("transit_to")?.unwrap_or_default(),
            sockets: table.number("sockets", 1..=10_000)?.unwrap_or(16),
            mix: match table.value("mix") {
                Some(value) => Mix::read(Table::of("[traffic.mix]", value)?)?,
                None => Mix::default(),
            },
        };
        if traffic.transit_to.is_empty() && traffic.mix.transit > 0 {
            return Err(table
                .missing("transit_to")
                .help("networks that transit goes to: transit_to = [\"198.18.0.0/15\"]"));
        }
        table.finish()?;
        Ok(traffic)
    }
}

fn sizes(table: &mut Table<'_, '_>) -> Result<(usize, usize), Problem> {
    let smallest = table.number("min_size", SIZES)?.unwrap_or(64);
    let range = smallest as u64..=*SIZES.end();
    let largest = table.number("max_size", range)?;
    Ok((smallest, largest.unwrap_or(smallest.max(1_400))))
}

impl Mix {
    fn read(mut table: Table<'_, '_>) -> Result<Self, Problem> {
        let mut weight = |key| Ok(table.number(key, 0..=1_000_000)?.unwrap_or(0));
        let mix = Self {
            transit: weight("transit")?,
            connected: weight("connected")?,
            unconnected: weight("unconnected")?,
            ping: weight("ping")?,
            malformed: weight("malformed")?,
        };
        let span = table.span();
        table.finish()?;
        if mix.total() == 0 {
            return Err(Problem::new(
                span,
                "all weights are 0: nothing would be sent",
            ));
        }
        Ok(mix)
    }

    /// All weights together.
    pub(crate) fn total(&self) -> u32 {
        self.transit + self.connected + self.unconnected + self.ping + self.malformed
    }
}
