//! Patterns as fnmatch(3) reads them, in so far as counters' names need it: `*` and `?`.

/// Whether all of `name` matches, capitals aside.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut in_name) = (0, 0);
    // Where to go on if the last `*` is to swallow one letter more.
    let mut retry = None;
    while let Some(letter) = name.get(in_name) {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, in_name));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || wanted.eq_ignore_ascii_case(letter) => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star, swallowed)) = retry else {
                    return false;
                };
                retry = Some((star, swallowed + 1));
                at = star + 1;
                in_name = swallowed + 1;
            }
        }
    }
    pattern.iter().skip(at).all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_as_fnmatch_does() {
        for (pattern, name, expected) in [
            ("IpInReceives", "IpInReceives", true),
            ("ipinreceives", "IpInReceives", true),
            ("Ip", "IpInReceives", false),
            ("Ip*", "IpInReceives", true),
            ("*", "", true),
            ("*", "anything", true),
            ("", "x", false),
            ("", "", true),
            ("*Errors", "UdpInErrors", true),
            ("*In*Err*", "UdpInCsumErrors", true),
            ("*In*Err", "UdpInCsumErrors", false),
            ("Udp?nErrors", "UdpInErrors", true),
            ("Udp?InErrors", "UdpInErrors", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
            ("**a**", "bab", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_long_time() {
        let pattern = "*a".repeat(40) + "b";
        assert!(!matches(&pattern, &"a".repeat(10_000)));
    }
}
