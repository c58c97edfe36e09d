use super::*;

const RULES: Rules = Rules {
    rfc1337: false,
    invalid_ratelimit: Duration::from_millis(500),
};

/// Places where sequence numbers go round, or change their sign.
const BASES: [u32; 6] = [0, 1_000, 0x7fff_fffe, 0x8000_0000, u32::MAX - 1, u32::MAX];

fn secs(secs: u64) -> Instant {
    Instant::from_nanos(secs * 1_000_000_000)
}

fn entry(state: Ended, base: u32, clock: Option<OldClock>) -> TimeWait {
    TimeWait {
        clock,
        ..TimeWait::new(state, Seq(base), Seq(base.wrapping_mul(3)), 10_000)
    }
}

/// A segment `at` bytes behind what is expected.
fn seen(base: u32, at: i32, len: u32, flags: u8, timestamp: Option<u32>) -> Seen {
    let start = Seq(base.wrapping_add_signed(at));
    let control = u32::from(flags & FLAG_SYN != 0) + u32::from(flags & FLAG_FIN != 0);
    Seen {
        range: SeqRange {
            start,
            end: start + (len + control),
        },
        flags,
        timestamp,
    }
}

const ACK: u8 = FLAG_ACK;
const FIN: u8 = FLAG_FIN | FLAG_ACK;
const DROP: Verdict = Verdict::Drop(Dropped::Silently);

#[test]
fn segments_in_time_wait() {
    // Place, bytes, flags; the verdict, and whether the wait begins again.
    let cases = [
        ("the last acknowledgement", (0, 0, ACK), DROP, true),
        ("the FIN again", (-1, 0, FIN), Verdict::Ack, true),
        ("old data", (-100, 50, ACK), Verdict::Ack, true),
        ("data behind the end", (0, 5, ACK), Verdict::Ack, true),
        ("a reset that fits", (0, 0, FLAG_RST), Verdict::End, false),
        ("a reset that does not", (1, 0, FLAG_RST), DROP, false),
        ("an old SYN", (-5, 0, FLAG_SYN), Verdict::Ack, false),
        ("a SYN where we are", (0, 0, FLAG_SYN), Verdict::Ack, false),
        (
            "a SYN that acknowledges",
            (5, 0, FLAG_SYN | ACK),
            Verdict::Ack,
            true,
        ),
    ];
    for base in BASES {
        for (what, (at, len, flags), verdict, again) in cases {
            let mut entry = entry(Ended::TimeWait, base, None);
            let outcome = entry.on_segment(secs(1), &seen(base, at, len, flags, None), RULES);
            assert_eq!(outcome.verdict, verdict, "{what} at {base}");
            assert_eq!(outcome.stays, again.then_some(TIME_WAIT_LEN), "{what}");
            assert!(!outcome.is_paws);
        }
    }
}

#[test]
fn a_later_syn_begins_anew() {
    let clock = |recent| {
        Some(OldClock {
            recent,
            recent_at: 1,
            offset: 0,
        })
    };
    // Place, the last timestamp and the SYN's; whether it is a new connection (RFC 6191 section 2).
    let cases = [
        (1, None, None, true),
        (0, None, None, false),
        (-1, None, None, false),
        (-1, Some(10), Some(11), true),
        (-1, Some(10), Some(10), false),
        (1, Some(10), Some(10), true),
        // PAWS goes before the number.
        (1, Some(10), Some(9), false),
        (-1, Some(u32::MAX), Some(3), true),
        (-1, Some(0x7fff_ffff), Some(0x8000_0001), true),
        (-1, Some(10), None, false),
    ];
    for base in BASES {
        for (at, recent, value, is_new) in cases {
            let mut entry = entry(Ended::TimeWait, base, recent.and_then(clock));
            let expected = match entry.snd_nxt + 65_537 {
                Seq(0) => Seq(1),
                iss => iss,
            };
            let outcome = entry.on_segment(secs(2), &seen(base, at, 0, FLAG_SYN, value), RULES);
            let new = Verdict::NewConnection { min_iss: expected };
            assert_eq!(outcome.verdict == new, is_new, "{at} {recent:?} {value:?}");
        }
    }
}

#[test]
fn resets_are_ignored_where_rfc_1337_is_followed() {
    let rules = Rules {
        rfc1337: true,
        ..RULES
    };
    let mut entry = entry(Ended::TimeWait, 5, None);
    let outcome = entry.on_segment(secs(1), &seen(5, 0, 0, FLAG_RST, None), rules);
    assert_eq!((outcome.verdict, outcome.stays), (DROP, None));
}

#[test]
fn old_timestamps_show_duplicates() {
    let clock = OldClock {
        recent: 100,
        recent_at: 10,
        offset: 0,
    };
    let judge = |now, flags, value| {
        let mut entry = entry(Ended::TimeWait, 5, Some(clock));
        let outcome = entry.on_segment(secs(now), &seen(5, 0, 0, flags, Some(value)), RULES);
        (outcome.is_paws, outcome.verdict)
    };
    assert_eq!(judge(11, ACK, 99), (true, Verdict::Ack));
    assert_eq!(judge(11, ACK, 100), (false, DROP));
    assert_eq!(judge(11, FLAG_RST, 99), (true, DROP));
    // A reset that comes late, and anything after 24 days.
    assert_eq!(judge(71, FLAG_RST, 99), (false, Verdict::End));
    assert_eq!(judge(10 + 24 * 86_400, ACK, 99), (false, DROP));

    let mut entry = entry(Ended::TimeWait, 5, Some(clock));
    entry.on_segment(secs(20), &seen(5, 0, 0, ACK, Some(200)), RULES);
    let noted = entry.clock.expect("still");
    assert_eq!((noted.recent, noted.recent_at), (200, 20));
}

#[test]
fn answers_are_not_given_too_often() {
    let mut entry = entry(Ended::TimeWait, 5, None);
    let old = seen(5, -9, 4, ACK, None);
    let mut judge = |ms: u64| {
        let now = Instant::from_nanos(ms * 1_000_000);
        entry.on_segment(now, &old, RULES).verdict
    };
    let limited = Verdict::Drop(Dropped::RateLimited(Ended::TimeWait));
    assert_eq!(judge(0), Verdict::Ack);
    assert_eq!(judge(0), limited);
    assert_eq!(judge(499), limited);
    assert_eq!(judge(500), Verdict::Ack);
    assert_eq!(judge(501), limited);
}

#[test]
fn segments_in_fin_wait_2() {
    let cases = [
        ("the FIN", (0, 0, FIN), Verdict::Ack, Ended::TimeWait),
        (
            "a FIN with data",
            (0, 4, FIN),
            Verdict::Reset,
            Ended::FinWait2,
        ),
        (
            "a FIN with data that came",
            (-4, 4, FIN),
            Verdict::Ack,
            Ended::TimeWait,
        ),
        (
            "a FIN after a gap",
            (4, 0, FIN),
            Verdict::Reset,
            Ended::FinWait2,
        ),
        ("data", (0, 4, ACK), Verdict::Reset, Ended::FinWait2),
        ("an acknowledgement", (0, 0, ACK), DROP, Ended::FinWait2),
        ("old data", (-9, 4, ACK), Verdict::Ack, Ended::FinWait2),
        (
            "data beyond the window",
            (10_000, 4, ACK),
            Verdict::Ack,
            Ended::FinWait2,
        ),
        ("a reset", (9, 0, FLAG_RST), Verdict::End, Ended::FinWait2),
        (
            "a reset elsewhere",
            (10_001, 0, FLAG_RST),
            Verdict::Ack,
            Ended::FinWait2,
        ),
        ("a SYN", (9, 0, FLAG_SYN), Verdict::Reset, Ended::FinWait2),
        (
            "data without an acknowledgement",
            (0, 4, 0),
            DROP,
            Ended::FinWait2,
        ),
    ];
    for base in BASES {
        for (what, (at, len, flags), verdict, state) in cases {
            let mut entry = entry(Ended::FinWait2, base, None);
            let outcome = entry.on_segment(secs(1), &seen(base, at, len, flags, None), RULES);
            assert_eq!(
                (outcome.verdict, entry.state),
                (verdict, state),
                "{what} at {base}"
            );
            let is_over = state == Ended::TimeWait;
            assert_eq!(outcome.stays, is_over.then_some(TIME_WAIT_LEN), "{what}");
            if is_over {
                assert_eq!(entry.rcv_nxt, Seq(base) + 1);
            }
        }
    }
}

#[test]
fn windows_are_scaled() {
    let entry = TimeWait {
        rcv_wnd: 1 << 20,
        rcv_wscale: 7,
        ..entry(Ended::TimeWait, 0, None)
    };
    assert_eq!(entry.window(), 1 << 13);
    assert_eq!(
        TimeWait {
            rcv_wscale: 0,
            ..entry
        }
        .window(),
        u16::MAX
    );
}
