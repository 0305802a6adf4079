//! What every transport promises, tried over the simulated network and over TCP.
//!
//! Promises: each scenario runs over both. Refuses to know: how either does it, and what only one of them can do.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

mod fixture;

use bytes::Bytes;
use fixture::{BULK, Cluster, ECHO, LONG, NOBODY_SERVES, SHORT, SLOWLY, message, over_both};
use futures_util::future::join_all;
use rpc::limits::{MAX_BODY_BYTES, MAX_HEAD_BYTES};
use rpc::{CallError, Message};
use std::sync::atomic::Ordering;
use types::NodeId;

#[test]
fn a_call_is_answered_and_its_handler_knows_who_calls() {
    over_both(|cluster: Cluster| async move {
        for bytes in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20, MAX_BODY_BYTES] {
            let body: Bytes = (0..bytes).map(|n| ((n * 7) >> 3) as u8).collect::<Vec<_>>().into();
            for (from, to, service) in [(1, 2, ECHO), (1, 2, BULK), (3, 2, ECHO), (2, 1, BULK)] {
                let sent = message("echo", body.clone());
                let answer = cluster.from(from).call(to, service, sent, LONG).await.unwrap();
                assert_eq!(answer, message(&from.to_string(), body.clone()), "{bytes} bytes from {from} to {to}");
            }
        }
    });
}

#[test]
fn a_refusal_says_why_and_an_unknown_service_is_one() {
    over_both(|cluster: Cluster| async move {
        let refused = cluster.call(1, 2, message("refuse", "x"), LONG).await;
        assert_eq!(refused, Err(CallError::Refused(2, "as was asked".to_owned())));
        let unknown = cluster.from(1).call(2, NOBODY_SERVES, message("echo", "x"), LONG).await;
        assert_eq!(unknown, Err(CallError::Refused(2, "no service 9".to_owned())));
        assert!(cluster.call(1, 2, message("echo", "x"), LONG).await.is_ok());
    });
}

#[test]
fn a_message_above_the_limits_is_refused_before_it_leaves() {
    over_both(|cluster: Cluster| async move {
        for (head, body) in [(MAX_HEAD_BYTES + 1, 0), (0, MAX_BODY_BYTES + 1)] {
            let long = Message { head: vec![0; head].into(), body: vec![0; body].into() };
            for to in [1, 2] {
                let answer = cluster.call(1, to, long.clone(), LONG).await;
                assert!(matches!(answer, Err(CallError::Refused(..))), "{answer:?}");
                cluster.from(1).send(to, ECHO, long.clone());
            }
        }
        let largest = Message { head: vec![0; MAX_HEAD_BYTES].into(), body: vec![0; MAX_BODY_BYTES].into() };
        assert!(cluster.call(1, 2, largest, LONG).await.is_ok());
        assert!(cluster.echo(2).received.lock().is_empty());
    });
}

#[test]
fn a_call_that_takes_too_long_is_lost_and_its_handler_goes_on_to_its_end() {
    over_both(|cluster: Cluster| async move {
        for (to, lost) in [(2, 1), (1, 1)] {
            let answer = cluster.from(1).call(to, SLOWLY, message("", "x"), SHORT).await;
            assert_eq!(answer, Err(CallError::Lost(to)));
            let echo = cluster.echo(to);
            assert_eq!(echo.ended.load(Ordering::SeqCst), 0);
            cluster.until(|| echo.ended.load(Ordering::SeqCst) == lost).await;
        }
        assert_eq!(cluster.call(1, 2, message("hang", ""), SHORT).await, Err(CallError::Lost(2)));
    });
}

#[test]
fn a_call_that_is_dropped_disturbs_nobody() {
    over_both(|cluster: Cluster| async move {
        let transport = cluster.from(1);
        for _ in 0..20 {
            let dropped = transport.call(2, ECHO, message("hang", ""), LONG);
            assert!(cluster.timers.timeout(SHORT / 50, dropped).await.is_none());
            drop(transport.call(2, ECHO, message("never polled", ""), LONG));
        }
        assert!(cluster.call(1, 2, message("echo", "x"), LONG).await.is_ok());
        let echo = cluster.echo(2);
        assert!(echo.begun.load(Ordering::SeqCst) <= 21, "a call that was never polled was made");
    });
}

#[test]
fn many_calls_at_once_get_each_its_own_answer() {
    over_both(|cluster: Cluster| async move {
        let calls = (0..600_usize).map(|n| {
            let (from, to) = ([1, 2, 3][n % 3], [2, 3, 1][n % 3]);
            let service = if n % 2 == 0 { ECHO } else { BULK };
            let body = Bytes::from(vec![n as u8; n * 50]);
            let call = cluster.from(from).call(to, service, message("echo", body.clone()), LONG);
            async move { assert_eq!(call.await, Ok(message(&from.to_string(), body)), "call {n}") }
        });
        join_all(calls).await;
    });
}

#[test]
fn messages_without_answer_arrive_once_and_in_order_while_nothing_is_lost() {
    over_both(|cluster: Cluster| async move {
        for n in 0..2000_u32 {
            let service = if n % 2 == 0 { ECHO } else { BULK };
            cluster.from(1).send(2, service, message("", Bytes::from(n.to_string())));
            if n % 100 == 99 {
                cluster.timers.sleep(SHORT / 20).await;
            }
        }
        let echo = cluster.echo(2);
        cluster.until(|| echo.received.lock().len() == 2000).await;
        let received: Vec<(NodeId, u32)> =
            echo.received.lock().iter().map(|(from, body)| (*from, number(body))).collect();
        assert!(received.iter().all(|(from, _)| *from == 1));
        for parity in 0..2 {
            let of_service = received.iter().map(|(_, n)| *n).filter(|n| n % 2 == parity);
            assert!(of_service.eq((0..2000).filter(|n| n % 2 == parity)), "service {parity}");
        }
    });
}

fn number(body: &Bytes) -> u32 {
    std::str::from_utf8(body).unwrap().parse().unwrap()
}

#[test]
fn a_node_speaks_to_itself_as_to_others() {
    over_both(|cluster: Cluster| async move {
        assert_eq!(cluster.from(2).node(), 2);
        assert_eq!(cluster.call(2, 2, message("echo", "x"), LONG).await, Ok(message("2", "x")));
        let refused = cluster.call(2, 2, message("refuse", "x"), LONG).await;
        assert_eq!(refused, Err(CallError::Refused(2, "as was asked".to_owned())));
        let unknown = cluster.from(2).call(2, NOBODY_SERVES, message("", ""), LONG).await;
        assert_eq!(unknown, Err(CallError::Refused(2, "no service 9".to_owned())));
        cluster.from(2).send(2, ECHO, message("", "y"));
        assert_eq!(*cluster.echo(2).received.lock(), [(2, Bytes::from("y"))]);
    });
}

#[test]
fn a_node_that_is_not_there_answers_nothing_and_is_reported() {
    over_both(|cluster: Cluster| async move {
        // 4 is listed and not there, 77 was never heard of.
        for to in [4, 77] {
            for _ in 0..5 {
                let answer = cluster.call(1, to, message("echo", "x"), SHORT).await;
                let gone = answer == Err(CallError::Unreachable(to)) || answer == Err(CallError::Lost(to));
                assert!(gone, "{answer:?}");
            }
            cluster.from(1).send(to, ECHO, message("", "x"));
        }
        assert!(cluster.call(1, 2, message("echo", "x"), LONG).await.is_ok());
    });
}

#[test]
fn a_killed_node_loses_its_calls_and_its_next_life_answers() {
    over_both(|cluster: Cluster| async move {
        assert!(cluster.call(1, 2, message("echo", "x"), LONG).await.is_ok());
        let hanging = cluster.from(1).call(2, ECHO, message("hang", ""), LONG / 10);
        let (echo, killer) = (cluster.echo(2), cluster.clone());
        let kill = async {
            killer.until(|| echo.begun.load(Ordering::SeqCst) == 2).await;
            killer.kill(2);
        };
        let (answer, ()) = futures_util::future::join(hanging, kill).await;
        assert_eq!(answer, Err(CallError::Lost(2)));
        assert!(cluster.call(1, 2, message("echo", "x"), SHORT).await.is_err());
        cluster.start(2).await;
        for _ in 0..200 {
            if cluster.call(1, 2, message("echo", "x"), SHORT).await.is_ok() {
                return;
            }
            cluster.timers.sleep(SHORT / 10).await;
        }
        panic!("the next life never answered");
    });
}
