//! What a cluster of `ashlar dev` consists of, and the file that keeps it: names, ports and folders.
//!
//! Promises: the same folder gives the same cluster again; a file half written is never taken for a plan.
//! Refuses to know: when a process is started.

use crate::cli::DevClusterArgs;
use crate::server::Failure;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE: &str = "cluster.json";
const FILE_NEXT: &str = "cluster.json.next";

/// A whole cluster.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The nodes, n1 first.
    pub nodes: Vec<NodePlan>,
    /// The balancers.
    pub balancers: Vec<BalancerPlan>,
}

/// One node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct NodePlan {
    /// n1, n2, ...
    pub name: String,
    /// Port of S3.
    pub port: u16,
    /// Port of the admin address.
    pub admin_port: u16,
    /// Port for other nodes.
    pub rpc_port: u16,
    /// How many data folders it has.
    pub disks: u16,
    /// The network it lives in, if not this process's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// A network namespace that somebody else made.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Its name, as `ip netns` knows it.
    pub namespace: String,
    /// The node's address in it.
    pub address: Ipv4Addr,
}

/// One balancer.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct BalancerPlan {
    /// Port of S3.
    pub port: u16,
    /// Port of its own admin address.
    pub admin_port: u16,
}

impl NodePlan {
    /// Whether it was started before and became a node.
    pub fn is_born(&self, folder: &Path) -> bool {
        self.data_dirs(folder).iter().any(|dir| dir.join("identity").exists())
    }

    /// That port, where others find it.
    pub fn at(&self, port: u16) -> String {
        let address = self.network.as_ref().map_or(Ipv4Addr::LOCALHOST, |network| network.address);
        format!("{address}:{port}")
    }

    /// The program that runs as this node, in its network.
    pub fn program(&self) -> io::Result<Command> {
        let program = std::env::current_exe()?;
        let Some(network) = &self.network else { return Ok(Command::new(program)) };
        // `ip` becomes the program: the pid is the node's.
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &network.namespace]).arg(program);
        Ok(command)
    }

    /// Its data folders.
    pub fn data_dirs(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.disks).map(|disk| folder.join(&self.name).join(format!("disk{disk}"))).collect()
    }
}

/// An address of this machine.
pub fn local(port: u16) -> String {
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}

impl Plan {
    /// The plan in the folder, if there is one.
    pub fn load(folder: &Path) -> Result<Option<Plan>, Failure> {
        let path = folder.join(FILE);
        match std::fs::read(&path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("{}: {e}", path.display()).into()),
        }
    }

    /// The plan in the folder, or a new one, with what the command line asks for. It is kept when this returns.
    pub fn load_or_make(args: &DevClusterArgs) -> Result<Plan, Failure> {
        let folder = &args.data_dir;
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut ports = Ports::default();
        let known = Plan::load(folder)?;
        let mut plan = match known.clone() {
            Some(plan) => plan.checked(args)?,
            None => Plan::new(args, &mut ports)?,
        };
        plan.want_balancers(args.balancers, &mut ports)?;
        if known.as_ref() != Some(&plan) {
            plan.save(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        Ok(plan)
    }

    fn new(args: &DevClusterArgs, ports: &mut Ports) -> io::Result<Plan> {
        let disks = args.disks.unwrap_or(1);
        let network = |n: u16| {
            let namespace = format!("{}{n}", args.networks.as_ref()?);
            let [high, low] = n.to_be_bytes();
            Some(Network { namespace, address: Ipv4Addr::new(10, 77, high, low) })
        };
        let node = |n| {
            let (port, admin_port, rpc_port) = (ports.take()?, ports.take()?, ports.take()?);
            Ok(NodePlan { name: format!("n{n}"), port, admin_port, rpc_port, disks, network: network(n) })
        };
        Ok(Plan { nodes: (1..=args.nodes.unwrap_or(1)).map(node).collect::<io::Result<_>>()?, balancers: Vec::new() })
    }

    /// A cluster keeps its nodes and disks.
    fn checked(self, args: &DevClusterArgs) -> Result<Plan, Failure> {
        let folder = args.data_dir.display();
        let nodes = self.nodes.len();
        if args.nodes.is_some_and(|wanted| usize::from(wanted) != nodes) {
            return Err(format!(
                "{folder} holds a cluster of {nodes} nodes; leave --nodes out, or name another folder"
            )
            .into());
        }
        let other = self.nodes.iter().find(|node| args.disks.is_some_and(|wanted| wanted != node.disks));
        match other {
            Some(node) => Err(format!(
                "{folder} holds a cluster whose node {} has {} data folders; leave --disks out, or name another folder",
                node.name, node.disks
            )
            .into()),
            None => Ok(self),
        }
    }

    /// Balancers keep nothing: there may be more or fewer of them at each start.
    fn want_balancers(&mut self, wanted: Option<u16>, ports: &mut Ports) -> io::Result<()> {
        let Some(wanted) = wanted else { return Ok(()) };
        self.balancers.truncate(wanted.into());
        while self.balancers.len() < usize::from(wanted) {
            self.balancers.push(BalancerPlan { port: ports.take()?, admin_port: ports.take()? });
        }
        Ok(())
    }

    fn save(&self, folder: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let next = folder.join(FILE_NEXT);
        std::fs::write(&next, text)?;
        std::fs::rename(next, folder.join(FILE))
    }
}

/// Free ports, all different: each is held until all were taken. Another program may take one before it is used; the start then
/// fails and says so.
#[derive(Default)]
struct Ports(Vec<TcpListener>);

impl Ports {
    fn take(&mut self) -> io::Result<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        self.0.push(listener);
        Ok(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn args(folder: &Path, nodes: Option<u16>, disks: Option<u16>, balancers: Option<u16>) -> DevClusterArgs {
        DevClusterArgs { nodes, disks, balancers, data_dir: folder.to_owned(), networks: None, json: true }
    }

    #[test]
    fn a_folder_keeps_its_cluster() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("dev");
        let made = Plan::load_or_make(&args(&folder, Some(3), Some(2), Some(2))).expect("made");
        assert_eq!(made.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n1", "n2", "n3"]);
        assert_eq!(made.nodes[1].data_dirs(&folder), [folder.join("n2/disk0"), folder.join("n2/disk1")]);
        let ports: BTreeSet<u16> = made
            .nodes
            .iter()
            .flat_map(|node| [node.port, node.admin_port, node.rpc_port])
            .chain(made.balancers.iter().flat_map(|balancer| [balancer.port, balancer.admin_port]))
            .collect();
        assert_eq!(ports.len(), 13, "all ports differ");
        assert_eq!(Plan::load_or_make(&args(&folder, None, None, None)).expect("found"), made);
        assert_eq!(Plan::load_or_make(&args(&folder, Some(3), Some(2), Some(2))).expect("found"), made);
    }

    #[test]
    fn nodes_and_disks_of_a_cluster_do_not_change_but_balancers_may() {
        let dir = tempfile::tempdir().expect("a folder");
        let made = Plan::load_or_make(&args(dir.path(), None, None, Some(1))).expect("made");
        assert_eq!((made.nodes.len(), made.nodes[0].disks), (1, 1));
        assert!(Plan::load_or_make(&args(dir.path(), Some(2), None, None)).is_err());
        assert!(Plan::load_or_make(&args(dir.path(), None, Some(2), None)).is_err());
        let more = Plan::load_or_make(&args(dir.path(), None, None, Some(2))).expect("more balancers");
        assert_eq!((more.balancers.len(), &more.balancers[0]), (2, &made.balancers[0]));
        let none = Plan::load_or_make(&args(dir.path(), None, None, Some(0))).expect("no balancers");
        assert!(none.balancers.is_empty() && none.nodes == made.nodes);
    }

    #[test]
    fn a_damaged_plan_is_an_error_and_not_a_new_cluster() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join(FILE), b"{\"nodes\": [").expect("written");
        assert!(Plan::load_or_make(&args(dir.path(), None, None, None)).is_err());
    }
}
