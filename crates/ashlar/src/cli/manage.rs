//! The command line of buckets, nodes, disks and objects, as types.

use super::parse_duration_ms;
use clap::{Args, Subcommand};
use types::DiskId;

#[derive(Subcommand)]
pub enum BucketCommand {
    /// All buckets, and how their bytes are kept.
    List,
    /// How the bytes of a bucket are kept, and whether the bucket or the cluster says so.
    Durability { bucket: String },
    /// Change it: for new uploads at once, for what is there in the background. What is not said stays as it is.
    SetDurability(SetDurability),
}

#[derive(Args)]
pub struct SetDurability {
    pub bucket: String,
    /// Copies of each byte, on as many nodes (on one node: disks).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    pub rf: Option<u8>,
    /// Encode what is not written any more: K data and M parity members on as many nodes, such as 4+2; or none.
    #[arg(long, value_name = "K+M|none")]
    pub ec: Option<String>,
    /// For how long it was not written before it is encoded, such as 12h or 30d.
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
    pub ec_after: Option<u64>,
    /// First back to what the cluster does.
    #[arg(long)]
    pub default: bool,
}

#[derive(Subcommand)]
pub enum NodeCommand {
    /// The nodes, what is thought of them, and how much lies on them.
    List,
    /// Its data moves to the others; then it can be removed.
    Drain(NodeArgs),
    /// Back in full service.
    Resume(NodeArgs),
    /// It will be away for up to 10 minutes: nothing is put on it, and nothing is made again yet.
    Maintenance(NodeArgs),
    /// Out for good, once nothing counts on it any more.
    Remove(NodeArgs),
}

#[derive(Args)]
pub struct NodeArgs {
    /// n3, or 3.
    pub node: String,
    /// Do it whatever it breaks; what it broke is named.
    #[arg(long)]
    pub force: bool,
}

#[derive(Subcommand)]
pub enum DiskCommand {
    /// The disks, and how much lies on them.
    List,
    /// Its data moves to other disks; then it can be removed.
    Drain(DiskArgs),
    /// Back in service.
    Resume(DiskArgs),
    /// Out, once nothing counts on it any more.
    Remove(DiskArgs),
    /// It is gone with all it held: its copies are made again from others.
    Lose(DiskArgs),
}

#[derive(Args)]
pub struct DiskArgs {
    /// Its id, as `disk list` shows it.
    pub disk: DiskId,
    /// Do it whatever it breaks; what it broke is named.
    #[arg(long)]
    pub force: bool,
}

#[derive(Subcommand)]
pub enum ObjectCommand {
    /// Where an object lies, and how many sound copies there are just now. Exit code 1 if there are fewer than there should be.
    Stat {
        bucket: String,
        key: String,
        /// The current version if left out.
        #[arg(long)]
        version_id: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::{DiskArgs, DiskCommand, NodeCommand};
    use crate::cli::{AdminCommand, BucketCommand, Cli, Command};
    use clap::Parser;
    use types::DiskId;

    fn parse(line: &str) -> Result<AdminCommand, String> {
        match Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())?.command {
            Command::Admin(args) => Ok(args.command),
            _ => panic!("not an admin command"),
        }
    }

    #[test]
    fn what_is_wished_for_is_read_as_people_write_it() {
        let Ok(AdminCommand::Node(NodeCommand::Drain(args))) = parse("ashlar admin node drain n3 --force") else {
            panic!("not a drain")
        };
        assert!(args.node == "n3" && args.force);
        let lose = parse("ashlar admin disk lose 00000000000000ab");
        let Ok(AdminCommand::Disk(DiskCommand::Lose(DiskArgs { disk: DiskId(0xab), force: false }))) = lose else {
            panic!("not that disk")
        };
        let set = parse("ashlar admin bucket set-durability b --rf 3 --ec 4+2 --ec-after 12h");
        let Ok(AdminCommand::Bucket(BucketCommand::SetDurability(set))) = set else { panic!("not a policy") };
        assert_eq!(
            (set.rf, set.ec.as_deref(), set.ec_after, set.default),
            (Some(3), Some("4+2"), Some(43_200_000), false)
        );
        for wrong in ["bucket set-durability b --rf 4", "node drian n3", "node drain", "disk lose xyz", "object stat b"]
        {
            assert!(parse(&format!("ashlar admin {wrong}")).is_err(), "{wrong}");
        }
    }
}
