//! The steps as they are taken between `fork` and `exec`.
//!
//! Nothing in this file, nor in what it calls, may allocate, lock or panic: another thread of
//! the parent may have been in the allocator, say, when the process was forked.

use std::io::Write;
use std::os::fd::BorrowedFd;

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::process::{Gid, Pid, Signal, Uid};
use rustix::thread::UnshareFlags;

use super::report::{self, Failure};
use super::step::Step;
use crate::name::InterfaceName;
use crate::netif::{Netlink, Route};
use crate::tun::QueueSetup;

/// Takes the steps one by one; the first that fails is reported and ends it.
pub(super) fn take_steps(steps: &[Step], report: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut child = NewChild {
        report,
        uid: rustix::process::geteuid(),
        gid: rustix::process::getegid(),
        has_user_namespace: false,
        interface: None,
    };
    for (position, step) in steps.iter().enumerate() {
        if let Err(refusal) = child.take(step) {
            let failure = Failure::new(position, refusal);
            let errno = failure.errno;
            // If this cannot be sent, the parent still gets the error number, from `Command`.
            let _ = report::send_failure(report, failure);
            return Err(errno);
        }
    }
    Ok(())
}

/// Why a step was not taken.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    Kernel(Errno),
    Tun(crate::tun::Failure),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::Kernel(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

struct NewChild<'a> {
    report: BorrowedFd<'a>,
    /// Who we were in the parent's user namespace.
    uid: Uid,
    gid: Gid,
    has_user_namespace: bool,
    /// The TUN device, once it has a queue.
    interface: Option<InterfaceName>,
}

impl NewChild<'_> {
    fn take(&mut self, step: &Step) -> Result<(), Refusal> {
        match step {
            Step::Unshare => self.unshare()?,
            Step::MapRoot => self.map_root()?,
            Step::DieWithParent(parent) => die_with_parent(*parent)?,
            Step::PrivateMounts => rustix::mount::mount_change(
                c"/",
                MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
            )?,
            Step::ResolvConf(contents) => cover_resolv_conf(contents)?,
            Step::OpenQueue(setup) => self.open_queue(setup)?,
            Step::LoopbackUp => {
                let mut netlink = Netlink::open()?;
                let loopback = netlink.index("lo")?;
                netlink.set_up(loopback)?;
            }
            Step::SetMtu(mtu) => {
                let (mut netlink, index) = self.interface()?;
                netlink.set_mtu(index, *mtu)?;
            }
            Step::AddAddress(address, prefix_len) => {
                let (mut netlink, index) = self.interface()?;
                netlink.add_address(index, *address, *prefix_len)?;
            }
            Step::InterfaceUp => {
                let (mut netlink, index) = self.interface()?;
                netlink.set_up(index)?;
            }
            Step::DefaultVia(gateway) => {
                Netlink::open()?.add_route(&Route::default_via(*gateway))?;
            }
        }
        Ok(())
    }

    /// Root gets a user namespace, too, so that a command behaves the same whoever starts it.
    /// But where there are to be none (in a chroot, for one) root can do without.
    fn unshare(&mut self) -> Result<(), Errno> {
        let private = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
        match unshare(UnshareFlags::NEWUSER | private) {
            Ok(()) => {
                self.has_user_namespace = true;
                Ok(())
            }
            Err(errno) => unshare(private).map_err(|_| errno),
        }
    }

    /// user_namespaces(7): an ordinary user may map only itself, and its group only after it has
    /// given up changing groups.
    fn map_root(&self) -> Result<(), Errno> {
        if !self.has_user_namespace {
            return Ok(());
        }
        write_file(c"/proc/self/setgroups", b"deny")?;
        write_root_map(c"/proc/self/uid_map", self.uid.as_raw())?;
        write_root_map(c"/proc/self/gid_map", self.gid.as_raw())
    }

    fn open_queue(&mut self, setup: &QueueSetup) -> Result<(), Refusal> {
        // The kernel numbers "tun%d" when the first queue is opened; the others join that one.
        let name = self.interface.unwrap_or(setup.name);
        let (queue, name) = setup.open(name).map_err(Refusal::Tun)?;
        self.interface = Some(name);
        report::send_queue(self.report, name, &queue)?;
        Ok(())
    }

    fn interface(&self) -> Result<(Netlink, u32), Refusal> {
        let name = self.interface.ok_or(Errno::NODEV)?;
        let netlink = Netlink::open()?;
        let index = netlink.index(name.as_str())?;
        Ok((netlink, index))
    }
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: what makes it unsafe is a file descriptor table that is no longer shared between
    // threads; none of the flags above does that, and there is one thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn die_with_parent(parent: Pid) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before it was asked for.
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(Errno::SRCH)
    }
}

/// Puts a file of these contents in front of `/etc/resolv.conf`, for this mount namespace only.
///
/// A file to bind needs a place in the namespace, but nothing should be left on disk; so it is
/// put on a new tmpfs, which stands for a moment in front of /proc: a directory which is there,
/// as its `uid_map` has just been written, and which no `/etc/resolv.conf` is a link into. After
/// that only the bound file holds the tmpfs.
fn cover_resolv_conf(contents: &str) -> Result<(), Errno> {
    if rustix::fs::access(c"/etc/resolv.conf", Access::EXISTS) == Err(Errno::NOENT) {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"tmpfs", c"/proc", c"tmpfs", flags, Some(c"mode=0755"))?;
    write_file(c"/proc/resolv.conf", contents.as_bytes())?;
    rustix::mount::mount_bind(c"/proc/resolv.conf", c"/etc/resolv.conf")?;
    rustix::mount::unmount(c"/proc", UnmountFlags::DETACH)
}

/// Maps root to `id`, and nobody else.
fn write_root_map(path: &std::ffi::CStr, id: u32) -> Result<(), Errno> {
    let mut line = [0; 16];
    let mut rest = &mut line[..];
    // Sixteen bytes hold the longest number and what is around it.
    write!(rest, "0 {id} 1").map_err(|_| Errno::OVERFLOW)?;
    let unused = rest.len();
    write_file(path, line.get(..16 - unused).unwrap_or_default())
}

fn write_file(path: &std::ffi::CStr, mut contents: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?;
    while !contents.is_empty() {
        let written = rustix::io::write(&file, contents)?;
        contents = contents.get(written..).unwrap_or_default();
    }
    Ok(())
}
