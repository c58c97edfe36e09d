//! Knobs of three numbers: memory limits.

/// What a knob of three numbers is.
#[derive(Debug)]
pub(super) struct TripleDefinition {
    pub(super) name: &'static str,
    pub(super) default: [u32; 3],
    /// Of each number.
    pub(super) min: u32,
    pub(super) max: u32,
    /// What the numbers count.
    pub(super) unit: &'static str,
}

/// A knob of three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Triple {
    UdpMem,
    TcpMem,
    TcpRmem,
    TcpWmem,
}

const INT: u32 = i32::MAX as u32;

pub(super) static TRIPLES: [(Triple, TripleDefinition); 4] = [
    // What queues of all UDP sockets may hold: each gets more up to the first, those below
    // udp_rmem_min up to the third. Starts from what the packet pool has, and is never more.
    (
        Triple::UdpMem,
        TripleDefinition {
            name: "net.ipv4.udp_mem",
            default: [5_544, 5_544, 6_336],
            min: 0,
            max: INT,
            unit: "pages of 4096 bytes",
        },
    ),
    // What buffers of all connections may hold: from the second on they grow no more, until they
    // hold less than the first; beyond the third nobody gets more.
    (
        Triple::TcpMem,
        TripleDefinition {
            name: "net.ipv4.tcp_mem",
            default: [95_232, 126_976, 190_464],
            min: 0,
            max: INT,
            unit: "pages of 4096 bytes",
        },
    ),
    // A connection's receive buffer: under pressure, at first, at most.
    (
        Triple::TcpRmem,
        TripleDefinition {
            name: "net.ipv4.tcp_rmem",
            default: [4_096, 131_072, 6_291_456],
            min: 1,
            max: INT,
            unit: "bytes",
        },
    ),
    // A connection's send buffer: the same.
    (
        Triple::TcpWmem,
        TripleDefinition {
            name: "net.ipv4.tcp_wmem",
            default: [4_096, 16_384, 4_194_304],
            min: 1,
            max: INT,
            unit: "bytes",
        },
    ),
];

impl Triple {
    pub(super) fn definition(self) -> &'static TripleDefinition {
        &TRIPLES[self as usize].1
    }

    pub(super) fn called(name: &str) -> Option<Self> {
        let known = TRIPLES
            .iter()
            .find(|(_, definition)| definition.name == name);
        known.map(|(triple, _)| *triple)
    }

    pub(super) fn parse(self, text: &str) -> Option<[u32; 3]> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [a, b, c] = <[&str; 3]>::try_from(words).ok()?;
        let numbers = [a.parse().ok()?, b.parse().ok()?, c.parse().ok()?];
        let TripleDefinition { min, max, .. } = *self.definition();
        let fit = numbers.iter().all(|number| (min..=max).contains(number));
        fit.then_some(numbers)
    }

    pub(super) fn print([a, b, c]: [u32; 3]) -> String {
        format!("{a}\t{b}\t{c}")
    }

    pub(super) fn expected(self) -> String {
        let TripleDefinition {
            default,
            min,
            max,
            unit,
            ..
        } = self.definition();
        let [a, b, c] = default;
        format!("three numbers of {unit}, each from {min} to {max} (\"{a} {b} {c}\")")
    }
}
