use super::*;

#[test]
fn the_table_is_in_the_order_of_the_enum_and_names_are_unique() {
    assert!(
        KNOBS
            .iter()
            .enumerate()
            .all(|(index, (knob, _))| **knob as usize == index)
    );
    assert!(
        CONF_KNOBS
            .iter()
            .enumerate()
            .all(|(index, (knob, _))| **knob as usize == index)
    );
    let mut names: Vec<_> = names().collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KNOBS.len() + TRIPLES.len() + CONF_KNOBS.len());
    assert!(
        TRIPLES
            .iter()
            .enumerate()
            .all(|(index, (triple, _))| *triple as usize == index)
    );
}

#[test]
fn one_byte_knobs_refuse_what_does_not_fit() {
    for name in [
        "net.ipv4.ip_early_demux",
        "net.ipv4.tcp_early_demux",
        "net.ipv4.udp_early_demux",
    ] {
        let mut sysctls = Sysctls::default();
        for good in ["0", "2", "255"] {
            sysctls.write(name, good).unwrap();
            assert_eq!(sysctls.read(name).unwrap(), good);
        }
        for bad in ["-1", "256", "", "on", "1 1", "0x1"] {
            assert!(
                matches!(sysctls.write(name, bad), Err(SysctlError::Invalid { .. })),
                "{bad}"
            );
            assert_eq!(sysctls.read(name).unwrap(), "255");
        }
    }
}

#[test]
fn ip_forward_sets_every_interface() {
    let mut sysctls = Sysctls::default();
    sysctls.add_interface(2, "tun0");
    sysctls.write("net.ipv4.ip_forward", "1").unwrap();
    assert_eq!(sysctls.conf(2, ConfKnob::V4Forwarding), 1);
    assert_eq!(sysctls.read("net.ipv4.conf.all.forwarding").unwrap(), "1");
    sysctls.write("net/ipv4/conf/tun0/forwarding", "0").unwrap();
    assert_eq!(sysctls.conf(2, ConfKnob::V4Forwarding), 0);
    assert_eq!(sysctls.read("net.ipv4.ip_forward").unwrap(), "1");
}

#[test]
fn an_interface_starts_with_the_defaults_of_its_time() {
    let mut sysctls = Sysctls::default();
    sysctls
        .write("net.ipv4.conf.default.rp_filter", "2")
        .unwrap();
    sysctls.add_interface(1, "eth0.5");
    sysctls
        .write("net.ipv4.conf.default.rp_filter", "0")
        .unwrap();
    assert_eq!(sysctls.read("net/ipv4/conf/eth0.5/rp_filter").unwrap(), "2");
    assert_eq!(sysctls.conf_max(1, ConfKnob::RpFilter), 2);
    sysctls.remove_interface(1);
    assert_eq!(sysctls.conf_max(1, ConfKnob::RpFilter), 0);
}

#[test]
fn udp_mem_is_three_numbers() {
    let mut sysctls = Sysctls::default();
    let name = "net.ipv4.udp_mem";
    assert_eq!(sysctls.read(name).unwrap(), "5544\t5544\t6336");
    for good in [[0, 0, 0], [1, 2, 2_147_483_647], [9, 8, 7]] {
        let text = good.map(|number: u32| number.to_string()).join(" ");
        sysctls.write(name, &text).unwrap();
        assert_eq!(sysctls.udp_mem(), good);
    }
    for bad in ["1 2", "1 2 3 4", "1 2 2147483648", "-1 2 3", "a b c"] {
        assert!(sysctls.write(name, bad).is_err(), "{bad}");
        assert_eq!(sysctls.udp_mem(), [9, 8, 7]);
    }
}

#[test]
fn a_port_range_is_two_ports_in_order() {
    let mut sysctls = Sysctls::default();
    let name = "net.ipv4.ip_local_port_range";
    assert_eq!(sysctls.read(name).unwrap(), "32768\t60999");
    sysctls.write(name, "1024 2048").unwrap();
    assert_eq!(sysctls.local_port_range(), (1024, 2048));
    for bad in ["0 5", "9 8", "5", "1 65536", "1 2 3"] {
        assert!(sysctls.write(name, bad).is_err(), "{bad}");
    }
}

#[test]
fn congestion_control_goes_by_name() {
    let mut sysctls = Sysctls::default();
    let name = "net.ipv4.tcp_congestion_control";
    assert_eq!(sysctls.read(name).unwrap(), "cubic");
    for known in ["reno", "bbr", "cubic"] {
        sysctls.write(name, known).unwrap();
        assert_eq!(sysctls.read(name).unwrap(), known);
    }
    for bad in ["vegas", "", "1", "CUBIC"] {
        assert!(sysctls.write(name, bad).is_err(), "{bad}");
    }
}

#[test]
fn what_congestion_control_there_is_can_only_be_read() {
    let mut sysctls = Sysctls::default();
    let name = "net.ipv4.tcp_available_congestion_control";
    let available = sysctls.read(name).unwrap();
    assert_eq!(available, "reno cubic bbr");
    for algorithm in available.split(' ') {
        sysctls
            .write("net.ipv4.tcp_congestion_control", algorithm)
            .unwrap();
    }
    assert_eq!(
        sysctls.write("net/ipv4/tcp_available_congestion_control", "reno"),
        Err(SysctlError::ReadOnly(name))
    );
    assert!(sysctls.list().contains(&(name.to_owned(), available)));
}

/// Found out by writing to Linux 6.18's own.
#[test]
fn knobs_of_tcp_take_what_linux_takes() {
    let mut sysctls = Sysctls::default();
    for (name, least, most) in [
        ("syn_retries", 1, 127),
        ("fin_timeout", 0, 8_589_934),
        ("keepalive_time", 1, 8_589_934),
        ("keepalive_intvl", 1, 8_589_934),
        ("keepalive_probes", 0, 255),
        ("timestamps", 0, 255),
        ("tw_reuse", 0, 2),
        ("ecn", 0, 2),
        ("early_retrans", 0, 4),
        ("reordering", 1, 300),
        ("recovery", 0, 255),
        ("min_rtt_wlen", 0, 86_400),
        ("min_snd_mss", 48, 65_535),
        ("probe_interval", 0, 17_179_869),
        ("rto_max_ms", 1_000, 120_000),
        ("pacing_ss_ratio", 0, 1_000),
    ] {
        let name = format!("net.ipv4.tcp_{name}");
        for good in [least, most] {
            sysctls.write(&name, &i64::to_string(&good)).unwrap();
            assert_eq!(sysctls.read(&name).unwrap(), good.to_string());
        }
        for bad in [least - 1, most + 1] {
            assert!(sysctls.write(&name, &bad.to_string()).is_err(), "{name}");
        }
    }
}
