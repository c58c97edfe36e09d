//! What to do when the system refuses a private network.

use std::fs;

use rustix::io::Errno;

use super::step::Step;

/// Advice to follow the error, beginning with `"; "`; empty if there is none to give.
pub(super) fn what_to_do(step: &Step, errno: Errno) -> String {
    let advice = match (step, errno) {
        (Step::Unshare | Step::MapRoot, Errno::PERM | Errno::ACCESS) => namespaces_forbidden(),
        (Step::Unshare, Errno::NOSPC | Errno::USERS) => namespaces_used_up(),
        (Step::Unshare, Errno::INVAL | Errno::NOSYS) => {
            "this kernel is built without user or network namespaces"
        }
        (Step::MapRoot, Errno::NOENT) => "/proc must be mounted",
        (Step::AddAddress(address, _), Errno::ACCESS) if address.is_ipv6() => {
            "IPv6 is disabled here (net.ipv6.conf.default.disable_ipv6)"
        }
        (Step::AddAddress(address, _), Errno::OPNOTSUPP) if address.is_ipv6() => {
            "this kernel runs without IPv6"
        }
        (Step::DefaultVia(_), Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::INVAL) => {
            "a gateway must lie in the prefix of one of the addresses"
        }
        _ => return String::new(),
    };
    format!("; {advice}")
}

fn namespaces_forbidden() -> &'static str {
    if sysctl_is("kernel/unprivileged_userns_clone", "0") {
        "this system forbids user namespaces to ordinary users: run as root, or allow them with \
         `sysctl -w kernel.unprivileged_userns_clone=1`"
    } else if sysctl_is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor forbids user namespaces to ordinary users: run as root, or allow them with \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
    } else {
        "something forbids namespaces here: often the seccomp profile of a container (run it \
         with `--security-opt seccomp=unconfined` or `--privileged`), or a chroot"
    }
}

fn namespaces_used_up() -> &'static str {
    if sysctl_is("user/max_user_namespaces", "0") {
        "this system allows no user namespaces: run as root, or allow some with \
         `sysctl -w user.max_user_namespaces=10000`"
    } else {
        "all namespaces allowed are in use: see user.max_user_namespaces, user.max_net_namespaces \
         and user.max_mnt_namespaces"
    }
}

fn sysctl_is(name: &str, value: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/{name}")).is_ok_and(|content| content.trim() == value)
}
