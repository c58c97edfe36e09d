//! A capture played into the stack, and what the stack sends captured.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    CaptureError, CaptureFormat, CaptureReader, CaptureWriter, LinkType, NotIp, strip_link_header,
};
use crate::device::{BadFrame, Device, DeviceStats, Instant, PacketCache, PacketQueue, frame};

/// What is played, how, and what is captured.
#[derive(Debug, Clone)]
pub struct PcapConfig {
    /// The capture that comes into the stack, if any.
    pub input: Option<PathBuf>,
    /// The file that what the stack sends goes to, if any; one that exists is overwritten. It is
    /// pcapng if its name ends in `.pcapng`, otherwise pcap.
    pub output: Option<PathBuf>,
    /// How fast to play.
    pub pace: Pace,
    /// How often to play the input; `None` means for ever.
    pub passes: Option<u64>,
    /// Largest IP packet to go through, in bytes. 65,535 unless set: captures have packets that
    /// were still to be segmented.
    pub mtu: u32,
}

impl Default for PcapConfig {
    fn default() -> Self {
        Self {
            input: None,
            output: None,
            pace: Pace::default(),
            passes: Some(1),
            mtu: 65_535,
        }
    }
}

/// How fast a capture is played.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Pace {
    /// As fast as the stack takes packets.
    #[default]
    Unpaced,
    /// As it was captured, times a factor: 2.0 is twice as fast. A factor that is not above 0
    /// counts as 1.
    Recorded {
        /// The factor.
        speed: f64,
    },
}

/// Why a [`PcapDevice`] can't be opened: which of its files is to blame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PcapOpenError {
    /// The capture to play can't be read, is none, or is no regular file.
    #[error(transparent)]
    Input(CaptureError),
    /// The file to write can't be made, would have the device wait for who reads it, or is the
    /// input.
    #[error(transparent)]
    Output(io::Error),
}

/// A device whose other side are two files: one is played into the stack, the other captures what
/// the stack sends (link type raw IP, nanoseconds, timestamps that go on from the input's first).
///
/// Frames that are no IP packets are counted. A capture that is cut off ends there, and one that is
/// corrupt makes [`receive`](Device::receive) fail with `InvalidData`.
pub struct PcapDevice {
    mtu: u32,
    player: Option<Player>,
    recorder: Option<CaptureWriter<BufWriter<File>>>,
    /// The stack's time at which playing started.
    start: Option<Instant>,
    /// The captured time that `start` stands for.
    epoch: u64,
    stats: DeviceStats,
}

impl PcapDevice {
    /// Opens the files. Playing starts when the stack first calls.
    ///
    /// # Errors
    ///
    /// What opening says; that the input is no capture or no regular file, or that the output is
    /// the input or a pipe: a device must never wait.
    pub fn open(config: &PcapConfig) -> Result<Self, PcapOpenError> {
        let player = config.input.as_ref().map(|path| {
            refuse_irregular(path)?;
            Player::open(path, config.pace, config.passes)
        });
        let player = player.transpose().map_err(PcapOpenError::Input)?;
        let recorder = config.output.as_ref().map(|path| {
            refuse_to_overwrite(path, config.input.as_deref())?;
            create(path)
        });
        let recorder = recorder.transpose().map_err(PcapOpenError::Output)?;
        let epoch = match &player {
            Some(player) => player.first_timestamp,
            None => nanos(
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default(),
            ),
        };
        let stats = DeviceStats::default();
        Ok(Self {
            mtu: config.mtu,
            player,
            recorder,
            start: None,
            epoch,
            stats,
        })
    }

    /// Whether everything there was to play has come into the stack.
    pub fn is_finished(&self) -> bool {
        self.player
            .as_ref()
            .is_none_or(|player| player.next.is_none())
    }

    fn since_start(&mut self, now: Instant) -> Duration {
        now - *self.start.get_or_insert(now)
    }
}

impl Device for PcapDevice {
    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn receive(
        &mut self,
        now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        let elapsed = self.since_start(now);
        let Some(player) = &mut self.player else {
            return Ok(0);
        };
        let mut taken = 0;
        while taken < budget {
            let Some(next) = player.next.as_ref().filter(|next| next.due <= elapsed) else {
                break;
            };
            match next.packet(&player.frame, self.mtu) {
                Ok(packet) => {
                    // Without a buffer it waits: a replay shall lose nothing.
                    let Some(packet) = frame::copy_in(cache, [packet].into_iter()) else {
                        break;
                    };
                    self.stats.received(packet.total_len());
                    out.push(packet);
                }
                Err(reason) => self.stats.bad.count(reason),
            }
            taken += 1;
            player.advance().map_err(invalid_data)?;
        }
        Ok(taken)
    }

    fn transmit(
        &mut self,
        now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        let timestamp = self.epoch.saturating_add(nanos(self.since_start(now)));
        let is_idle = packets.is_empty();
        while let Some(packet) = packets.pop() {
            let written = match &mut self.recorder {
                Some(recorder) => recorder.write_packet(timestamp, &packet),
                None => Ok(()),
            };
            self.stats.sent(packet.total_len());
            cache.free(packet);
            written?;
        }
        match &mut self.recorder {
            // Once for all of them; a full disk must show now, as nobody hears of it at the end.
            Some(recorder) if !is_idle => recorder.flush(),
            _ => Ok(()),
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let next = self.player.as_ref()?.next.as_ref()?;
        Some(self.start? + next.due)
    }

    fn stats(&self) -> DeviceStats {
        self.stats
    }
}

/// Opening a FIFO waits for a writer, and no signal ends that.
fn refuse_irregular(path: &Path) -> Result<(), CaptureError> {
    if fs::metadata(path)?.is_file() {
        return Ok(());
    }
    let what = "it is no regular file";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what).into())
}

/// Creating a file empties the one that is there.
fn refuse_to_overwrite(path: &Path, input: Option<&Path>) -> io::Result<()> {
    let refused = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    // What can't be looked at is for creating to complain about.
    let Ok(there) = fs::metadata(path) else {
        return Ok(());
    };
    let kind = there.file_type();
    if kind.is_fifo() || kind.is_socket() || kind.is_block_device() {
        return refused("it is no regular file");
    }
    let input = input.map(fs::metadata).transpose()?;
    let is_input = |input: fs::Metadata| (input.dev(), input.ino()) == (there.dev(), there.ino());
    if input.is_some_and(is_input) {
        return refused("it is the file that is read");
    }
    Ok(())
}

fn create(path: &Path) -> io::Result<CaptureWriter<BufWriter<File>>> {
    let format = match path.extension() {
        Some(extension) if extension == "pcapng" => CaptureFormat::Pcapng,
        _ => CaptureFormat::Pcap,
    };
    CaptureWriter::new(BufWriter::new(File::create(path)?), format, LinkType::RAW)
}

fn invalid_data(error: CaptureError) -> io::Error {
    match error {
        CaptureError::Io(error) => error,
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads ahead by one frame.
struct Player {
    path: PathBuf,
    pace: Pace,
    /// Passes that follow the current one; `None` means for ever.
    passes_left: Option<u64>,
    reader: CaptureReader<File>,
    /// Of the current pass.
    first_timestamp: u64,
    /// When the current pass began, from the start of the first.
    pass_start: Duration,
    /// The next frame's bytes.
    frame: Vec<u8>,
    /// What else is known of it, if there is one.
    next: Option<Next>,
}

struct Next {
    /// From the start of playing.
    due: Duration,
    link_type: LinkType,
}

impl Next {
    fn packet<'a>(&self, bytes: &'a [u8], mtu: u32) -> Result<&'a [u8], BadFrame> {
        let packet = strip_link_header(self.link_type, bytes)?;
        frame::check_bytes(packet, mtu)?;
        Ok(packet)
    }
}

impl From<NotIp> for BadFrame {
    fn from(_: NotIp) -> Self {
        Self::NotIp
    }
}

impl Player {
    fn open(path: &Path, pace: Pace, passes: Option<u64>) -> Result<Self, CaptureError> {
        let mut player = Self {
            path: path.to_owned(),
            pace,
            passes_left: passes.map(|passes| passes.saturating_sub(1)),
            reader: CaptureReader::open(path)?,
            first_timestamp: 0,
            pass_start: Duration::ZERO,
            frame: Vec::new(),
            next: None,
        };
        if passes != Some(0) {
            player.read_first()?;
        }
        Ok(player)
    }

    fn read_first(&mut self) -> Result<(), CaptureError> {
        if let Some((timestamp, link_type)) = self.read()? {
            self.first_timestamp = timestamp;
            self.next = Some(Next {
                due: self.pass_start,
                link_type,
            });
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), CaptureError> {
        let due = self.next.take().map_or(Duration::ZERO, |next| next.due);
        if let Some((timestamp, link_type)) = self.read()? {
            let captured = Duration::from_nanos(timestamp.saturating_sub(self.first_timestamp));
            // Frames are played in the order of the file, even if its clock was set back.
            let due = self
                .pass_start
                .saturating_add(self.pace.scale(captured))
                .max(due);
            self.next = Some(Next { due, link_type });
            return Ok(());
        }
        if self.passes_left == Some(0) {
            return Ok(());
        }
        self.passes_left = self.passes_left.map(|passes| passes - 1);
        self.reader = CaptureReader::open(&self.path)?;
        self.pass_start = due;
        self.read_first()
    }

    /// Reads a frame into `frame`. A capture that is cut off has ended.
    fn read(&mut self) -> Result<Option<(u64, LinkType)>, CaptureError> {
        match self.reader.next_record() {
            Ok(Some(record)) => {
                self.frame.clear();
                self.frame.extend_from_slice(record.data);
                Ok(Some((record.timestamp, record.link_type)))
            }
            Ok(None) | Err(CaptureError::Truncated { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Pace {
    fn scale(self, captured: Duration) -> Duration {
        match self {
            Self::Unpaced => Duration::ZERO,
            Self::Recorded { speed } if speed > 0.0 => {
                Duration::try_from_secs_f64(captured.as_secs_f64() / speed).unwrap_or(Duration::MAX)
            }
            Self::Recorded { .. } => captured,
        }
    }
}
