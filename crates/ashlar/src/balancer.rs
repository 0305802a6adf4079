//! `ashlar balancer`: reads its options, says when it is ready, ends when it is told to.
#![allow(clippy::print_stdout)]

use crate::cli::BalancerArgs;
use crate::server::Failure;
use ::balancer::{Balancer, Config, TlsFiles};
use std::io::Write as _;
use std::time::Duration;

/// Clients' connections that are wanted if the machine allows it.
const CONNECTIONS: usize = 20_000;

/// Runs a balancer until it is told to end.
pub async fn run(args: BalancerArgs) -> Result<(), Failure> {
    let tls = args.tls_cert.zip(args.tls_key).map(|(certificate, key)| TlsFiles { certificate, key });
    let scheme = if tls.is_some() { "https" } else { "http" };
    if args.check_every == 0 {
        return Err("--check-every must be longer than nothing".into());
    }
    let balancer = Balancer::start(Config {
        listen: args.listen,
        admin_listen: args.admin_listen,
        nodes: args.nodes,
        check_every: Duration::from_millis(args.check_every),
        tls,
        // Each has a connection to a node beside it while a request is in flight.
        max_connections: crate::sizes::connections(2 * CONNECTIONS) / 2,
    })
    .await?;
    let (endpoint, admin) = (balancer.endpoint()?, balancer.admin_endpoint()?);
    let ended = crate::signals::end_asked()?;
    if args.json {
        let line = serde_json::json!({
            "endpoint": format!("{scheme}://{endpoint}"),
            "admin": format!("http://{admin}"),
            "pid": std::process::id(),
        });
        println!("{line}");
    } else {
        println!("The balancer is ready.\n\n  S3          {scheme}://{endpoint}\n  Admin       http://{admin}");
    }
    let _ = std::io::stdout().flush();
    let cut = balancer.run(ended).await;
    if cut > 0 {
        tracing::warn!(connections = cut, "requests were cut off at the end");
    }
    tracing::info!("ended");
    Ok(())
}
