use core::num::NonZeroU32;

use super::*;

fn id(slot: u32) -> SocketId {
    SocketId {
        slot,
        generation: NonZeroU32::MIN,
    }
}

fn claim(addr: &str, device: u32) -> PortClaim {
    let addr: IpAddr = addr.parse().expect("an address");
    PortClaim {
        addr,
        port: 80,
        device,
        dual_stack: addr.is_ipv6() && addr.is_unspecified(),
        reuse_addr: false,
        reuse_port: false,
    }
}

fn listeners() -> Listeners {
    Listeners::new(Key([1, 2]))
}

fn find(listeners: &Listeners, addr: &str, port: u16, iif: u32) -> Option<u32> {
    let addr = addr.parse().expect("an address");
    let chosen = listeners.lookup((addr, port), iif, u64::MAX)?;
    Some(chosen.slot)
}

#[test]
fn the_most_specific_listener_has_it() {
    let listeners = listeners();
    let any = PortClaim {
        port: 0,
        ..claim("::", 0)
    };
    listeners.add(&any, true, id(9)).expect("free");
    listeners.add(&claim("::", 0), true, id(1)).expect("free");
    listeners
        .add(&claim("0.0.0.0", 5), false, id(2))
        .expect("free");
    listeners
        .add(&claim("192.0.2.1", 0), false, id(3))
        .expect("free");
    listeners
        .add(&claim("2001:db8::1", 0), true, id(4))
        .expect("free");
    for (addr, port, iif, expected) in [
        ("192.0.2.1", 80, 1, 3),
        ("192.0.2.1", 80, 5, 3),
        ("192.0.2.2", 80, 1, 1),
        ("192.0.2.2", 80, 5, 2),
        ("2001:db8::1", 80, 1, 4),
        ("2001:db8::2", 80, 5, 1),
        ("192.0.2.1", 81, 1, 9),
        ("2001:db8::1", 81, 1, 9),
    ] {
        assert_eq!(
            find(&listeners, addr, port, iif),
            Some(expected),
            "{addr} {port} {iif}"
        );
    }
    listeners.remove(&claim("192.0.2.1", 0), id(3));
    assert_eq!(find(&listeners, "192.0.2.1", 80, 1), Some(1));
    listeners.remove(&claim("::", 0), id(1));
    assert_eq!(find(&listeners, "192.0.2.1", 80, 1), Some(9));
    listeners.remove(&any, id(9));
    assert_eq!(find(&listeners, "192.0.2.1", 80, 1), None);
}

#[test]
fn a_socket_of_the_packet_s_family_goes_first() {
    let listeners = listeners();
    // Beside each other by SO_REUSEPORT.
    let shared = |addr| PortClaim {
        reuse_port: true,
        ..claim(addr, 0)
    };
    listeners
        .add(&shared("0.0.0.0"), false, id(1))
        .expect("free");
    listeners.add(&shared("::"), true, id(2)).expect("free");
    assert_eq!(find(&listeners, "192.0.2.1", 80, 1), Some(1));
    assert_eq!(find(&listeners, "2001:db8::1", 80, 1), Some(2));
}

#[test]
fn an_ipv4_listener_on_every_port_takes_no_ipv6() {
    let listeners = listeners();
    let any = PortClaim {
        port: 0,
        ..claim("0.0.0.0", 0)
    };
    listeners.add(&any, false, id(1)).expect("free");
    assert_eq!(find(&listeners, "192.0.2.1", 7, 1), Some(1));
    assert_eq!(find(&listeners, "2001:db8::1", 7, 1), None);
}

#[test]
fn groups_share_what_comes() {
    let listeners = listeners();
    let member = PortClaim {
        reuse_port: true,
        ..claim("0.0.0.0", 0)
    };
    for nth in 0..4 {
        listeners.add(&member, false, id(nth)).expect("free");
    }
    let local = ([192, 0, 2, 1].into(), 80);
    let pick = |hash| listeners.lookup(local, 1, hash).expect("there");
    let mut hits = [0; 4];
    for nth in 0..1_000_u64 {
        let hash = Key([3, 4]).hash([nth], 0, 0);
        let chosen = pick(hash);
        assert_eq!(pick(hash), chosen);
        hits[chosen.slot as usize] += 1;
    }
    assert!(
        hits.iter().all(|hits| (200..300).contains(hits)),
        "{hits:?}"
    );
    assert_eq!([0, u64::MAX].map(pick), [id(0), id(3)]);
    listeners.remove(&member, id(0));
    assert_eq!(pick(0), id(1));
}

#[test]
fn one_takes_what_nobody_else_does() {
    let listeners = listeners();
    let any = |device, reuse_port| PortClaim {
        port: 0,
        reuse_port,
        ..claim("::", device)
    };
    for (at, (device, reuse_port, is_ipv6, fits)) in [
        (0, false, true, true),
        (0, false, true, false),
        (0, true, true, false),
        (0, false, false, true),
        (5, true, true, true),
        (5, true, true, true),
        (5, false, true, false),
    ]
    .into_iter()
    .enumerate()
    {
        let id = id(u32::try_from(at).expect("few"));
        let added = listeners.add(&any(device, reuse_port), is_ipv6, id);
        assert_eq!(added.is_ok(), fits, "{at}");
    }
}
