//! Names for what stands in headers.

use forebay::core::trace::{Summary, Transport};

/// `10.0.0.2:4000 > 10.0.0.1:53 udp`.
pub(super) fn headline(summary: &Summary) -> String {
    let Summary { src, dst, .. } = summary;
    let what = protocol(summary.protocol);
    match summary.transport {
        Transport::Ports(from, to) => {
            let is_v6 = src.is_ipv6();
            format!(
                "{} > {} {what}",
                with_port(src, from, is_v6),
                with_port(dst, to, is_v6)
            )
        }
        Transport::Reset(from, to) => {
            let is_v6 = src.is_ipv6();
            format!(
                "{} > {} tcp reset",
                with_port(src, from, is_v6),
                with_port(dst, to, is_v6)
            )
        }
        Transport::Icmp(kind, code) => {
            format!("{src} > {dst} {}", icmp(src.is_ipv6(), kind, code))
        }
        Transport::Other => format!("{src} > {dst} {what}"),
    }
}

fn with_port(addr: &std::net::IpAddr, port: u16, is_v6: bool) -> String {
    if is_v6 {
        format!("[{addr}]:{port}")
    } else {
        format!("{addr}:{port}")
    }
}

/// The protocol's name, or its number.
pub(super) fn protocol(number: u8) -> String {
    let name = match number {
        0 => "hop-by-hop options",
        1 => "icmp",
        2 => "igmp",
        4 => "ipv4",
        6 => "tcp",
        17 => "udp",
        41 => "ipv6",
        43 => "routing header",
        44 => "fragment header",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmpv6",
        59 => "no next header",
        60 => "destination options",
        _ => return format!("protocol {number}"),
    };
    name.to_owned()
}

/// An ICMP or ICMPv6 message: its name, type and code.
pub(super) fn icmp(is_v6: bool, kind: u8, code: u8) -> String {
    let name = match (is_v6, kind, code) {
        (false, 0, _) | (true, 129, _) => "echo reply",
        (false, 8, _) | (true, 128, _) => "echo request",
        (false, 3, 0) | (true, 1, 0) => "no route",
        (false, 3, 1) | (true, 1, 3) => "host unreachable",
        (false, 3, 2) => "protocol unreachable",
        (false, 3, 3) | (true, 1, 4) => "port unreachable",
        (false, 3, 4) | (true, 2, _) => "packet too big",
        (false, 3, 13) | (true, 1, 1) => "prohibited",
        (true, 1, 2) => "beyond the scope of the source",
        (false, 3, _) | (true, 1, _) => "unreachable",
        (false, 5, _) | (true, 137, _) => "redirect",
        (false, 11, 1) | (true, 3, 1) => "reassembly time exceeded",
        (false, 11, _) | (true, 3, _) => "time exceeded",
        (false, 12, _) | (true, 4, _) => "parameter problem",
        (false, 13, _) => "timestamp request",
        (false, 14, _) => "timestamp reply",
        (true, 130, _) => "multicast listener query",
        (true, 131 | 143, _) => "multicast listener report",
        (true, 133, _) => "router solicitation",
        (true, 134, _) => "router advertisement",
        (true, 135, _) => "neighbour solicitation",
        (true, 136, _) => "neighbour advertisement",
        _ => "message",
    };
    let family = if is_v6 { "icmpv6" } else { "icmp" };
    format!("{family} {name} ({kind}/{code})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headlines_read_as_tcpdump_writes_them() {
        let summary = |addrs: [&str; 2], protocol, transport| Summary {
            src: addrs[0].parse().unwrap(),
            dst: addrs[1].parse().unwrap(),
            ttl: 64,
            protocol,
            is_fragment: false,
            transport,
        };
        let (v4, v6) = (["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]);
        for (summary, expected) in [
            (
                summary(v4, 17, Transport::Ports(1, 2)),
                "10.0.0.1:1 > 10.0.0.2:2 udp",
            ),
            (
                summary(v6, 6, Transport::Reset(1, 2)),
                "[fd00::1]:1 > [fd00::2]:2 tcp reset",
            ),
            (
                summary(v4, 1, Transport::Icmp(3, 3)),
                "10.0.0.1 > 10.0.0.2 icmp port unreachable (3/3)",
            ),
            (
                summary(v6, 58, Transport::Icmp(3, 0)),
                "fd00::1 > fd00::2 icmpv6 time exceeded (3/0)",
            ),
            (
                summary(v6, 99, Transport::Other),
                "fd00::1 > fd00::2 protocol 99",
            ),
        ] {
            assert_eq!(headline(&summary), expected);
        }
    }
}
