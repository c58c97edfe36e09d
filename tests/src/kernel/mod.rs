//! Forebay against the kernel: its own network stack as the peer, over real TUN devices, in a
//! private network that needs no privileges where the system allows user namespaces.
//!
//! A test starts itself once more in a network of its own ([`in_private_network`]). There it makes
//! [`Host`]s, each of them the kernel in one more network namespace behind a TUN device, and puts
//! Forebay between them: a [`Lab`], or stacks of the test's own.

mod host;
mod icmp;
mod lab;
mod tcp;
mod udp;
mod usage;

use std::env;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use forebay::netns::{PrivateNetwork, PrivateNetworkError};

pub use host::Host;
pub use icmp::{Ping, ping, trace};
pub use lab::{Family, Lab, LabConfig, add_route, attach, delete_route, forwarding_stack, set};
pub use tcp::{bulk, exchange};
pub use udp::{Heard, drain, flood};
pub use usage::{resident_bytes, worker_time};

/// How long anything may take that is bound to happen, on a machine with other things to do.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How long to listen for what is not to come.
pub const SILENCE: Duration = Duration::from_millis(300);

const ROLE: &str = "FOREBAY_TEST_ROLE";
const TEST: &str = "FOREBAY_TEST_NAME";
const INSIDE: &str = "inside";
const HOST: &str = "host";

/// Runs `body` in a process that has a network of its own and is root there: the test named `test`
/// starts itself once more. `body` runs there in roles of the test's own, too.
///
/// Where the machine does not permit that the test is passed over with a word on stderr; it fails
/// if `FOREBAY_REQUIRE_NET` is 1.
pub fn in_private_network(test: &str, body: impl FnOnce()) {
    match env::var_os(ROLE) {
        Some(role) if role == HOST => return be_a_host(),
        Some(_) => return body(),
        None => {}
    }
    match PrivateNetwork::new().spawn(this_test(test, INSIDE)) {
        Ok(mut child) => assert!(child.wait().expect("wait").success(), "failed inside"),
        Err(error @ (PrivateNetworkError::Tun(_) | PrivateNetworkError::Step { .. })) => {
            pass_over(&error);
        }
        Err(error) => panic!("{error}"),
    }
}

/// Says why a test is not done, or fails if it must be.
pub fn pass_over(error: &dyn std::error::Error) {
    let demanded = env::var_os("FOREBAY_REQUIRE_NET").is_some_and(|value| value == "1");
    assert!(!demanded, "{error}");
    eprintln!("not tested: {error}");
}

/// This process is there for its network namespace only, until somebody else has hold of that.
fn be_a_host() {
    io::stdin().read_to_end(&mut Vec::new()).expect("stdin");
}

/// The same test once more, in another role.
pub fn this_test(test: &str, role: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(env::current_exe().expect("current executable"));
    command.args(["--exact", test, "--nocapture"]);
    command.env(ROLE, role).env(TEST, test);
    command
}

/// The name of the test that this process is.
fn test_name() -> String {
    env::var(TEST).expect("hosts belong in a private network")
}

/// Whether this process is the test in the given role.
pub fn is_role(role: &str) -> bool {
    env::var_os(ROLE).is_some_and(|value| value == role)
}

/// An address from text.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}
