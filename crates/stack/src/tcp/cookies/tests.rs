use super::*;
use crate::wire::protocol;

const NUMBERS: [u32; 6] = [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX];

fn flow_v4(port: u16) -> Flow {
    let local = ([192, 0, 2, 1].into(), 80);
    Flow::new(protocol::TCP, local, ([198, 51, 100, 1].into(), port))
}

fn flow_v6() -> Flow {
    let addr = |last| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into();
    Flow::new(protocol::TCP, (addr(1), 80), (addr(2), 5_000))
}

fn secs(secs: u64) -> Instant {
    Instant::from_nanos(secs * 1_000_000_000)
}

fn cookies() -> Cookies {
    Cookies::new(Key([1, 2]))
}

#[test]
fn a_cookie_says_the_mss_class() {
    let v4 = [
        (0, 536),
        (535, 536),
        (536, 536),
        (1299, 536),
        (1300, 1300),
        (1439, 1300),
        (1440, 1440),
        (1459, 1440),
        (1460, 1460),
        (u16::MAX, 1460),
    ];
    let v6 = [
        (0, 1220),
        (1219, 1220),
        (1220, 1220),
        (1420, 1420),
        (1440, 1440),
        (8939, 1440),
        (8940, 8940),
        (u16::MAX, 8940),
    ];
    let cookies = cookies();
    for (flow, cases) in [(flow_v4(5_000), &v4[..]), (flow_v6(), &v6)] {
        for irs in NUMBERS.map(Seq) {
            for now in [secs(0), secs(59), secs(15_360)] {
                for (mss, class) in cases {
                    let iss = cookies.make(&flow, irs, *mss, now);
                    assert_eq!(cookies.check(&flow, iss, irs, now), Some(*class), "{mss}");
                }
            }
        }
    }
}

#[test]
fn a_cookie_is_good_for_a_minute_or_two() {
    // The count of minutes goes round after 256.
    for minute in [0, 1, 255, 256, 511] {
        let cookies = cookies();
        let flow = flow_v4(5_000);
        let made = secs(minute * 60 + 30);
        let iss = cookies.make(&flow, Seq(7), 1460, made);
        // Others are made all the time.
        let check = |now| {
            cookies.make(&flow_v4(1), Seq(7), 1460, now);
            cookies.check(&flow, iss, Seq(7), now)
        };
        for (secs_later, is_good) in [
            (0, true),
            (29, true),
            (30, true),
            (89, true),
            (90, false),
            (600, false),
        ] {
            let now = made + Duration::from_secs(secs_later);
            assert_eq!(check(now).is_some(), is_good, "{minute} {secs_later}");
        }
    }
}

#[test]
fn other_flows_numbers_and_secrets_have_no_use_for_it() {
    let cookies = cookies();
    let (flow, irs, now) = (flow_v4(5_000), Seq(u32::MAX), secs(100));
    let iss = cookies.make(&flow, irs, 1460, now);
    let others = Cookies::new(Key([1, 3]));
    others.make(&flow, irs, 1460, now);
    assert_eq!(others.check(&flow, iss, irs, now), None);
    let mut lucky = 0;
    for port in 0..4_000 {
        lucky += usize::from(cookies.check(&flow_v4(port), iss, irs, now).is_some());
    }
    for distance in 1..4_000_u32 {
        lucky += usize::from(cookies.check(&flow, iss, irs + distance, now).is_some());
        lucky += usize::from(
            cookies
                .check(&flow, iss + (distance << 2), irs, now)
                .is_some(),
        );
    }
    // Who guesses is right once in 2^29 times; here the keys are the same in each run.
    assert_eq!(lucky, 0);
}

#[test]
fn nobody_looks_for_cookies_where_none_are() {
    let cookies = cookies();
    assert!(!cookies.may_come(secs(0)));
    cookies.make(&flow_v4(1), Seq(1), 1460, secs(0));
    for (at, may) in [(0, true), (120, true), (121, false)] {
        assert_eq!(cookies.may_come(secs(at)), may, "{at}");
    }
}

#[test]
fn cookies_of_a_flow_grow_with_the_peer_s_numbers() {
    let cookies = cookies();
    let make = |irs, secs_later| cookies.make(&flow_v4(5_000), irs, 1460, secs(secs_later));
    for irs in NUMBERS.map(Seq) {
        let (first, next) = (make(irs, 0), make(irs + (1 << 25), 0));
        assert!(next.is_after(first));
        assert!(make(irs + (1 << 25), 60).is_after(first));
    }
}

#[test]
fn timestamps_carry_options() {
    for scale in (0..15).map(Some).chain([None]) {
        for (sack, ecn) in [(false, false), (false, true), (true, false), (true, true)] {
            let agreed = Agreed {
                window_scale: scale,
                sack,
                ecn,
            };
            for now in [
                0,
                1,
                63,
                64,
                5_000_000,
                0x7fff_ffff,
                u64::from(u32::MAX),
                1 << 32,
            ] {
                let value = agreed.to_timestamp(Instant::from_nanos(now * 1_000_000));
                assert_eq!(Agreed::from_timestamp(value), agreed);
                // Never ahead of the clock, and not far behind it.
                assert!((now as u32).wrapping_sub(value) < 1 << OPTION_BITS);
            }
        }
    }
}
