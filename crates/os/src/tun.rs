//! TUN devices: network interfaces whose other end is a file descriptor.
//!
//! Whatever the kernel routes into such an interface is read from a [`Queue`], and what is
//! written to a queue arrives in the kernel as if from a wire. A device may have several queues;
//! the kernel keeps a flow on one of them.

use std::array;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::iter;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, IntegerSetter, Opcode, Setter, Updater, opcode};

use crate::name::{InterfaceName, InvalidName};
use crate::vnet::VnetHeader;

/// Most queues that a TUN device can have (`MAX_TAP_QUEUES`).
pub const MAX_QUEUES: usize = 256;

/// Most buffers that one packet can be scattered over or gathered from.
///
/// Enough for 64 KiB in buffers of 1,856 bytes.
pub const MAX_BUFFERS: usize = 40;

/// Which TUN device to create or attach to, and how.
#[derive(Clone, Debug)]
pub struct TunConfig {
    /// The interface's name: exact (`"tun0"`), or with `%d` for the kernel to number
    /// (`"tun%d"`). A device of that name which exists and has nobody attached is attached to.
    pub name: String,
    /// Queues, 1 to [`MAX_QUEUES`]. A device that exists must have been created for one queue or
    /// for several (`multi_queue`), as is asked for here.
    pub queues: usize,
    /// Whether packets may come with checksums left to fill in and as super-packets to be
    /// segmented (TCP, and UDP where the kernel can).
    pub offload: bool,
}

/// A TUN device that is attached to. It is gone when its last queue is closed, unless it was
/// made persistent by others.
#[derive(Debug)]
pub struct Tun {
    name: InterfaceName,
    /// One for each that was asked for. They may be taken apart and given to several threads.
    pub queues: Vec<Queue>,
    /// Whether the kernel takes UDP that is to be segmented, and leaves it to be: since 6.2, with
    /// offloads on.
    pub udp_segmentation: bool,
}

impl Tun {
    /// Creates a TUN device or attaches to one.
    ///
    /// The interface begins without addresses and down: see [`crate::netif`].
    ///
    /// # Errors
    ///
    /// See [`TunError`]; creating a device takes `CAP_NET_ADMIN` in the network namespace.
    ///
    /// ```no_run
    /// use forebay_os::tun::{Tun, TunConfig};
    ///
    /// let tun = Tun::open(&TunConfig { name: "tun%d".into(), queues: 2, offload: true })?;
    /// println!("{} with {} queues", tun.name(), tun.queues.len());
    /// # Ok::<(), forebay_os::tun::TunError>(())
    /// ```
    pub fn open(config: &TunConfig) -> Result<Self, TunError> {
        let setup = QueueSetup::new(config)?;
        let mut name = setup.name;
        let mut queues = Vec::with_capacity(config.queues);
        for _ in 0..config.queues {
            let (queue, given) = setup
                .open(name)
                .map_err(|failure| TunError::new(name, failure))?;
            name = given;
            queues.push(queue);
        }
        Self::from_parts(name, queues, &setup)
    }

    /// The parts of a device whose queues were opened one by one, perhaps in another process: so the
    /// kernel is asked once more what it agreed to.
    pub(crate) fn from_parts(
        name: InterfaceName,
        queues: Vec<Queue>,
        setup: &QueueSetup,
    ) -> Result<Self, TunError> {
        let mut udp_segmentation = false;
        for queue in &queues {
            udp_segmentation = setup
                .set_offload(&queue.fd)
                .map_err(|errno| TunError::new(name, Operation::SetOffload.failed(errno)))?;
        }
        Ok(Self {
            name,
            queues,
            udp_segmentation,
        })
    }

    /// The name that the kernel gave the interface.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

/// One queue of a TUN device; never blocks.
#[derive(Debug)]
pub struct Queue {
    fd: OwnedFd,
}

impl Queue {
    /// The queue of a descriptor that a [`QueueSetup`] opened, perhaps in another process.
    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Reads one packet: its header, and its bytes into `bufs`, filling one after the other.
    ///
    /// Returns the number of bytes that were put into `bufs`. A packet longer than all of them
    /// is cut without a sign of it, so they should hold what the device can send: its MTU, or
    /// with offloads 65,535 bytes and an IPv6 header.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when no packet waits; `InvalidInput` for more than [`MAX_BUFFERS`] buffers;
    /// otherwise what `readv(2)` says.
    pub fn recv(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<(VnetHeader, usize)> {
        let count = 1 + bufs.len();
        let mut header = [0; VnetHeader::LEN];
        let mut all = iter::once(IoSliceMut::new(&mut header))
            .chain(bufs.iter_mut().map(|buf| IoSliceMut::new(buf)));
        let mut slices: [_; 1 + MAX_BUFFERS] =
            array::from_fn(|_| all.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let slices = slices.get_mut(..count).ok_or(TOO_MANY_BUFFERS)?;
        let read = rustix::io::readv(&self.fd, slices)?;
        let len = read.checked_sub(VnetHeader::LEN).ok_or(Errno::IO)?;
        Ok((VnetHeader::parse(header), len))
    }

    /// Writes one packet, gathered from `bufs`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` (`EINVAL`) for a packet whose header does not fit it and for more than
    /// [`MAX_BUFFERS`] buffers; `EIO` while the interface is down; otherwise what `writev(2)`
    /// says.
    pub fn send(&mut self, header: &VnetHeader, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let count = 1 + bufs.len();
        let header = header.encode();
        let mut all = iter::once(IoSlice::new(&header)).chain(bufs.iter().copied());
        let slices: [_; 1 + MAX_BUFFERS] =
            array::from_fn(|_| all.next().unwrap_or_else(|| IoSlice::new(&[])));
        let slices = slices.get(..count).ok_or(TOO_MANY_BUFFERS)?;
        // The device takes a packet whole or not at all.
        rustix::io::writev(&self.fd, slices)?;
        Ok(())
    }
}

const TOO_MANY_BUFFERS: Errno = Errno::INVAL;

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A checked [`TunConfig`], from which queues are opened without allocating: also between `fork`
/// and `exec`.
#[derive(Clone, Debug)]
pub(crate) struct QueueSetup {
    pub(crate) name: InterfaceName,
    flags: u16,
    offload: bool,
}

impl QueueSetup {
    pub(crate) fn new(config: &TunConfig) -> Result<Self, TunError> {
        if !(1..=MAX_QUEUES).contains(&config.queues) {
            return Err(TunError::Queues(config.queues));
        }
        let multi_queue = if config.queues > 1 {
            IFF_MULTI_QUEUE
        } else {
            0
        };
        Ok(Self {
            name: config.name.parse()?,
            flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | multi_queue,
            offload: config.offload,
        })
    }

    /// Opens one more queue of the device `name`, and says what the kernel calls the device.
    pub(crate) fn open(&self, name: InterfaceName) -> Result<(Queue, InterfaceName), Failure> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(c"/dev/net/tun", flags, Mode::empty())
            .map_err(|errno| Operation::Open.failed(errno))?;
        let name =
            attach(&fd, name, self.flags).map_err(|errno| Operation::Attach.failed(errno))?;
        set_header_len(&fd).map_err(|errno| Operation::SetHeaderLen.failed(errno))?;
        self.set_offload(&fd)
            .map_err(|errno| Operation::SetOffload.failed(errno))?;
        Ok((Queue { fd }, name))
    }

    /// A device that existed before may have offloads on, so that none are asked for, too. Says
    /// whether the kernel knows UDP segmentation.
    fn set_offload(&self, fd: &OwnedFd) -> Result<bool, Errno> {
        if !self.offload {
            return set_offload(fd, 0).map(|()| false);
        }
        let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
        match set_offload(fd, tcp | TUN_F_USO4 | TUN_F_USO6) {
            // Kernels before 6.2 do not.
            Err(Errno::INVAL) => set_offload(fd, tcp).map(|()| false),
            other => other.map(|()| true),
        }
    }
}

// linux/if_tun.h and linux/if.h
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<i32>(b'T', 216);
const IFF_TUN: u16 = 0x0001;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_TSO6: usize = 0x04;
const TUN_F_USO4: usize = 0x20;
const TUN_F_USO6: usize = 0x40;

/// `struct ifreq` with the member `ifr_flags` of its union. At 40 bytes it has the size of the
/// 64-bit kernel's, and more than that of the 32-bit one's.
#[repr(C, align(8))]
struct IfReq {
    name: [u8; 16],
    flags: u16,
    rest_of_union: [u8; 22],
}

fn attach(fd: &OwnedFd, name: InterfaceName, flags: u16) -> Result<InterfaceName, Errno> {
    let mut request = IfReq {
        name: name.to_kernel(),
        flags,
        rest_of_union: [0; 22],
    };
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which `IfReq` is laid out as.
    let updater = unsafe { Updater::<TUNSETIFF, IfReq>::new(&mut request) };
    // SAFETY: as above; the request outlives the call, and the kernel keeps no pointer to it.
    unsafe { ioctl::ioctl(fd, updater) }?;
    Ok(InterfaceName::from_kernel(request.name))
}

/// Ten bytes are the default; but a device that existed before may have been set otherwise.
fn set_header_len(fd: &OwnedFd) -> Result<(), Errno> {
    let len = VnetHeader::LEN as i32;
    // SAFETY: TUNSETVNETHDRSZ reads an `int`.
    let setter = unsafe { Setter::<TUNSETVNETHDRSZ, i32>::new(len) };
    // SAFETY: as above.
    unsafe { ioctl::ioctl(fd, setter) }
}

fn set_offload(fd: &OwnedFd, offloads: usize) -> Result<(), Errno> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let setter = unsafe { IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads) };
    // SAFETY: as above.
    unsafe { ioctl::ioctl(fd, setter) }
}

/// What was being done to a device when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Open,
    Attach,
    SetHeaderLen,
    SetOffload,
}

impl Operation {
    pub(crate) const ALL: [Self; 4] = [
        Self::Open,
        Self::Attach,
        Self::SetHeaderLen,
        Self::SetOffload,
    ];

    fn failed(self, errno: Errno) -> Failure {
        Failure {
            operation: self,
            errno,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "opening /dev/net/tun",
            Self::Attach => "attaching",
            Self::SetHeaderLen => "setting the length of the virtio-net header",
            Self::SetOffload => "setting the offloads",
        })
    }
}

/// An error that can be carried out of a forked child: no text, no allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) operation: Operation,
    pub(crate) errno: Errno,
}

/// Why a TUN device could not be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunError {
    /// No interface can have that name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A number of queues that no device can have.
    #[error("a TUN device has 1 to {MAX_QUEUES} queues, not {0}")]
    Queues(usize),
    /// There is no `/dev/net/tun`, or nothing behind it.
    #[error(
        "/dev/net/tun is missing: load the driver with `modprobe tun`; a container must be given \
         the device (`--device /dev/net/tun`)"
    )]
    Missing(#[source] io::Error),
    /// `/dev/net/tun` may not be opened.
    #[error(
        "not permitted to open /dev/net/tun: run as root, or let everybody open it with \
         `chmod 0666 /dev/net/tun` (it gives no rights by itself)"
    )]
    OpenNotPermitted(#[source] io::Error),
    /// The device may not be created or attached to.
    #[error(
        "not permitted to create or attach to the TUN device {name}: run as root or with \
         CAP_NET_ADMIN; `forebay exec` needs neither"
    )]
    NotPermitted {
        /// The device that was asked for.
        name: InterfaceName,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another program is attached to the device.
    #[error("the TUN device {name} is busy: another program is attached to it")]
    Busy {
        /// The device that was asked for.
        name: InterfaceName,
        /// What the kernel said.
        source: io::Error,
    },
    /// An interface of that name exists and is something else.
    #[error(
        "the kernel refuses {name} as a TUN device of that kind: an interface of that name \
         exists which is no TUN device or differs in `multi_queue` (more than one queue); \
         delete it, or use another name"
    )]
    OtherKind {
        /// The device that was asked for.
        name: InterfaceName,
        /// What the kernel said.
        source: io::Error,
    },
    /// Anything else.
    #[error("TUN device {name}: {operation} failed: {error}")]
    Other {
        /// The device that was asked for.
        name: InterfaceName,
        /// What was being done.
        operation: String,
        /// What the kernel said.
        error: io::Error,
    },
}

impl TunError {
    pub(crate) fn new(name: InterfaceName, failure: Failure) -> Self {
        let Failure { operation, errno } = failure;
        let source = io::Error::from(errno);
        match (operation, errno) {
            (Operation::Open, Errno::NOENT | Errno::NODEV | Errno::NXIO) => Self::Missing(source),
            (Operation::Open, Errno::PERM | Errno::ACCESS) => Self::OpenNotPermitted(source),
            (Operation::Attach, Errno::PERM | Errno::ACCESS) => Self::NotPermitted { name, source },
            (Operation::Attach, Errno::BUSY) => Self::Busy { name, source },
            (Operation::Attach, Errno::INVAL) => Self::OtherKind { name, source },
            _ => Self::Other {
                name,
                operation: operation.to_string(),
                error: source,
            },
        }
    }
}
