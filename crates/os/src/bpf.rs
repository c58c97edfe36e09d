//! XDP programs, and packets that they let into the kernel: the parts of bpf(2) that a measurement
//! of the kernel's own network stack needs.
//!
//! [`Program::run_live`] is how packets get there without a device that would have to send them: the
//! kernel runs a program on a frame many times over, and hands each frame on as the verdict says
//! (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18).

mod instruction;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::from_mut;

pub use instruction::{Helper, Instruction, Register, Width};

/// What becomes of a frame: the number that a program returns (`enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The program failed; the frame is dropped.
    Aborted = 0,
    /// The frame is dropped.
    Drop = 1,
    /// The network stack gets the frame.
    Pass = 2,
}

// linux/bpf.h
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;

/// The kernel asks for a licence, as some helpers are only for programs under the GPL.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// An XDP program that the kernel has verified and compiled. Dropping it unloads it, unless a
/// [`Link`] still needs it.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

/// A program's hold on an interface. Dropping it takes the program away from there.
#[derive(Debug)]
pub struct Link {
    _fd: OwnedFd,
}

impl Program {
    /// Loads a program.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN` in the first user namespace, or where a
    /// container forbids bpf(2); `ENOSYS` if the kernel has no BPF; `EINVAL`, `EACCES` and others if
    /// the verifier objects to the program.
    pub fn load_xdp(instructions: &[Instruction]) -> io::Result<Self> {
        let mut attributes = LoadAttributes {
            program_type: BPF_PROG_TYPE_XDP,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            expected_attach_type: BPF_XDP,
            ..LoadAttributes::default()
        };
        // SAFETY: `instructions` is the address of as many `struct bpf_insn` as are said to be
        // there, `license` that of a C string; both outlive the call, which only reads them.
        let fd = unsafe { bpf(BPF_PROG_LOAD, &mut attributes) }?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Runs the program on what an interface receives, for as long as the link lives.
    ///
    /// # Errors
    ///
    /// `ENODEV` without such an interface, `EBUSY` if it has another program.
    pub fn attach(&self, interface: u32) -> io::Result<Link> {
        let mut attributes = LinkAttributes {
            program: self.fd.as_raw_fd() as u32,
            interface,
            attach_type: BPF_XDP,
            flags: 0,
        };
        // SAFETY: these attributes hold no address.
        let fd = unsafe { bpf(BPF_LINK_CREATE, &mut attributes) }?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        let _fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Link { _fd })
    }

    /// Runs the program on `packets` frames, in lists of `batch` (at most 256), and lets each take
    /// effect: those that pass are received by `interface`, by this thread, before this returns. Says
    /// what a frame took on average, in whole nanoseconds, from the program to the end of what the
    /// kernel then did with it.
    ///
    /// A call takes tens of milliseconds by itself unless the program is attached to some interface by
    /// [`attach`](Self::attach): else the kernel rebuilds its table of the programs in use, and waits
    /// until nobody is left who might be reading the old one. That is not in the figure.
    ///
    /// Each frame begins with a copy of `frame`, or with what has become of one that was dropped
    /// since: the kernel uses its pages again as they are. So a program has to write everything that
    /// the network stack may have changed.
    ///
    /// # Errors
    ///
    /// `EINVAL` from kernels before Linux 5.18, or if the frame is shorter than an Ethernet header;
    /// `ENODEV` without such an interface in the namespace of the calling thread; `EINTR` after a
    /// signal.
    pub fn run_live(
        &self,
        frame: &[u8],
        interface: u32,
        packets: u32,
        batch: u32,
    ) -> io::Result<u32> {
        let context = XdpContext {
            data_end: frame.len() as u32,
            interface,
            ..XdpContext::default()
        };
        let mut attributes = TestRunAttributes {
            program: self.fd.as_raw_fd() as u32,
            data_in_len: frame.len() as u32,
            data_in: frame.as_ptr() as u64,
            repeat: packets,
            context_in_len: size_of::<XdpContext>() as u32,
            context_in: (&raw const context) as u64,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            batch,
            ..TestRunAttributes::default()
        };
        // SAFETY: `data_in` and `context_in` are the addresses of as many readable bytes as the
        // lengths beside them say, which outlive the call; no address to write to is given.
        unsafe { bpf(BPF_PROG_TEST_RUN, &mut attributes) }?;
        Ok(attributes.duration)
    }
}

/// `union bpf_attr` of `BPF_PROG_LOAD`.
#[derive(Default)]
#[repr(C)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

/// `union bpf_attr` of `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// `union bpf_attr` of `BPF_PROG_TEST_RUN`.
#[derive(Default)]
#[repr(C)]
struct TestRunAttributes {
    program: u32,
    returned: u32,
    data_in_len: u32,
    data_out_len: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_len: u32,
    context_out_len: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    /// The kernel wants zeros behind what it knows.
    padding: u32,
}

/// `struct xdp_md`.
#[derive(Default)]
#[repr(C)]
struct XdpContext {
    data: u32,
    data_end: u32,
    data_meta: u32,
    interface: u32,
    queue: u32,
    egress_interface: u32,
}

/// bpf(2).
///
/// # Safety
///
/// `A` must be what the kernel takes for a `union bpf_attr` for this command, without uninitialised
/// bytes, and each address in it must be valid for what the command does with it.
unsafe fn bpf<A>(command: libc::c_int, attributes: &mut A) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads and writes no more than the size of the attributes, which are
    // exclusively ours; for the addresses in them our caller vouches.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            from_mut(attributes),
            size_of::<A>() as libc::c_uint,
        )
    };
    match libc::c_int::try_from(result) {
        Ok(result @ 0..) => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
