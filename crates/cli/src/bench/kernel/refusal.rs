//! Why this kernel can't be measured, and what to do about it.

use std::fmt;
use std::fs;
use std::io;

use forebay::netif::LinkKind;
use rustix::io::Errno;

use crate::bench::net::Family;

/// A step that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot measure this kernel: {step}: {error}{}", hint(*.step, .error))]
pub(super) struct Refusal {
    step: Step,
    error: io::Error,
}

/// What is asked of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Namespace,
    Knob(&'static str),
    Link(LinkKind),
    LinkUp,
    Route(Family),
    Load,
    Attach,
    Inject,
    Connect(Family),
    Socket(Family),
    Receive,
    Count,
}

impl Step {
    /// For `map_err`.
    pub(super) fn refused(self) -> impl FnOnce(io::Error) -> Refusal {
        move |error| Refusal { step: self, error }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => f.write_str("making a network namespace"),
            Self::Knob(knob) => write!(f, "setting {knob}"),
            Self::Link(kind) => write!(f, "making a {} interface", kind.name()),
            Self::LinkUp => f.write_str("bringing an interface up"),
            Self::Route(family) => write!(f, "adding an IPv{family} address and a route"),
            Self::Load => f.write_str("loading an XDP program"),
            Self::Attach => f.write_str("attaching an XDP program"),
            Self::Inject => f.write_str("letting frames in"),
            Self::Connect(family) => write!(f, "making IPv{family} connections by TCP_REPAIR"),
            Self::Socket(family) => write!(f, "opening an IPv{family} socket"),
            Self::Receive => f.write_str("receiving from a socket"),
            Self::Count => f.write_str("reading /proc/thread-self/net/dev"),
        }
    }
}

/// What to do about it; begins with `"; "`, or is empty.
fn hint(step: Step, error: &io::Error) -> String {
    let Some(errno) = Errno::from_io_error(error) else {
        return String::new();
    };
    let hint = match (step, errno) {
        (Step::Namespace | Step::Load | Step::Connect(_), Errno::PERM | Errno::ACCESS) => {
            not_permitted()
        }
        (Step::Namespace, Errno::INVAL) => "this kernel is built without network namespaces",
        (Step::Namespace, Errno::NOSPC | Errno::USERS) => {
            "all that are allowed are in use: see user.max_net_namespaces"
        }
        (Step::Knob(_), Errno::PERM | Errno::ACCESS | Errno::ROFS) => {
            "/proc/sys must be writable, which it is not in most containers"
        }
        (Step::Knob(knob), Errno::NOENT) if knob.starts_with("net.ipv6.") => {
            "this kernel runs without IPv6: add --family 4"
        }
        (Step::Route(Family::V6), Errno::OPNOTSUPP | Errno::ACCESS) => {
            "this kernel runs without IPv6: add --family 4"
        }
        (Step::Knob(_), Errno::NOENT) => {
            "/proc must be mounted, and this kernel must have the knob"
        }
        (Step::Link(LinkKind::Veth), Errno::OPNOTSUPP) => {
            "this kernel has no veth(4) devices (CONFIG_VETH; `modprobe veth`)"
        }
        (Step::Link(_), Errno::OPNOTSUPP) => {
            "this kernel has neither dummy nor ifb devices (CONFIG_DUMMY; `modprobe dummy`)"
        }
        (Step::Load, Errno::NOSYS) => "this kernel is built without BPF (CONFIG_BPF_SYSCALL)",
        (Step::Inject, Errno::INVAL | Errno::OPNOTSUPP) => {
            let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            let release = release.trim();
            return format!("; live frames need Linux 5.18 or later, and this is {release}");
        }
        (Step::Connect(_), Errno::NOPROTOOPT | Errno::INVAL) => {
            "this kernel can't; --sockets 0 measures without connections"
        }
        (
            Step::Connect(_),
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS,
        ) => "ask for fewer with --sockets, or raise fs.file-max and the limit of open files",
        _ => return String::new(),
    };
    format!("; {hint}")
}

/// A namespace of one's own for users would not help: the kernel lets programs be loaded by those
/// only who may do so in the first one.
fn not_permitted() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "something takes this right from root: a container, or its seccomp profile (run it with \
         `--privileged`), or a user namespace"
    } else {
        "run it as root (CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF are needed)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let table = [
            (Step::Namespace, Errno::PERM, "making a network namespace"),
            (Step::Inject, Errno::INVAL, "Linux 5.18"),
            (
                Step::Link(LinkKind::Ifb),
                Errno::OPNOTSUPP,
                "modprobe dummy",
            ),
            (Step::Connect(Family::V4), Errno::NOPROTOOPT, "--sockets 0"),
            (
                Step::Knob("net.ipv6.conf.all.forwarding"),
                Errno::NOENT,
                "--family 4",
            ),
            (Step::Knob("net.ipv4.ip_forward"), Errno::ROFS, "writable"),
        ];
        for (step, errno, expected) in table {
            let text = step.refused()(errno.into()).to_string();
            assert!(text.starts_with("cannot measure this kernel: "), "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }
}
