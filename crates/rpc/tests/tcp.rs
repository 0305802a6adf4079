//! Attacks on the port between nodes, and peers that fail.
//!
//! Promises: rows 34 to 36 of the list of attacks, each by name. Refuses to know: timing, throughput.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

mod fixture;

use bytes::Bytes;
use env::Env;
use fixture::proxy::Proxy;
use fixture::raw::{ANSWER, CALL, PING, PONG, PROTOCOL, SEND, connect, frame, seal};
use fixture::{BULK, ECHO, Echo, LONG, Map, SHORT, config, handlers, identity, listen, map, message};
use futures_util::future::join_all;
use parking_lot::Mutex;
use rpc::handlers::Handlers;
use rpc::limits::MAX_BODY_BYTES;
use rpc::tcp::{Admission, Identity, Listener, Peers, knock};
use rpc::{Boxed, CallError, Handler, Message, Service, Transport};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Node 2, which listens, and what is needed to be node 1 or somebody else.
struct Scene {
    env: Env,
    map: Arc<Map>,
    echo: Arc<Echo>,
    listener: Listener,
}

impl Scene {
    async fn new(admission: Admission) -> Scene {
        let (env, map) = (Env::system(1), map());
        let echo = Echo::new(env.timers.clone());
        let listener = listen(&env, 2, &map, admission, &echo).await;
        Scene { env, map, echo, listener }
    }

    fn address(&self) -> String {
        self.listener.address().to_string()
    }

    fn node(&self, node: u32) -> Peers {
        Peers::new(config(&self.env, node, &self.map), Handlers::new())
    }

    async fn echo_from(&self, peers: &Peers) -> Result<Message, CallError> {
        peers.call(2, ECHO, message("echo", "x"), LONG).await
    }

    fn heard(&self) -> u64 {
        self.echo.begun.load(Ordering::SeqCst) + self.echo.received.lock().len() as u64
    }

    async fn until(&self, mut holds: impl FnMut() -> bool) {
        for _ in 0..1000 {
            if holds() {
                return;
            }
            self.env.timers.sleep(Duration::from_millis(10)).await;
        }
        panic!("it never was so");
    }
}

/// Writes, and reads to the end of the connection, which comes soon.
async fn say(mut stream: tokio_rustls::client::TlsStream<TcpStream>, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let conversation = async {
        // Either may fail with the reset that ends it.
        let _ = stream.write_all(bytes).await;
        let _ = stream.flush().await;
        let _ = stream.read_to_end(&mut answer).await;
    };
    tokio::time::timeout(LONG, conversation).await.expect("the other side ends it");
    answer
}

#[tokio::test]
async fn whoever_shows_no_key_is_refused() {
    let scene = Scene::new(Admission::Members).await;
    let refused = match connect(&scene.address(), None, Some(PROTOCOL)).await {
        Err(_) => true,
        // With TLS 1.3 our side may be done before the other looks at what we did not show.
        Ok(stream) => say(stream, &frame(SEND, 1, 0, b"x")).await.is_empty(),
    };
    assert!(refused && scene.heard() == 0);
}

#[tokio::test]
async fn whoever_does_not_speak_tls_is_refused() {
    let scene = Scene::new(Admission::Members).await;
    let plain = frame(SEND, 1, 0, b"x");
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &plain, &[0; 64], &[0xff; 5000], &[0x16, 3, 1, 0xff, 0xff]]
    {
        let mut stream = TcpStream::connect(scene.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let end = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await;
        assert!(end.is_ok() && answer.len() < 100, "an alert at most");
    }
    assert_eq!(scene.heard(), 0);
    assert!(scene.echo_from(&scene.node(1)).await.is_ok());
}

#[tokio::test]
async fn a_key_that_the_map_does_not_list_is_refused() {
    let scene = Scene::new(Admission::Members).await;
    let mut config = config(&scene.env, 1, &scene.map);
    config.identity = Identity::from_secret([0xaa; 32]);
    let stranger = Peers::new(config, Handlers::new());
    assert_eq!(scene.echo_from(&stranger).await, Err(CallError::Unreachable(2)), "nothing was sent");
    let raw = connect(&scene.address(), Some([0xaa; 32]), Some(PROTOCOL)).await;
    if let Ok(stream) = raw {
        assert!(say(stream, &frame(CALL, 1, 1, b"x")).await.is_empty());
    }
    assert_eq!(scene.heard(), 0);
}

#[tokio::test]
async fn a_node_with_another_key_than_the_map_says_gets_nothing() {
    let scene = Scene::new(Admission::Members).await;
    // 3 listens where the map says 2 does.
    let impostor = Echo::new(scene.env.timers.clone());
    let listener = listen(&scene.env, 3, &scene.map, Admission::Members, &impostor).await;
    scene.map.addresses.lock().insert(2, listener.address().to_string());
    assert_eq!(scene.echo_from(&scene.node(1)).await, Err(CallError::Unreachable(2)));
    assert_eq!(impostor.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_node_speaks_in_its_own_name_whatever_it_says() {
    let scene = Scene::new(Admission::Members).await;
    let mut config = config(&scene.env, 3, &scene.map);
    config.node = 1;
    let liar = Peers::new(config, Handlers::new());
    assert_eq!(scene.echo_from(&liar).await, Ok(message("3", "x")));
    liar.send(2, ECHO, message("", "y"));
    scene.until(|| !scene.echo.received.lock().is_empty()).await;
    assert_eq!(*scene.echo.received.lock(), [(3, Bytes::from("y"))]);
}

#[tokio::test]
async fn another_protocol_of_the_same_node_is_not_taken_for_this_one() {
    let scene = Scene::new(Admission::Members).await;
    for protocol in [None, Some(&b"h2"[..]), Some(b"ashlar-rpc/2")] {
        if let Ok(stream) = connect(&scene.address(), Some([1; 32]), protocol).await {
            assert!(say(stream, &frame(CALL, 1, 1, b"x")).await.is_empty(), "{protocol:?}");
        }
    }
    assert_eq!(scene.heard(), 0);
}

#[tokio::test]
async fn a_node_removed_from_the_map_is_cut_off_at_once() {
    let scene = Scene::new(Admission::Members).await;
    let node = scene.node(1);
    assert!(scene.echo_from(&node).await.is_ok());
    let mut idle = connect(&scene.address(), Some([1; 32]), Some(PROTOCOL)).await.unwrap();
    let heard = scene.heard();
    scene.map.keys.lock().remove(&1);
    node.send(2, ECHO, message("", "y"));
    assert!(scene.echo_from(&node).await.is_err());
    assert_eq!(scene.heard(), heard, "no message of it is looked at");
    // Also a connection on which it says nothing.
    assert_eq!(idle.read(&mut [0; 10]).await.unwrap_or(0), 0);
    // And nobody speaks to a node that the map no longer lists.
    scene.map.keys.lock().insert(1, identity(1).key_sha256());
    scene.until_ok(&node).await;
    scene.map.keys.lock().remove(&2);
    assert_eq!(scene.echo_from(&node).await, Err(CallError::Unreachable(2)));
}

impl Scene {
    async fn until_ok(&self, peers: &Peers) {
        for _ in 0..500 {
            if self.echo_from(peers).await.is_ok() {
                return;
            }
            self.env.timers.sleep(Duration::from_millis(10)).await;
        }
        panic!("it never answered");
    }
}

#[tokio::test]
async fn a_recorded_conversation_played_again_does_nothing() {
    let scene = Scene::new(Admission::Members).await;
    let proxy = Proxy::to(scene.address()).await;
    scene.map.addresses.lock().insert(2, proxy.address.to_string());
    let node = scene.node(1);
    assert!(scene.echo_from(&node).await.is_ok());
    node.send(2, ECHO, message("", "y"));
    scene.until(|| scene.heard() == 2).await;
    let recorded = proxy.heard.lock()[0].clone();
    assert!(recorded.len() > 300);
    // On the same service, and, as each connection is proved afresh, on any other.
    let mut stream = TcpStream::connect(scene.address()).await.unwrap();
    stream.write_all(&recorded).await.unwrap();
    let mut answer = Vec::new();
    let end = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await;
    assert!(end.is_ok(), "the other side ends it");
    assert_eq!(scene.heard(), 2);
}

#[tokio::test]
async fn malformed_frames_end_their_connection_and_nothing_else() {
    let scene = Scene::new(Admission::Members).await;
    let node = scene.node(1);
    assert!(scene.echo_from(&node).await.is_ok());
    let forged = |at: usize, bytes: &[u8]| {
        let mut frame = frame(CALL, 1, 7, b"body");
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut frame);
        frame
    };
    let mut damaged = frame(CALL, 1, 7, b"body");
    *damaged.last_mut().unwrap() ^= 1;
    let mut header = frame(CALL, 1, 7, b"body");
    header[37] ^= 1;
    let malformed = [
        vec![0; 100],
        b"../../etc/passwd, and more than forty bytes of it".to_vec(),
        forged(4, &[2]),
        forged(5, &[0]),
        forged(5, &[200]),
        forged(7, &[1]),
        forged(16, &u32::MAX.to_le_bytes()),
        forged(20, &u32::MAX.to_le_bytes()),
        forged(20, &(MAX_BODY_BYTES as u32 + 1).to_le_bytes()),
        damaged,
        header,
        frame(ANSWER, 1, 1, b"nobody asked"),
        frame(PONG, 0, 0, b""),
    ];
    for bytes in malformed {
        let stream = connect(&scene.address(), Some([3; 32]), Some(PROTOCOL)).await.unwrap();
        let answer = say(stream, &bytes).await;
        assert!(answer.is_empty(), "{bytes:?} was answered");
    }
    assert_eq!(scene.heard(), 1, "no handler saw any of it");
    assert!(scene.echo_from(&node).await.is_ok());
}

#[tokio::test]
async fn numbers_out_of_range_are_answered_and_do_no_harm() {
    let scene = Scene::new(Admission::Members).await;
    let mut stream = connect(&scene.address(), Some([3; 32]), Some(PROTOCOL)).await.unwrap();
    for (service, number) in [(0, 0), (255, u64::MAX), (1, u64::MAX), (1, u64::MAX)] {
        stream.write_all(&frame(CALL, service, number, b"x")).await.unwrap();
        stream.write_all(&frame(SEND, service, number, b"x")).await.unwrap();
        stream.flush().await.unwrap();
        let mut header = [0; 40];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(header[8..16], number.to_le_bytes(), "the answer to service {service}");
        let payload = [&header[16..20], &header[20..24]].map(|len| u32::from_le_bytes(len.try_into().unwrap()));
        stream.read_exact(&mut vec![0; payload.iter().sum::<u32>() as usize]).await.unwrap();
    }
    scene.until(|| scene.heard() == 4).await;
}

#[tokio::test]
async fn calls_hold_no_more_memory_than_there_is() {
    let scene = Scene::new(Admission::Members).await;
    let memory = config(&scene.env, 2, &scene.map).call_memory.budget_bytes();
    let node = scene.node(1);
    let calls = (0..7).map(|_| {
        let long = Message { head: Bytes::from("hang"), body: vec![1; MAX_BODY_BYTES].into() };
        node.call(2, BULK, long, Duration::from_secs(6))
    });
    let answers = join_all(calls).await;
    let refused = Err(CallError::Refused(2, "there is no memory for it".to_owned()));
    let hanging = answers.iter().filter(|answer| **answer == Err(CallError::Lost(2))).count();
    assert!((1..=memory / MAX_BODY_BYTES).contains(&hanging), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| **answer == refused).count(), 7 - hanging);
    assert_eq!(scene.heard(), hanging as u64);
    assert!(scene.echo_from(&node).await.is_ok(), "small calls need none of it");
}

#[tokio::test]
async fn a_peer_that_never_reads_its_answers_is_cut_off() {
    let scene = Scene::new(Admission::Members).await;
    let mut stream = connect(&scene.address(), Some([3; 32]), Some(PROTOCOL)).await.unwrap();
    let pings = frame(PING, 0, 0, b"").repeat(1000);
    let flood = async {
        let mut sent = 0_u64;
        while stream.write_all(&pings).await.is_ok() {
            sent += 1000;
        }
        sent
    };
    let sent = tokio::time::timeout(LONG, flood).await.expect("the other side ends it");
    assert!(sent < 5_000_000, "{sent} pings");
    assert!(scene.echo_from(&scene.node(1)).await.is_ok());
}

#[tokio::test]
async fn connections_that_say_nothing_are_in_nobodys_way() {
    let scene = Scene::new(Admission::Members).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(scene.address()).await.unwrap());
    }
    assert!(scene.echo_from(&scene.node(1)).await.is_ok());
}

#[tokio::test]
async fn a_peer_that_falls_silent_loses_its_calls_in_moments_and_is_found_again() {
    let scene = Scene::new(Admission::Members).await;
    let proxy = Proxy::to(scene.address()).await;
    scene.map.addresses.lock().insert(2, proxy.address.to_string());
    let node = scene.node(1);
    assert!(scene.echo_from(&node).await.is_ok());
    proxy.hold(true);
    // Not at its timeout of 20 s: after three pings of three tenths of a second.
    let begin = tokio::time::Instant::now();
    assert_eq!(scene.echo_from(&node).await, Err(CallError::Lost(2)));
    assert!(begin.elapsed() < LONG / 2);
    proxy.hold(false);
    scene.until_ok(&node).await;
}

/// Polls until it is done, on a thread that knows no runtime.
fn wait_for<T>(mut future: Boxed<T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn threads_that_know_no_runtime_call_and_send_too() {
    let scene = Scene::new(Admission::Members).await;
    let alone = handlers(&Echo::new(scene.env.timers.clone()));
    let node = Peers::new(config(&scene.env, 1, &scene.map), alone);
    let thread = std::thread::spawn(move || {
        node.send(2, ECHO, message("", "y"));
        node.send(1, ECHO, message("", "y"));
        let calls = [2, 1, 4].map(|to| wait_for(node.call(to, ECHO, message("echo", "x"), LONG)));
        let late = wait_for(node.call(2, ECHO, message("hang", ""), SHORT));
        (calls, late)
    });
    scene.until(|| thread.is_finished()).await;
    let (calls, late) = thread.join().unwrap();
    assert_eq!(calls, [Ok(message("1", "x")), Ok(message("1", "x")), Err(CallError::Unreachable(4))]);
    assert_eq!(late, Err(CallError::Lost(2)));
    scene.until(|| scene.echo.received.lock().len() == 1).await;
}

#[tokio::test]
async fn bulk_and_the_rest_take_connections_of_their_own_and_keep_them() {
    let scene = Scene::new(Admission::Members).await;
    let proxy = Proxy::to(scene.address()).await;
    scene.map.addresses.lock().insert(2, proxy.address.to_string());
    let node = scene.node(1);
    for n in 0..50 {
        let service = if n % 2 == 0 { ECHO } else { BULK };
        assert!(node.call(2, service, message("echo", "x"), LONG).await.is_ok());
    }
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_stranger_is_admitted_to_one_service_and_appears_as_nobody() {
    let scene = Scene::new(Admission::StrangersTo(ECHO)).await;
    let (address, key) = (scene.address(), identity(2).key_sha256());
    let (door, stranger) = ((2, address.as_str(), key), Identity::from_secret([0xaa; 32]));
    let admitted = knock(&scene.env, &stranger, door, ECHO, message("echo", "may I?"), LONG).await;
    assert_eq!(admitted, Ok(message("0", "may I?")));
    let elsewhere = knock(&scene.env, &stranger, door, BULK, message("echo", "x"), LONG).await;
    assert_eq!(elsewhere, Err(CallError::Lost(2)), "cut off");
    let long = knock(&scene.env, &stranger, door, ECHO, message("echo", vec![0; 100_000]), LONG).await;
    assert_eq!(long, Err(CallError::Lost(2)), "cut off");
    assert_eq!(scene.heard(), 1);
    // Members come through the same door, to all services.
    let answer = scene.node(1).call(2, BULK, message("echo", "x"), LONG).await;
    assert_eq!(answer, Ok(message("1", "x")));
}

#[tokio::test]
async fn a_stranger_speaks_only_to_the_key_it_was_told_and_only_where_strangers_may() {
    let scene = Scene::new(Admission::StrangersTo(ECHO)).await;
    let stranger = Identity::from_secret([0xaa; 32]);
    let address = scene.address();
    let wrong = (2, address.as_str(), identity(3).key_sha256());
    let answer = knock(&scene.env, &stranger, wrong, ECHO, message("echo", "secret"), LONG).await;
    assert_eq!(answer, Err(CallError::Unreachable(2)));
    let closed = Scene::new(Admission::Members).await;
    let address = closed.address();
    let door = (2, address.as_str(), identity(2).key_sha256());
    let answer = knock(&scene.env, &stranger, door, ECHO, message("echo", "x"), LONG).await;
    assert_eq!(answer, Err(CallError::Unreachable(2)));
    assert_eq!(scene.heard() + closed.heard(), 0);
}

/// Panics at every call.
struct Fragile;

impl Handler for Fragile {
    fn call(&self, _: u32, _: Message) -> Boxed<Result<Message, String>> {
        panic!("the planned panic")
    }

    fn receive(&self, _: u32, _: Message) {}
}

#[tokio::test]
async fn a_handler_that_panics_loses_its_call_and_nothing_else() {
    let (env, map) = (Env::system(1), map());
    let fragile = Service(7);
    let handlers = handlers(&Echo::new(env.timers.clone())).with(fragile, Arc::new(Fragile));
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(config(&env, 2, &map), address, Admission::Members, handlers).await.unwrap();
    map.addresses.lock().insert(2, listener.address().to_string());
    let node = Peers::new(config(&env, 1, &map), Handlers::new());
    assert_eq!(node.call(2, fragile, message("", ""), LONG).await, Err(CallError::Lost(2)));
    assert!(node.call(2, ECHO, message("echo", "x"), LONG).await.is_ok());
}

#[tokio::test]
async fn a_listener_that_stops_ends_its_connections_and_frees_its_port() {
    let scene = Scene::new(Admission::Members).await;
    let node = Arc::new(scene.node(1));
    assert!(scene.echo_from(&node).await.is_ok());
    let hanging = tokio::spawn({
        let node = node.clone();
        async move { node.call(2, ECHO, message("hang", ""), LONG).await }
    });
    scene.until(|| scene.heard() == 2).await;
    let address = scene.listener.address();
    scene.listener.stop().await;
    assert_eq!(hanging.await.unwrap(), Err(CallError::Lost(2)));
    assert!(node.call(2, ECHO, message("echo", "x"), SHORT).await.is_err());
    let again = tokio::net::TcpListener::bind(address).await;
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test]
async fn dropping_the_way_to_others_ends_its_connections() {
    let scene = Scene::new(Admission::Members).await;
    let proxy = Proxy::to(scene.address()).await;
    scene.map.addresses.lock().insert(2, proxy.address.to_string());
    let ended = Arc::new(Mutex::new(None));
    let node = scene.node(1);
    let hanging = node.call(2, ECHO, message("hang", ""), LONG);
    let (later, never_made) =
        (node.call(2, ECHO, message("echo", ""), LONG), scene.node(1).call(2, BULK, message("echo", ""), LONG));
    let waiting = tokio::spawn({
        let ended = ended.clone();
        async move { *ended.lock() = Some(hanging.await) }
    });
    scene.until(|| scene.heard() == 1).await;
    drop(node);
    waiting.await.unwrap();
    assert_eq!(*ended.lock(), Some(Err(CallError::Lost(2))));
    // And makes no new ones.
    assert_eq!(later.await, Err(CallError::Unreachable(2)));
    assert_eq!(never_made.await, Err(CallError::Unreachable(2)));
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 1);
}
