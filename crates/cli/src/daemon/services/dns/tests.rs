//! Queries and answers as bytes.

use std::sync::Arc;

use domain::base::UnknownRecordData;
use domain::base::name::Name;
use proptest::prelude::*;

use super::*;
use crate::config::{Config, ServiceKind};

const NAMES: &str = "\
[[service]]
kind = \"dns\"
listen = \"[::]:53\"
ttl = 300

[service.addresses]
\"www.Site.test\" = [\"192.0.2.1\", \"192.0.2.2\", \"2001:db8::1\"]

[service.texts]
\"site.test\" = [\"one\", \"two\"]
";

fn zone(text: &str) -> Arc<Zone> {
    let config = Config::parse("x.toml", text).expect("a good configuration");
    match config
        .services
        .into_iter()
        .next()
        .map(|service| service.kind)
    {
        Some(ServiceKind::Dns(zone)) => zone,
        other => panic!("{other:?}"),
    }
}

/// A query, with EDNS if a size is given.
fn query(name: &str, qtype: Rtype, udp_payload_size: Option<u16>) -> Vec<u8> {
    let mut query = MessageBuilder::new_vec();
    query.header_mut().set_id(0xbeef);
    query.header_mut().set_rd(true);
    let mut query = query.question();
    let name: Name<Vec<u8>> = name.parse().expect("a name");
    query.push((name, qtype)).expect("room");
    let mut query = query.additional();
    if let Some(size) = udp_payload_size {
        let pushed = query.opt(|opt| {
            opt.set_udp_payload_size(size);
            // As `dig +dnssec` asks; it is no part of the version.
            opt.set_dnssec_ok(true);
            Ok(())
        });
        pushed.expect("room");
    }
    query.finish()
}

fn ask(zone: &Zone, query: &[u8]) -> Message<Vec<u8>> {
    let answer = answer(zone, query).expect("an answer");
    let answer = Message::from_octets(answer).expect("a message");
    assert!(answer.header().qr());
    assert_eq!(answer.header().id(), 0xbeef);
    answer
}

/// The data of the records.
fn rdata(answer: &Message<Vec<u8>>) -> Vec<Vec<u8>> {
    let section = answer.answer().expect("a section");
    let records = section.limit_to::<UnknownRecordData<_>>().map(|record| {
        let record = record.expect("a record");
        assert_eq!(record.ttl().as_secs(), 300);
        record.data().data().to_vec()
    });
    records.collect()
}

#[test]
fn names_have_what_the_configuration_says() {
    let zone = zone(NAMES);
    let (v4, v6) = (|last| vec![192, 0, 2, last], "2001:db8::1");
    let v6: std::net::Ipv6Addr = v6.parse().expect("an address");
    let v6 = v6.octets().to_vec();
    let texts = || vec![b"\x03one".to_vec(), b"\x03two".to_vec()];
    let cases = [
        (
            "www.site.test",
            Rtype::A,
            Rcode::NOERROR,
            vec![v4(1), v4(2)],
        ),
        (
            "WWW.site.TEST",
            Rtype::AAAA,
            Rcode::NOERROR,
            vec![v6.clone()],
        ),
        (
            "www.site.test",
            Rtype::ANY,
            Rcode::NOERROR,
            vec![v4(1), v4(2), v6],
        ),
        ("www.site.test", Rtype::TXT, Rcode::NOERROR, vec![]),
        (
            "www.site.test",
            Rtype::from_int(65_000),
            Rcode::NOERROR,
            vec![],
        ),
        ("site.test", Rtype::TXT, Rcode::NOERROR, texts()),
        ("site.test", Rtype::A, Rcode::NOERROR, vec![]),
        // Nothing of its own, but there is something below it.
        ("test", Rtype::A, Rcode::NOERROR, vec![]),
        (".", Rtype::NS, Rcode::NOERROR, vec![]),
        ("mail.site.test", Rtype::A, Rcode::NXDOMAIN, vec![]),
        ("x.www.site.test", Rtype::A, Rcode::NXDOMAIN, vec![]),
        ("example", Rtype::A, Rcode::NXDOMAIN, vec![]),
    ];
    for (name, qtype, rcode, expected) in cases {
        let query = query(name, qtype, None);
        let answer = ask(&zone, &query);
        let header = answer.header();
        assert_eq!(header.rcode(), rcode, "{name} {qtype}");
        assert!(header.aa() && header.rd() && !header.ra() && !header.tc());
        assert_eq!(rdata(&answer), expected, "{name} {qtype}");
        // The question comes back as it was asked, upper case and all.
        assert_eq!(answer.as_slice()[12..query.len()], query[12..]);
        assert!(answer.opt().is_none());
    }
}

/// Answers with one text that are as long as said, to queries without EDNS.
fn zone_of_sizes(sizes: &[u16], truncate: bool) -> Arc<Zone> {
    let mut text = format!(
        "[[service]]\nkind = \"dns\"\nlisten = \"[::]:53\"\nttl = 300\ntruncate = {truncate}\n\
         [service.texts]\n"
    );
    for size in sizes {
        // Header, question, and the record in front of its data.
        let name = format!("t{size}.test");
        let len = usize::from(*size) - 12 - (name.len() + 2 + 4) - 12;
        // A byte in front of each string.
        let chars = len - len.div_ceil(256);
        text += &format!("\"{name}\" = [\"{}\"]\n", "x".repeat(chars));
    }
    zone(&text)
}

#[test]
fn answers_are_as_long_as_the_client_can_take() {
    let sizes = [60, 68, 69, 77, 512, 513, 1_232, 3_000];
    for truncate in [true, false] {
        let zone = zone_of_sizes(&sizes, truncate);
        for size in sizes {
            let name = format!("t{size}.test");
            let with_opt = size + 11;
            let cases = [
                (None, size, size <= 512),
                (Some(with_opt), with_opt, true),
                (Some(with_opt - 1), with_opt, with_opt <= 512),
                (Some(0), with_opt, with_opt <= 512),
                (Some(u16::MAX), with_opt, true),
            ];
            for (room, len, fits) in cases {
                let query = query(&name, Rtype::TXT, room);
                let answer = ask(&zone, &query);
                let is_whole = fits || !truncate;
                assert_eq!(answer.header().tc(), !is_whole, "{size} {room:?}");
                assert_eq!(answer.header_counts().ancount(), u16::from(is_whole));
                let expected = if is_whole {
                    usize::from(len)
                } else {
                    query.len()
                };
                assert_eq!(answer.as_slice().len(), expected, "{size} {room:?}");
                let opt = answer
                    .opt()
                    .map(|opt| (opt.udp_payload_size(), opt.version()));
                assert_eq!(opt, room.map(|_| (OURS, VERSION)));
            }
        }
    }
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let zone = zone(NAMES);
    let good = || query("www.site.test", Rtype::A, Some(1_232));
    let changed = |at: usize, byte: u8| {
        let mut query = good();
        query[at] = byte;
        query
    };
    let mut two_opts = good();
    two_opts[11] = 2;
    two_opts.extend_from_within(good().len() - 11..);
    let class = good().len() - OPT_LEN - 1;
    let cases = [
        ("opcode 4", changed(2, 0x20), Rcode::NOTIMP),
        ("no question", changed(5, 0), Rcode::FORMERR),
        ("two questions", changed(5, 2), Rcode::FORMERR),
        ("an answer that is not there", changed(7, 1), Rcode::FORMERR),
        ("cut short", good()[..20].to_vec(), Rcode::FORMERR),
        (
            "cut in the OPT record",
            good()[..40].to_vec(),
            Rcode::FORMERR,
        ),
        ("two OPT records", two_opts, Rcode::FORMERR),
        (
            "a name that points to itself",
            [&changed(5, 1)[..12], b"\xc0\x0c\0\x01\0\x01"].concat(),
            Rcode::FORMERR,
        ),
        ("class CH", changed(class, 3), Rcode::REFUSED),
        ("class ANY", changed(class, 255), Rcode::NOERROR),
    ];
    for (what, query, rcode) in cases {
        let answer = ask(&zone, &query);
        assert_eq!(answer.header().rcode(), rcode, "{what}");
        let expected = if rcode == Rcode::NOERROR { 2 } else { 0 };
        assert_eq!(answer.header_counts().ancount(), expected, "{what}");
    }

    // EDNS of a version to come (RFC 6891 section 6.1.3).
    let version = good().len() - 5;
    let answer = ask(&zone, &changed(version, 1));
    assert_eq!(answer.opt_rcode(), OptRcode::BADVERS);
    assert_eq!(answer.header_counts().ancount(), 0);

    // Neither what is no message nor what is an answer is answered.
    assert_eq!(super::answer(&zone, &good()[..11]), None);
    assert_eq!(super::answer(&zone, &changed(2, 0x80)), None);
}

proptest! {
    #[test]
    fn anything_may_come(
        noise in proptest::collection::vec(any::<u8>(), 0..100),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let zone = zone(NAMES);
        answer(&zone, &noise);
        let mut query = query("www.site.test", Rtype::A, Some(1_232));
        for (at, byte) in changes {
            *at.get_mut(&mut query) = byte;
        }
        let answer = answer(&zone, &query);
        prop_assert!(answer.is_none_or(|answer| (12..=1_232).contains(&answer.len())));
    }
}
