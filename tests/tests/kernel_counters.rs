//! Counters have the kernel's names: who watches a host by nstat(8) or SNMP finds what he looks for.

use std::collections::BTreeSet;
use std::fs;

use forebay::counters::Counter;

/// What the kernel has and Forebay has not.
fn is_left_out(name: &str) -> bool {
    let is_knob = ["IpForwarding", "IpDefaultTTL"].contains(&name);
    let is_udplite = name.starts_with("UdpLite");
    // Messages once more, by the number of their type.
    let is_by_number = name.starts_with("IcmpMsg") || name.contains("Type");
    // One more count for every packet, of what others tell: received and sent with this or that
    // explicit congestion notification, and sent at all.
    let is_ecn = name.ends_with("ECTPkts") || name.contains("ECT") || name.ends_with("CEPkts");
    let is_sum = name.ends_with("OutTransmits");
    is_knob || is_udplite || is_by_number || is_ecn || is_sum
}

#[test]
fn every_counter_of_ip_icmp_and_udp_has_the_kernels_name() {
    let ours: BTreeSet<String> = Counter::ALL.iter().map(|it| it.name().to_owned()).collect();
    let kernels = kernel_names();
    assert!(kernels.contains("UdpInDatagrams") && kernels.contains("IpExtInOctets"));
    let is_wanted = |name: &&String| {
        let groups = ["Ip", "Icmp", "Udp"];
        groups.iter().any(|group| name.starts_with(group)) && !is_left_out(name)
    };
    let missing: Vec<_> = kernels.difference(&ours).filter(is_wanted).collect();
    assert!(missing.is_empty(), "{missing:?}");

    // And no other names, unless this kernel is an older one, or has no IPv6.
    let since_6_12 = [
        "IcmpOutRateLimitGlobal",
        "IcmpOutRateLimitHost",
        "Icmp6OutRateLimitHost",
    ];
    let is_unknown = |name: &&String| {
        let is_v6 =
            name.starts_with("Ip6") || name.starts_with("Icmp6") || name.starts_with("Udp6");
        let has_v6 = kernels.contains("Ip6InReceives");
        is_wanted(name) && !since_6_12.contains(&name.as_str()) && (has_v6 || !is_v6)
    };
    let unknown: Vec<_> = ours.difference(&kernels).filter(is_unknown).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// The names as nstat(8) puts them together.
fn kernel_names() -> BTreeSet<String> {
    let read = |file: &str| fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default();
    let mut names = BTreeSet::new();
    for file in ["snmp", "netstat"] {
        let text = read(file);
        // Each group has a line of names and one of values.
        for line in text.lines().step_by(2) {
            let (group, fields) = line.split_once(':').expect("a group");
            names.extend(
                fields
                    .split_whitespace()
                    .map(|field| format!("{group}{field}")),
            );
        }
    }
    let v6 = read("snmp6");
    names.extend(
        v6.lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned),
    );
    names
}
