//! What is accepted, and what is said about the rest.

use super::*;
use crate::daemon;

/// What is said about a configuration: by reading it or, if that has nothing to say, by carrying
/// it out.
fn verdict(text: &str) -> Result<(), String> {
    let config = Config::parse("x.toml", text).map_err(|error| error.to_string())?;
    daemon::rehearse(&config, &[]).map_err(|error| error.to_string())
}

const WIRE: &str = "[[device]]\nname = \"w0\"\nkind = \"wire\"\n";

#[test]
fn good_configurations_are_carried_out() {
    let cases = [
        String::new(),
        "[stack]\nname = \"edge\"\nbuffers = 1024\nreserve = 256\nseed = 0xbeef\n".to_owned(),
        "[sysctl]\n\"net.ipv4.ip_forward\" = 1\nnet.ipv4.ip_local_port_range = \"1024 2048\"\n"
            .to_owned(),
        format!("[sysctl]\nnet.ipv4.conf.w0.rp_filter = \"2\"\n{WIRE}"),
        format!("{WIRE}mtu = 9000\naddresses = [\"10.0.0.1/24\", \"fd00::1/64\"]\n"),
        format!("{WIRE}impair = {{ loss = \"1.5%\", delay = \"10ms\", rate = \"2.5gbit\" }}\n"),
        "[[device]]\nname = \"c\"\nkind = \"pcap\"\nread = \"a.pcap\"\nspeed = \"2x\"\nloop = true\n"
            .to_owned(),
        "[[device]]\nname = \"t\"\nkind = \"tun\"\nqueues = 4\noffload = false\n\
         peer_addresses = [\"10.0.0.2/24\"]\n"
            .to_owned(),
        format!(
            "{WIRE}addresses = [\"10.0.0.1/24\"]\n\
             [[route]]\nto = \"default\"\nvia = \"10.0.0.2\"\nmetric = 5\nsrc = \"10.0.0.1\"\n\
             [[route]]\nto = \"10.7.0.0/16\"\ndev = \"w0\"\nmtu = 1280\n\
             [[route]]\nto = \"10.8.0.0/16\"\ntype = \"blackhole\"\ntable = 100\n\
             [[route]]\nto = \"10.9.0.0/16\"\ndev = \"w0\"\nmtu = 0\ntable = 0\n\
             [[route]]\nto = \"0.0.0.0/0\"\ntype = \"local\"\ntable = 101\n\
             [[route]]\nto = \"::/0\"\ntype = \"unreachable\"\n\
             [[rule]]\nfrom = \"10.1.0.0/16\"\niif = \"w0\"\ntable = 100\npriority = 10\n\
             [[rule]]\ntype = \"prohibit\"\n"
        ),
        "[[service]]\nkind = \"echo\"\nlisten = \"[::]:7\"\n\
         [[service]]\nkind = \"daytime\"\nlisten = \"127.0.0.1:13\"\n"
            .to_owned(),
        "[[service]]\nkind = \"dns\"\nlisten = \"[::]:53\"\nttl = 0\ntruncate = false\n\
         addresses = { localhost = [\"127.0.0.1\", \"::1\"], \"none.test.\" = [] }\n\
         texts = { \"a\\\\.b.test\" = [\"\"] }\n"
            .to_owned(),
    ];
    for text in cases {
        assert_eq!(verdict(&text), Ok(()), "{text}");
    }
}

#[test]
fn bad_configurations_are_refused_with_their_place() {
    // What is wrong, where, and how what is said begins.
    let wire = |rest: &str| format!("{WIRE}{rest}");
    let cases = [
        // TOML itself
        ("[stack\n".to_owned(), "1:7: "),
        (
            "[stack]\nname = \"a\"\nname = \"b\"\n".to_owned(),
            "3:1: duplicate key",
        ),
        // tables and keys
        (
            "[stak]\n".to_owned(),
            "1:2: unknown key `stak` in the configuration",
        ),
        (
            "[stack]\nname = \"a/b\"\n".to_owned(),
            "2:8: `name`: found \"a/b\", expected 1 to 32 letters",
        ),
        (
            "[stack]\nbuffers = 1024\nreserve = 1024\n".to_owned(),
            "3:11: `reserve`: found 1024, expected a whole number from 0 to 1023",
        ),
        (
            "stack = 1\n".to_owned(),
            "1:9: found 1, expected a table [stack]",
        ),
        (
            "[device]\nname = \"w\"\n".to_owned(),
            "1:1: found a table, expected an array of tables [[device]]",
        ),
        (
            wire("adresses = []\n"),
            "4:1: unknown key `adresses` in [[device]]",
        ),
        (
            wire("queues = 2\n"),
            "4:1: unknown key `queues` in [[device]]",
        ),
        (
            "[[device]]\nkind = \"wire\"\n".to_owned(),
            "1:1: [[device]] needs the key `name`",
        ),
        (
            "[[device]]\nname = \"w\"\n".to_owned(),
            "1:1: [[device]] needs the key `kind`",
        ),
        // values
        (
            "[[device]]\nname = 5\nkind = \"wire\"\n".to_owned(),
            "2:8: `name`: found 5, expected a string",
        ),
        (
            "[[device]]\nname = \"w\"\nkind = \"wires\"\n".to_owned(),
            "3:8: `kind`: found \"wires\", expected one of: tun, wire, pcap, exec",
        ),
        (
            wire("mtu = 67\n"),
            "4:7: `mtu`: found 67, expected a whole number from 68 to 65535",
        ),
        (
            wire("mtu = -1\n"),
            "4:7: `mtu`: found -1, expected a whole number from 68 to 65535",
        ),
        (
            wire("mtu = \"big\"\n"),
            "4:7: `mtu`: found \"big\", expected a whole number",
        ),
        (
            wire("addresses = \"10.0.0.1/24\"\n"),
            "4:13: `addresses`: found \"10.0.0.1/24\", expected an array",
        ),
        (
            wire("addresses = [\"10.0.0.1/24\",\n  \"10.0.0.1/33\"]\n"),
            "5:3: `addresses`: found \"10.0.0.1/33\", expected an address and its prefix length",
        ),
        (
            wire("impair = { loss = \"101%\" }\n"),
            "4:19: `loss`: found \"101%\", expected a share",
        ),
        (
            wire("impair = { delay = \"10\" }\n"),
            "4:20: `delay`: found \"10\", expected a time with its unit",
        ),
        (
            wire("impair = { rate = \"0bit\" }\n"),
            "4:19: `rate`: found \"0bit\", expected bits a second",
        ),
        (
            wire("impair = { los = \"1%\" }\n"),
            "4:12: unknown key `los` in [device.impair]",
        ),
        (
            "[[device]]\nname = \"p\"\nkind = \"pcap\"\n".to_owned(),
            "1:1: a pcap device needs a file",
        ),
        (
            "[[device]]\nname = \"t\"\nkind = \"tun\"\nqueues = 257\n".to_owned(),
            "4:10: `queues`: found 257, expected a whole number from 1 to 256",
        ),
        (
            "[[device]]\nname = \"tun%d\"\nkind = \"tun\"\n".to_owned(),
            "2:8: `name`: found \"tun%d\", expected a name without '%'",
        ),
        (
            "[[device]]\nname = \"a%\"\nkind = \"exec\"\n".to_owned(),
            "2:8: `name`: found \"a%\", expected a name without '%'",
        ),
        // devices together
        (wire("") + WIRE, "5:8: a second device called w0"),
        (
            "[[device]]\nname = \"lo\"\nkind = \"wire\"\n".to_owned(),
            "2:8: a second device called lo",
        ),
        // what only the stack knows
        (
            "[[device]]\nname = \"a b\"\nkind = \"wire\"\n".to_owned(),
            "2:8: \"a b\" is no interface name",
        ),
        (
            wire("addresses = [\"224.0.0.1/24\"]\n"),
            "4:14: 224.0.0.1 can't be an interface's address",
        ),
        (
            wire("addresses = [\"10.0.0.1/24\", \"10.0.0.1/24\"]\n"),
            "4:29: the interface has the address 10.0.0.1 already",
        ),
        (
            wire("mtu = 1000\naddresses = [\"fd00::1/64\"]\n"),
            "5:14: IPv6 needs an MTU of at least 1280",
        ),
        // routes
        (
            "[[route]]\nvia = \"10.0.0.1\"\n".to_owned(),
            "1:1: [[route]] needs the key `to`",
        ),
        (
            "[[route]]\nto = \"default\"\ndev = \"w0\"\n".to_owned(),
            "2:6: `to`: found \"default\", expected \"0.0.0.0/0\" or \"::/0\"",
        ),
        (
            "[[route]]\nto = \"10.0.0.1/8\"\n".to_owned(),
            "2:6: `to`: 10.0.0.1/8 has bits set",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\n".to_owned(),
            "1:1: a unicast route needs `via`, `dev` or both",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\nvia = \"fd00::1\"\n".to_owned(),
            "3:7: found fd00::1, which is IPv6, expected an IPv4 address",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\ndev = \"w1\"\n".to_owned() + WIRE,
            "3:7: there is no device called \"w1\"",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\ntype = \"blakhole\"\n".to_owned(),
            "3:8: `type`: found \"blakhole\", expected one of: unicast, local",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\ntype = \"prohibit\"\nvia = \"10.0.0.1\"\n".to_owned(),
            "1:1: a route that refuses packets has neither",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\nvia = \"10.9.9.9\"\n".to_owned(),
            "1:1: ",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\ntype = \"blackhole\"\ntable = \"mine\"\n".to_owned(),
            "4:9: `table`: found \"mine\", expected a table",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\nmtu = 67\n".to_owned(),
            "3:7: `mtu`: found 67, expected a whole number from 68 to 65535, or 0",
        ),
        (
            "[[route]]\nto = \"10.0.0.0/8\"\nmtu = 65536\n".to_owned(),
            "3:7: `mtu`: found 65536, expected a whole number from 68 to 65535, or 0",
        ),
        // rules
        (
            "[[rule]]\npriority = 5\n".to_owned(),
            "1:1: a rule needs either a `table`",
        ),
        (
            "[[rule]]\nfrom = \"10.0.0.0/8\"\nto = \"fd00::/8\"\ntable = 5\n".to_owned(),
            "2:8: found 10.0.0.0, which is IPv4, expected an IPv6 address",
        ),
        (
            "[[rule]]\niif = \"w9\"\ntable = 5\n".to_owned(),
            "2:7: there is no device called \"w9\"",
        ),
        // knobs
        (
            "[sysctl]\nnet.ipv4.ip_forwad = 1\n".to_owned(),
            "2:10: no knob is called \"net.ipv4.ip_forwad\"",
        ),
        (
            "[sysctl]\n\"net.ipv4.ip_early_demux\" = 256\n".to_owned(),
            "2:29: net.ipv4.ip_early_demux: found \"256\", expected a number from 0 to 255",
        ),
        (
            "[sysctl]\nnet.ipv4.ip_early_demux = true\n".to_owned(),
            "2:27: `net.ipv4.ip_early_demux`: found true, expected a number",
        ),
        // services
        (
            "[[service]]\nkind = \"echo\"\nlisten = \"[::]:7\"\nttl = 5\n".to_owned(),
            "4:1: unknown key `ttl` in [[service]]",
        ),
        (
            "[[service]]\nkind = \"dns\"\nlisten = \"[::]:53\"\nttl = 2147483648\n".to_owned(),
            "4:7: `ttl`: found 2147483648, expected a whole number from 0 to 2147483647",
        ),
        (
            "[[service]]\nkind = \"dns\"\nlisten = \"[::]:53\"\n\
             [service.addresses]\n\"a.test\" = [\"::1\", \"b.test\"]\n"
                .to_owned(),
            "5:20: found \"b.test\", expected an IPv4 or IPv6 address",
        ),
        (
            "[[service]]\nkind = \"dns\"\nlisten = \"[::]:53\"\n\
             [service.addresses]\na.test = [\"::1\"]\n"
                .to_owned(),
            "5:1: found a table, expected an array [...]",
        ),
        (
            "[[service]]\nkind = \"dns\"\nlisten = \"[::]:53\"\n\
             [service.texts]\n\"a..test\" = [\"x\"]\n"
                .to_owned(),
            "5:1: \"a..test\" is no domain name",
        ),
        (
            "[[service]]\nkind = \"chargen\"\n".to_owned(),
            "2:8: `kind`: found \"chargen\", expected one of: echo, discard, daytime",
        ),
        (
            "[[service]]\nkind = \"echo\"\nlisten = \"10.0.0.1\"\n".to_owned(),
            "3:10: `listen`: found \"10.0.0.1\", expected an address and port",
        ),
        (
            "[[service]]\nkind = \"echo\"\nlisten = \"10.0.0.1:7\"\n".to_owned(),
            "3:10: cannot serve on 10.0.0.1:7: ",
        ),
        // traffic
        (
            "[[traffic]]\ndevice = \"w0\"\n".to_owned(),
            "1:1: [[traffic]] needs the key `transit_to`",
        ),
        (
            "[[traffic]]\ndevice = \"w0\"\nmix = { ping = 1 }\n".to_owned(),
            "2:10: there is no device called \"w0\"",
        ),
        (
            "[[traffic]]\ndevice = \"w0\"\nmix = { ping = 0 }\n".to_owned(),
            "3:7: all weights are 0",
        ),
        (
            "[[traffic]]\ndevice = \"w0\"\nmix = { ping = 1 }\n".to_owned() + WIRE,
            "2:10: the wire needs `addresses` and `peer_addresses`",
        ),
        (
            "[[traffic]]\ndevice = \"w0\"\ntransit_to = [\"fd00::/8\"]\n".to_owned()
                + WIRE
                + "addresses = [\"10.0.0.1/24\"]\npeer_addresses = [\"10.0.0.2/24\"]\n",
            "3:15: the wire has no addresses that traffic to fd00::/8 could come from",
        ),
        (
            "[[traffic]]\ndevice = \"w0\"\nmix = { ping = 1 }\nmin_size = 100\nmax_size = 99\n"
                .to_owned(),
            "5:12: `max_size`: found 99, expected a whole number from 100 to 1500",
        ),
    ];
    for (text, expected) in cases {
        let error = verdict(&text).expect_err(&text);
        let expected = format!("x.toml:{expected}");
        assert!(
            error.starts_with(&expected),
            "{text}\nsaid:     {error}\nexpected: {expected}"
        );
    }
}

#[test]
fn a_refusal_shows_the_line_and_says_what_was_meant() {
    let error = verdict(
        "# a wire\n[[device]]\nname = \"w0\"\nkind = \"wire\"\n\tadresses = [\"10.0.0.1/24\"] # ä\n",
    );
    let expected = "\
x.toml:5:2: unknown key `adresses` in [[device]]
   |
 5 | \tadresses = [\"10.0.0.1/24\"] # ä
   | \t^^^^^^^^
   = did you mean `addresses`?";
    assert_eq!(error.unwrap_err(), expected);
    let error = verdict("[sysctl]\nnet.ipv4.ip_forwad = 1\n").unwrap_err();
    assert!(
        error.ends_with("= did you mean `net.ipv4.ip_forward`?"),
        "{error}"
    );
}

#[test]
fn no_text_is_too_strange_to_be_refused() {
    let text = format!("{WIRE}addresses = [\"10.0.0.1/24\"]\n[[route]]\nto = \"ä\"\n");
    for (cut, _) in text.char_indices() {
        let _ = verdict(&text[..cut]);
    }
}

/// The manual's examples, and the files that people begin with.
#[test]
fn the_manuals_examples_work() {
    let manual = include_str!("../../../../docs/config.md");
    let examples = manual.split("```toml\n").skip(1);
    let examples: Vec<_> = examples
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(examples.len(), 6);
    let files = [
        include_str!("../../../../examples/life.toml"),
        include_str!("../../../../examples/exec.toml"),
        include_str!("../../../../examples/router.toml"),
        include_str!("../../../../examples/dns.toml"),
    ];
    for text in examples.into_iter().chain(files) {
        assert_eq!(verdict(text), Ok(()), "{text}");
    }
}

/// Every key that is read stands in the manual.
#[test]
fn the_manual_knows_every_key() {
    let manual = include_str!("../../../../docs/config.md");
    let entries = [
        ("[stack]\n", ""),
        ("[[route]]\n", "to = \"10.0.0.0/8\"\ntype = \"blackhole\"\n"),
        ("[[rule]]\n", "table = 5\n"),
        ("[[service]]\n", "kind = \"echo\"\nlisten = \"[::]:7\"\n"),
        ("[[service]]\nkind = \"dns\"\n", "listen = \"[::]:53\"\n"),
        ("[[traffic]]\n", "device = \"w\"\nmix = { ping = 1 }\n"),
        ("[[traffic]]\ndevice = \"w\"\n[traffic.mix]\n", "ping = 1\n"),
        ("[[device]]\n", "kind = \"wire\"\nname = \"w\"\n"),
        ("[[device]]\n", "kind = \"tun\"\nname = \"w\"\n"),
        (
            "[[device]]\n",
            "kind = \"pcap\"\nname = \"w\"\nread = \"x\"\n",
        ),
        (
            "[[device]]\nkind = \"wire\"\nname = \"w\"\n[device.impair]\n",
            "",
        ),
    ];
    for (table, required) in entries {
        let text = format!("{table}{required}zzz = 1\n");
        let error = Config::parse("x.toml", text).unwrap_err().to_string();
        let (_, keys) = error.split_once("the keys here are: ").expect(&error);
        for key in keys.split(", ") {
            assert!(manual.contains(&format!("`{key}`")), "{table}{key}");
        }
    }
}
