//! A capture that nobody captured: transit, and datagrams for sockets of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Capture, Frame};
use crate::daemon::udp_packet;
use crate::random::Random;

/// Packets of a mix.
const PACKETS: usize = 10_000;
/// Bytes of each, from the IP header on.
const SIZE: usize = 64;
/// Nanoseconds from one to the next.
const INTERVAL: u64 = 1_000;
/// Clients of this host, of either family.
const CLIENTS: usize = 50;
/// The service that they ask.
const PORT: u16 = 53;
/// Ports that hosts send from.
const EPHEMERAL: u16 = 32_768;

// Networks for documentation (RFC 5737, RFC 3849) and for benchmarks (RFC 2544, RFC 5180).
const HOST_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
const HOST_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 53);
const CLIENTS_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 0);
const CLIENTS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0);
const BEYOND_V4: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
const BEYOND_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0);

/// How many parts of it are in transit, and how many for this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mix {
    transit: u16,
    local: u16,
}

impl FromStr for Mix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected the parts in transit and for this host, as in 90:10";
        let (transit, local) = text.split_once(':').ok_or(expected)?;
        let part = |word: &str| word.parse().map_err(|_| expected);
        match (part(transit)?, part(local)?) {
            (0, 0) => Err(expected),
            (transit, local) => Ok(Self { transit, local }),
        }
    }
}

impl Mix {
    /// The same packets each time, IPv4 and IPv6 in turn.
    pub(super) fn capture(self) -> Capture {
        let mut random = Random::new(1);
        let parts = usize::from(self.transit) + usize::from(self.local);
        let mut local = PACKETS * usize::from(self.local) / parts;
        let mut frames = Vec::with_capacity(PACKETS);
        for index in 0..PACKETS {
            let is_v4 = index % 2 == 0;
            // So that in the end there are exactly so many, in places that nothing tells.
            let is_local = random.below(PACKETS - index) < local;
            let (src, dst) = if is_local {
                local -= 1;
                (client(is_v4, &mut random), host(is_v4))
            } else {
                (stranger(is_v4, &mut random), beyond(is_v4, &mut random))
            };
            frames.push(Frame {
                number: index + 1,
                at: INTERVAL * index as u64,
                is_cut: false,
                packet: Ok(udp_packet(src, dst, SIZE, &[])),
            });
        }
        Capture {
            name: format!("a mix of {}:{}", self.transit, self.local),
            frames,
            hosts: vec![HOST_V4.into(), HOST_V6.into()],
            fault: None,
        }
    }
}

fn host(is_v4: bool) -> SocketAddr {
    let addr: IpAddr = if is_v4 {
        HOST_V4.into()
    } else {
        HOST_V6.into()
    };
    (addr, PORT).into()
}

/// One of those who ask this host, each from a port of its own.
fn client(is_v4: bool, random: &mut Random) -> SocketAddr {
    let client = 1 + random.below(CLIENTS);
    let addr = nth(is_v4, CLIENTS_V4, CLIENTS_V6, client);
    (addr, EPHEMERAL + client as u16).into()
}

/// One of those whose packets pass, from any port.
fn stranger(is_v4: bool, random: &mut Random) -> SocketAddr {
    let addr = nth(is_v4, CLIENTS_V4, CLIENTS_V6, 1 + random.below(250));
    (addr, EPHEMERAL + random.below(28_000) as u16).into()
}

fn beyond(is_v4: bool, random: &mut Random) -> SocketAddr {
    (nth(is_v4, BEYOND_V4, BEYOND_V6, random.below(1 << 16)), 443).into()
}

/// An address of a network, by its number there.
fn nth(is_v4: bool, v4: Ipv4Addr, v6: Ipv6Addr, number: usize) -> IpAddr {
    if is_v4 {
        Ipv4Addr::from_bits(v4.to_bits() | number as u32).into()
    } else {
        Ipv6Addr::from_bits(v6.to_bits() | number as u128).into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay::core::trace::{Summary, Transport};

    use super::*;

    #[test]
    fn a_mix_is_two_parts() {
        for (text, transit, local) in [("90:10", 90, 10), ("0:1", 0, 1), ("1:0", 1, 0)] {
            assert_eq!(text.parse(), Ok(Mix { transit, local }));
        }
        for text in [
            "", "90", "90:", ":", "0:0", "-1:2", "1:2:3", "90/10", "70000:1",
        ] {
            assert!(text.parse::<Mix>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_parts_are_as_large_as_they_are_said_to_be() {
        for (text, expected) in [
            ("90:10", 1_000),
            ("0:1", PACKETS),
            ("1:0", 0),
            ("2:1", 3_333),
        ] {
            let capture = text.parse::<Mix>().expect(text).capture();
            let summaries: Vec<_> = capture
                .packets()
                .map(|(_, packet)| Summary::of(packet).expect("a header"))
                .collect();
            assert_eq!(summaries.len(), PACKETS);
            let local = summaries
                .iter()
                .filter(|summary| capture.hosts.contains(&summary.dst));
            assert_eq!(local.clone().count(), expected, "{text}");
            let flows: BTreeSet<_> = local
                .map(|summary| match summary.transport {
                    Transport::Ports(src, dst) => (summary.src, src, dst),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert!(flows.len() <= 2 * CLIENTS, "{}", flows.len());
        }
    }
}
