//! Networks of nodes that can be cut: each node in a network namespace of its own, all of them on one bridge.
//!
//! Promises: everything is made inside a network and a mount namespace of this process, so that nothing of the machine's own network
//! changes and all of it is gone with the last process. A cut takes packets between nodes without a word to either side; clients
//! reach every node all the time. Refuses to know: what nodes say to each other.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::BenchError;

/// Set in the process that has namespaces of its own.
const INSIDE: &str = "ASHLAR_CHAOS_INSIDE";
/// What nodes' namespaces are called, before their numbers.
pub(super) const PREFIX: &str = "ashlar-n";
/// Where clients are.
const CLIENTS: &str = "10.77.255.254/16";
/// Makes the place for names of namespaces, and becomes the program.
const ENTER: &str = "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link set lo up && exec \"$@\"";

/// Becomes the same program with the same arguments in new namespaces, unless it is in them already. Needs root.
pub fn enter() -> Result<(), BenchError> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(BenchError::local("find this program"))?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--", "sh", "-c", ENTER, "sh"]).arg(program).args(std::env::args_os().skip(1));
    let error = command.env(INSIDE, "1").exec();
    Err(BenchError::local("run unshare (util-linux), which faults of the network need")(error))
}

/// The networks of a cluster's nodes, n1 first.
pub(super) struct Networks {
    nodes: u32,
}

impl Networks {
    /// Makes them. To be called inside of what [`enter`] made.
    pub(super) fn make(nodes: u32) -> Result<Networks, BenchError> {
        ip("link add ashlar-br type bridge")?;
        ip(&format!("addr add {CLIENTS} dev ashlar-br"))?;
        ip("link set ashlar-br up")?;
        for node in 0..nodes {
            let (name, port) = (namespace(node), format!("ashlar-v{node}"));
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add {port} type veth peer name eth0 netns {name}"))?;
            ip(&format!("link set {port} master ashlar-br up"))?;
            ip(&format!("-n {name} addr add {}/16 dev eth0", address(node)))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        Ok(Networks { nodes })
    }

    /// What one node says does not reach the other any more.
    pub(super) fn cut(&self, from: usize, to: usize) -> Result<(), BenchError> {
        self.route("replace", from, to)
    }

    /// Everybody hears everybody.
    pub(super) fn heal(&self, cuts: &[(usize, usize)]) -> Result<(), BenchError> {
        cuts.iter().try_for_each(|(from, to)| self.route("del", *from, *to))
    }

    /// Packets for another node go to the loopback device, which drops what is not for itself.
    fn route(&self, what: &str, from: usize, to: usize) -> Result<(), BenchError> {
        let (from, to) = (from as u32, to as u32);
        debug_assert!(from < self.nodes && to < self.nodes && from != to);
        let (name, me, other) = (namespace(from), address(from), address(to));
        ip(&format!("-n {name} route {what} {other}/32 dev lo src {me}"))
    }
}

/// As `ashlar dev --networks` calls the node's.
fn namespace(node: u32) -> String {
    format!("{PREFIX}{}", node + 1)
}

/// As `ashlar dev --networks` gives it.
fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 77, 0, 0).to_bits() + node + 1)
}

fn ip(words: &str) -> Result<(), BenchError> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(BenchError::local("run ip (iproute2), which faults of the network need"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(BenchError::Server(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

#[cfg(test)]
mod tests {
    use super::{address, namespace};

    #[test]
    fn names_and_addresses_are_those_of_dev() {
        assert_eq!((namespace(0).as_str(), address(0).to_string().as_str()), ("ashlar-n1", "10.77.0.1"));
        assert_eq!(address(299).to_string(), "10.77.1.44");
    }
}
