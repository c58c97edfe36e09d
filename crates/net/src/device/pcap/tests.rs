use super::*;
use crate::device::testing::{bytes, packet};
use crate::device::{BadFrame, Device, Instant, PacketCache, PacketPool, PacketQueue};
use proptest::prelude::*;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, io};

/// What is left of a record: time, original length, link type, data.
type Owned = (u64, u32, u16, Vec<u8>);

fn read(file: &[u8]) -> (Vec<Owned>, Option<CaptureError>) {
    let mut records = Vec::new();
    let mut reader = match CaptureReader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    loop {
        match reader.next_record() {
            Ok(Some(Record {
                timestamp,
                original_len,
                link_type,
                data,
            })) => {
                records.push((timestamp, original_len, link_type.0, data.to_vec()));
            }
            Ok(None) => return (records, None),
            Err(error) => {
                assert!(matches!(reader.next_record(), Ok(None)), "an error ends it");
                return (records, Some(error));
            }
        }
    }
}

fn write(format: CaptureFormat, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer =
        CaptureWriter::new(&mut file, format, LinkType::ETHERNET).expect("memory takes it");
    for (timestamp, frame) in frames {
        writer.write(*timestamp, frame).expect("memory takes it");
    }
    file
}

/// Words in either byte order.
fn words(big_endian: bool, words: &[u32]) -> Vec<u8> {
    let bytes = |word: &u32| {
        if big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        }
    };
    words.iter().flat_map(bytes).collect()
}

/// A pcapng block in either byte order.
fn block(big_endian: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let len = body.len() as u32 + 12;
    [
        words(big_endian, &[kind, len]),
        body.to_vec(),
        words(big_endian, &[len]),
    ]
    .concat()
}

fn section(big_endian: bool) -> Vec<u8> {
    let version = if big_endian { 1 << 16 } else { 1 };
    block(
        big_endian,
        0x0a0d_0d0a,
        &words(big_endian, &[0x1a2b_3c4d, version, !0, !0]),
    )
}

/// An interface with these options, each of one byte or of eight.
fn interface(big_endian: bool, link_type: u16, snap_len: u32, options: &[(u16, u64)]) -> Vec<u8> {
    let half = |value: u16| {
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let mut body = [&half(link_type)[..], &[0; 2]].concat();
    body.extend(words(big_endian, &[snap_len]));
    for &(option, value) in options {
        body.extend(half(option));
        if option == 9 {
            body.extend([half(1), [value as u8, 0], [0; 2]].concat());
        } else {
            let (high, low) = ((value >> 32) as u32, value as u32);
            body.extend(half(8));
            body.extend(words(
                big_endian,
                &if big_endian { [high, low] } else { [low, high] },
            ));
        }
    }
    block(big_endian, 1, &body)
}

#[test]
fn classic_files_of_all_four_kinds() {
    for (big_endian, magic, nanos) in [
        (false, 0xa1b2_c3d4, 1_000),
        (true, 0xa1b2_c3d4, 1_000),
        (false, 0xa1b2_3c4d, 1),
        (true, 0xa1b2_3c4d, 1),
    ] {
        let version = if big_endian { 2 << 16 | 4 } else { 4 << 16 | 2 };
        // The high half of the link type tells of frame check sequences.
        let mut file = words(
            big_endian,
            &[magic, version, 0, 0, 65_535, 0x2400_0000 | 101],
        );
        file.extend(words(big_endian, &[7, 5, 3, 900]));
        file.extend([1, 2, 3]);
        file.extend(words(big_endian, &[8, 0, 0, 0]));
        let (records, error) = read(&file);
        assert!(error.is_none());
        let first = (7_000_000_000 + 5 * nanos, 900, 101, vec![1, 2, 3]);
        assert_eq!(records, [first, (8_000_000_000, 0, 101, vec![])]);
    }
}

#[test]
fn pcapng_with_sections_interfaces_and_old_blocks() {
    let mut file = Vec::new();
    for big_endian in [false, true] {
        file.extend(section(big_endian));
        file.extend(interface(big_endian, 1, 4, &[]));
        file.extend(interface(big_endian, 101, 0, &[(9, 9), (14, 100)]));
        file.extend(interface(big_endian, 0, 0, &[(9, 0x80 | 10)]));
        file.extend(block(big_endian, 5, &[0; 40])); // statistics
        let packet = |interface, ticks: u64, data: &[u8]| {
            let (high, low) = ((ticks >> 32) as u32, ticks as u32);
            let len = data.len() as u32;
            let mut body = words(big_endian, &[interface, high, low, len, 99]);
            body.extend(data);
            body.resize(body.len().next_multiple_of(4), 0);
            body
        };
        file.extend(block(
            big_endian,
            6,
            &packet(0, 5_000_000, &[1, 2, 3, 4, 5]),
        ));
        file.extend(block(big_endian, 6, &packet(1, 3, &[6])));
        file.extend(block(big_endian, 6, &packet(2, 1_536, &[7])));
        let simple = [words(big_endian, &[6]), vec![8; 4]].concat();
        file.extend(block(big_endian, 3, &simple));
        // The obsolete block has 16 bits of interface and 16 bits of drops.
        let interface = if big_endian {
            1 << 16 | 0xffff
        } else {
            0xffff_0001
        };
        file.extend(block(big_endian, 2, &packet(interface, 4, &[9])));
    }
    let (records, error) = read(&file);
    assert!(error.is_none(), "{error:?}");
    let section = [
        (5_000_000_000, 99, 1, vec![1, 2, 3, 4, 5]),
        (100_000_000_003, 99, 101, vec![6]),
        (1_500_000_000, 99, 0, vec![7]),
        (1_500_000_000, 6, 1, vec![8; 4]),
        (100_000_000_004, 99, 101, vec![9]),
    ];
    assert_eq!(records, [section.clone(), section].concat());
}

#[test]
fn what_contradicts_itself_is_an_error() {
    let header = |kind: u32, len: u32| words(false, &[kind, len]);
    let start = || [section(false), interface(false, 1, 0, &[])].concat();
    let frame = |interface, len| words(false, &[interface, 0, 0, len, len, 0x0605_0403]);
    let mut other_length = block(false, 6, &frame(0, 4));
    *other_length.last_mut().expect("a block has bytes") = 1;
    let pcap = words(false, &[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1]);

    type Case = (&'static str, Vec<u8>, fn(&CaptureError) -> bool);
    let cases: Vec<Case> = vec![
        ("nothing", vec![], |error| {
            matches!(error, CaptureError::NotACapture)
        }),
        ("text", b"hello, world".to_vec(), |e| {
            matches!(e, CaptureError::NotACapture)
        }),
        ("half a header", pcap[..20].to_vec(), is_cut),
        (
            "half a record header",
            [&pcap[..], &[0; 15]].concat(),
            is_cut,
        ),
        (
            "half a record",
            [pcap.clone(), words(false, &[0, 0, 4, 4, 0])[..19].to_vec()].concat(),
            is_cut,
        ),
        (
            "a record of 4 GiB",
            [pcap, words(false, &[0, 0, !0, !0])].concat(),
            is_corrupt,
        ),
        ("a section cut off", section(false)[..20].to_vec(), is_cut),
        (
            "no byte order",
            [&section(false)[..8], &[0; 20]].concat(),
            is_corrupt,
        ),
        (
            "a block of no length",
            [start(), header(6, 0)].concat(),
            is_corrupt,
        ),
        (
            "a block of odd length",
            [start(), header(6, 33)].concat(),
            is_corrupt,
        ),
        (
            "a block of 4 GiB",
            [start(), header(6, 0xffff_fffc)].concat(),
            is_corrupt,
        ),
        (
            "a strange block of 4 GiB",
            [start(), header(77, 0xffff_fffc)].concat(),
            is_cut,
        ),
        ("two lengths", [start(), other_length].concat(), is_corrupt),
        (
            "a frame beyond its block",
            [start(), block(false, 6, &frame(0, 5))].concat(),
            is_corrupt,
        ),
        (
            "no such interface",
            [start(), block(false, 6, &frame(1, 4))].concat(),
            is_corrupt,
        ),
        (
            "an empty packet block",
            [start(), block(false, 6, &[])].concat(),
            is_corrupt,
        ),
        (
            "10^127 ticks",
            [start(), interface(false, 1, 0, &[(9, 127)])].concat(),
            is_corrupt,
        ),
        (
            "no interface",
            [section(false), block(false, 3, &[0; 8])].concat(),
            is_corrupt,
        ),
    ];
    for (what, file, expected) in cases {
        let (records, error) = read(&file);
        assert!(records.is_empty(), "{what}");
        assert!(error.as_ref().is_some_and(expected), "{what}: {error:?}");
    }
}

fn is_cut(error: &CaptureError) -> bool {
    matches!(error, CaptureError::Truncated { .. })
}

fn is_corrupt(error: &CaptureError) -> bool {
    matches!(error, CaptureError::Corrupt { .. })
}

fn frames() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    // 32 bits of seconds is what a pcap file has.
    let timestamp = 0..u64::from(u32::MAX) * 1_000_000_000;
    prop::collection::vec(
        (timestamp, prop::collection::vec(any::<u8>(), 0..100)),
        0..8,
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(frames in frames()) {
        let expected: Vec<Owned> = frames
            .iter()
            .map(|(timestamp, frame)| (*timestamp, frame.len() as u32, 1, frame.clone()))
            .collect();
        for format in [CaptureFormat::Pcap, CaptureFormat::Pcapng] {
            let (records, error) = read(&write(format, &frames));
            prop_assert!(error.is_none());
            prop_assert_eq!(&records, &expected);
        }
    }

    #[test]
    fn no_damage_does_harm(
        frames in frames(),
        ng: bool,
        cut in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let format = if ng { CaptureFormat::Pcapng } else { CaptureFormat::Pcap };
        let mut file = write(format, &frames);
        for (at, value) in damage {
            let at = at.index(file.len());
            file[at] = value;
        }
        file.truncate(cut.index(file.len() + 1));
        for (_, _, link_type, data) in read(&file).0 {
            prop_assert!(data.len() <= file.len());
            let _ = strip_link_header(LinkType(link_type), &data);
        }
    }

    #[test]
    fn any_bytes_have_a_link_header_or_not(link_type in 0..300_u16, frame: Vec<u8>) {
        if let Ok(packet) = strip_link_header(LinkType(link_type), &frame) {
            prop_assert!(!packet.is_empty() && frame.ends_with(packet));
        }
    }
}

/// The captures of other projects that CI has; they are not ours to distribute.
#[test]
fn captures_of_others_are_read_to_the_end() {
    let Some(dir) = env::var_os("FOREBAY_CAPTURES") else {
        return;
    };
    let mut files = 0;
    for entry in fs::read_dir(dir).expect("FOREBAY_CAPTURES names a folder") {
        let path = entry.expect("the folder can be read").path();
        if path
            .extension()
            .is_none_or(|extension| extension != "pcap" && extension != "pcapng")
        {
            continue;
        }
        let (records, error) = read(&fs::read(&path).expect("the file can be read"));
        assert!(
            error.is_none() && !records.is_empty(),
            "{}: {error:?}",
            path.display()
        );
        let is_ip =
            |(_, _, link_type, data): &Owned| strip_link_header(LinkType(*link_type), data).is_ok();
        assert!(records.iter().any(is_ip), "{}", path.display());
        files += 1;
    }
    assert!(files > 0);
}

/// A file of its own for each test, removed in the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        Self(env::temp_dir().join(format!("forebay-{}-{name}", std::process::id())))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Frames at 10.0, 10.5 and 12 s, and one in between that is not IP.
fn capture(name: &str) -> TempFile {
    let file = TempFile::new(name);
    let ethernet = |payload: &[u8]| [&[0; 12][..], &[8, 0], payload].concat();
    let arp = [&[0; 12][..], &[8, 6, 0]].concat();
    let frames = [
        (10_000_000_000, ethernet(&[0x45, 1])),
        (10_500_000_000, ethernet(&[0x45, 2])),
        (10_500_000_000, arp),
        (12_000_000_000, ethernet(&[0x45, 3])),
    ];
    fs::write(&file.0, write(CaptureFormat::Pcap, &frames)).expect("the file can be written");
    file
}

fn cache() -> PacketCache {
    PacketPool::new(64).cache()
}

/// What comes into the stack at `now`: the second byte of each packet.
fn receive(device: &mut PcapDevice, cache: &mut PacketCache, now: Instant) -> Vec<u8> {
    let mut out = PacketQueue::new();
    device
        .receive(now, cache, &mut out, 64)
        .expect("the capture is good");
    out.iter().map(|packet| packet.data()[1]).collect()
}

#[test]
fn plays_as_fast_as_it_can_and_over_again() {
    let file = capture("unpaced.pcap");
    let config = PcapConfig {
        input: Some(file.0.clone()),
        passes: Some(3),
        ..PcapConfig::default()
    };
    let mut device = PcapDevice::open(&config).expect("the files can be opened");
    let mut cache = cache();
    let mut out = PacketQueue::new();
    assert!(!device.is_finished());
    assert_eq!(
        device
            .receive(Instant::ZERO, &mut cache, &mut out, 2)
            .expect("it is good"),
        2
    );
    assert_eq!(out.len(), 2);
    assert_eq!(device.next_event(), Some(Instant::ZERO));
    assert_eq!(
        receive(&mut device, &mut cache, Instant::ZERO),
        [3, 1, 2, 3, 1, 2, 3]
    );
    assert!(device.is_finished());
    assert_eq!(device.next_event(), None);
    assert_eq!(device.stats().rx_packets, 9);
    assert_eq!(device.stats().bad.get(BadFrame::NotIp), 3);
}

#[test]
fn plays_at_the_captured_pace() {
    let file = capture("paced.pcap");
    let config = PcapConfig {
        input: Some(file.0.clone()),
        pace: Pace::Recorded { speed: 2.0 },
        passes: Some(2),
        ..PcapConfig::default()
    };
    let mut device = PcapDevice::open(&config).expect("the files can be opened");
    let mut cache = cache();
    let start = Instant::from_nanos(77);
    let mut played = Vec::new();
    let mut now = start;
    while !device.is_finished() {
        for packet in receive(&mut device, &mut cache, now) {
            played.push((packet, (now - start).as_millis()));
        }
        if let Some(next) = device.next_event() {
            assert!(next > now);
            assert!(receive(&mut device, &mut cache, now).is_empty());
            now = next;
        }
    }
    let expected = [
        (1, 0),
        (2, 250),
        (3, 1_000),
        (1, 1_000),
        (2, 1_250),
        (3, 2_000),
    ];
    assert_eq!(played, expected);
}

#[test]
fn loses_no_packet_for_want_of_buffers() {
    let file = capture("poor.pcap");
    let config = PcapConfig {
        input: Some(file.0.clone()),
        ..PcapConfig::default()
    };
    let mut device = PcapDevice::open(&config).expect("the files can be opened");
    let mut cache = PacketPool::new(1).cache();
    for expected in [[1], [2], [3]] {
        assert_eq!(receive(&mut device, &mut cache, Instant::ZERO), expected);
    }
    assert_eq!(device.stats().rx_dropped, 0);
}

#[test]
fn captures_what_the_stack_sends() {
    let input = capture("in.pcap");
    let mut cache = cache();
    for name in ["out.pcap", "out.pcapng"] {
        let output = TempFile::new(name);
        let config = PcapConfig {
            input: Some(input.0.clone()),
            output: Some(output.0.clone()),
            ..PcapConfig::default()
        };
        let mut device = PcapDevice::open(&config).expect("the files can be opened");
        let start = Instant::from_nanos(1_000);
        let mut packets = PacketQueue::new();
        receive(&mut device, &mut cache, start);
        for (after, len) in [(1, 20), (5, 4_001)] {
            packets.push(packet(&mut cache, &vec![0x45; len]));
            let now = start + Duration::from_nanos(after);
            device
                .transmit(now, &mut packets, &mut cache)
                .expect("the disk is not full");
        }
        assert_eq!(device.stats().tx_bytes, 4_021);
        drop(device);
        let (records, error) = read(&fs::read(&output.0).expect("the file was written"));
        assert!(error.is_none());
        let record =
            |nanos: u64, len: usize| (10_000_000_000 + nanos, len as u32, 101, vec![0x45; len]);
        assert_eq!(records, [record(1, 20), record(5, 4_001)]);
    }
}

#[test]
fn a_cut_capture_ends_and_a_corrupt_one_fails() {
    let mut cache = cache();
    let good = fs::read(&capture("good.pcap").0).expect("the file was written");
    let open = |file: &TempFile, bytes: &[u8]| {
        fs::write(&file.0, bytes).expect("the file can be written");
        let config = PcapConfig {
            input: Some(file.0.clone()),
            ..PcapConfig::default()
        };
        PcapDevice::open(&config).expect("it starts well")
    };
    let file = TempFile::new("damaged.pcap");
    let mut device = open(&file, &good[..good.len() - 1]);
    assert_eq!(receive(&mut device, &mut cache, Instant::ZERO), [1, 2]);
    assert!(device.is_finished());

    let mut bad = good;
    bad[24 + 32 + 8..24 + 32 + 12].fill(0xff);
    let mut device = open(&file, &bad);
    let mut out = PacketQueue::new();
    let error = device
        .receive(Instant::ZERO, &mut cache, &mut out, 64)
        .expect_err("it is bad");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(
        out.iter().map(bytes).collect::<Vec<_>>(),
        [[0x45, 1]],
        "what was good counts"
    );
    assert_eq!(receive(&mut device, &mut cache, Instant::ZERO), []);
}

#[test]
fn a_device_never_waits_for_a_file_nor_empties_its_input() {
    let input = capture("kept.pcap");
    let before = fs::read(&input.0).expect("read");
    let fifo = TempFile::new("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo.0, rustix::fs::Mode::RWXU).expect("a FIFO");
    let link = TempFile::new("link.pcap");
    fs::hard_link(&input.0, &link.0).expect("link");
    let output = TempFile::new("unmade.pcap");
    let open = |input: &PathBuf, output: &PathBuf| {
        let config = PcapConfig {
            input: Some(input.clone()),
            output: Some(output.clone()),
            ..PcapConfig::default()
        };
        PcapDevice::open(&config).map(drop)
    };
    for input in [fifo.0.clone(), env::temp_dir(), "/dev/zero".into()] {
        let refused = open(&input, &output.0);
        assert!(matches!(refused, Err(PcapOpenError::Input(_))), "{input:?}");
    }
    for output in [&fifo.0, &env::temp_dir(), &input.0, &link.0] {
        let refused = open(&input.0, output);
        assert!(
            matches!(refused, Err(PcapOpenError::Output(_))),
            "{output:?}"
        );
    }
    assert_eq!(fs::read(&input.0).expect("read"), before);
}
