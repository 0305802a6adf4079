//! Whose turn it is: round robin per request, health, the end.

use crate::backend::{Backend, Deed, Readiness, ok};
use crate::client::Client;
use crate::{Front, PATIENCE, config};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;

async fn three() -> Vec<Backend> {
    let mut nodes = Vec::new();
    for body in ["0", "1", "2"] {
        nodes.push(Backend::start(ok(body)).await);
    }
    nodes
}

async fn front(nodes: &[Backend]) -> Front {
    Front::start(&nodes.iter().collect::<Vec<_>>()).await
}

/// Which node answered each of so many requests of one connection.
async fn answers(client: &mut Client, requests: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..requests {
        let answer = client.ask("GET", "/k", "", "").await;
        counts[answer.text().parse::<usize>().expect("a node's number")] += 1;
    }
    counts
}

#[tokio::test]
async fn requests_of_one_connection_go_round_all_nodes() {
    let nodes = three().await;
    let front = front(&nodes).await;
    let mut client = front.client().await;
    assert_eq!(answers(&mut client, 300).await, [100; 3]);
    assert_eq!(front.metric("connections").await, 1);
    for node in &nodes {
        assert_eq!(front.metric(&format!("node_requests_total{{node=\"{}\"}}", node.address)).await, 100);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_requests_of_many_connections_are_shared_equally() {
    let mut nodes = three().await;
    let front = front(&nodes).await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut client = front.client().await;
        clients.spawn(async move { answers(&mut client, 625).await });
    }
    let mut sums = [0; 3];
    while let Some(counts) = clients.join_next().await {
        let counts = counts.expect("no panic");
        (0..3).for_each(|i| sums[i] += counts[i]);
    }
    assert_eq!(sums.iter().sum::<usize>(), 10_000);
    assert!(sums.iter().max().expect("three") - sums.iter().min().expect("three") <= 1, "{sums:?}");
    let seen: Vec<usize> = nodes.iter_mut().map(|node| node.heads().len()).collect();
    assert_eq!(seen, sums, "nobody was asked twice");
}

#[tokio::test]
async fn a_node_that_is_not_ready_gets_nothing_and_returns_when_it_has_passed_its_check() {
    let nodes = three().await;
    let front = front(&nodes).await;
    let mut client = front.client().await;
    for (state, _) in [(Readiness::NotReady, 1), (Readiness::Silent, 2)] {
        nodes[1].say(state);
        let took = front.healthy(2).await;
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert_eq!(answers(&mut client, 100).await, [50, 0, 50]);
        nodes[1].say(Readiness::Ready);
        front.healthy(3).await;
        assert_eq!(answers(&mut client, 99).await, [33; 3]);
    }
}

#[tokio::test]
async fn a_balancer_without_a_node_says_so_and_serves_as_soon_as_there_is_one() {
    let node = Backend::start(ok("0")).await;
    node.say(Readiness::NotReady);
    let front = Front::start(&[&node]).await;
    assert_eq!(front.admin("/-/ready").await.0, 503);
    assert_eq!(front.admin("/-/live").await, (200, "live".to_owned()));
    let answer = front.client().await.ask("PUT", "/k", "", "body").await;
    assert_eq!((answer.status, answer.header("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(answer.header("content-type").as_deref(), Some("application/xml"));
    assert!(answer.text().contains("<Code>ServiceUnavailable</Code>") && answer.text().contains("try again"));
    let answer = front.client().await.ask("HEAD", "/k", "", "").await;
    assert_eq!((answer.status, answer.body.len()), (503, 0));
    assert_eq!(front.metric("own_answers_total{status=\"503\"}").await, 2);

    node.say(Readiness::Ready);
    front.healthy(1).await;
    assert_eq!(front.admin("/-/ready").await, (200, "ready".to_owned()));
    assert_eq!(front.client().await.ask("GET", "/k", "", "").await.text(), "0");
}

#[tokio::test]
async fn without_an_admin_address_a_node_is_asked_at_its_endpoint() {
    let mut node = Backend::start(ok("0")).await;
    let mut config = config(&[&node]);
    config.nodes[0].admin = None;
    let front = Front::with(config).await;
    assert!(node.head().await.starts_with("GET / HTTP/1.1\r\n"));
    assert_eq!(front.client().await.ask("GET", "/k", "", "").await.text(), "0");
    node.set(Deed::Answer(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_vec()));
    front.healthy(0).await;
    node.set(Deed::Answer(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec()));
    front.healthy(1).await;
}

#[tokio::test]
async fn at_the_end_requests_in_flight_are_finished_and_idle_connections_closed() {
    let (word, heard) = watch::channel(false);
    let halves = Deed::Halves(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na".to_vec(), b"b".to_vec(), heard);
    let mut node = Backend::start(ok("0")).await;
    let mut front = Front::start(&[&node]).await;
    let mut idle = front.client().await;
    assert_eq!(idle.ask("GET", "/k", "", "").await.text(), "0");
    node.set(halves);
    let mut busy = front.client().await;
    busy.send("GET /k HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert!(busy.head().await.is_some());
    node.heads();

    front.stop();
    assert_eq!(idle.rest().await, b"");
    let refused = async { while TcpStream::connect(front.address).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, refused).await.expect("its port is closed");
    assert_eq!(front.admin("/-/ready").await, (503, "stopping".to_owned()));
    word.send_replace(true);
    assert_eq!(busy.exactly(2).await.as_deref(), Some(&b"ab"[..]));
    assert_eq!(busy.rest().await, b"");
    drop((idle, busy));
    assert_eq!(front.ended().await, 0);
}

#[tokio::test]
async fn too_many_connections_are_told_so() {
    let node = Backend::start(ok("0")).await;
    let front = Front::with(balancer::Config { max_connections: 2, ..config(&[&node]) }).await;
    let (mut first, mut second) = (front.client().await, front.client().await);
    assert_eq!(first.ask("GET", "/k", "", "").await.text(), "0");
    assert_eq!(second.ask("GET", "/k", "", "").await.text(), "0");
    assert!(front.client().await.rest().await.starts_with(b"HTTP/1.1 503 "));
    drop(first);
    while front.metric("connections").await == 2 {}
    assert_eq!(front.client().await.ask("GET", "/k", "", "").await.text(), "0");
}

#[tokio::test]
async fn a_wrong_number_of_nodes_is_refused() {
    let none = balancer::Balancer::start(config(&[])).await;
    assert!(matches!(none, Err(balancer::StartError::Nodes)));
}
