//! Clients that take nothing: others get on.

mod fixture;

use fixture::ask::{self, content};
use fixture::{Node, Setup};
use object_controller::api::ObjectStore;

#[test]
fn readers_that_stall_do_not_starve_another() {
    let node = Node::born(71, Setup::default());
    node.run(|c| async move {
        let bucket = ask::make_bucket(&c, "bucket").await;
        let bytes = content(1, 4_000_000);
        ask::put(&c, &bucket, "k", bytes.clone()).await.expect("a put");
        let mut stalled = Vec::new();
        for _ in 0..40 {
            let mut body = c.lookup(&bucket, &ask::key("k"), None, true).await.expect("a handle").read(0, 4_000_000);
            // What the socket has not taken yet.
            let held = [body.next().await.expect("bytes"), body.next().await.expect("bytes")];
            stalled.push((body, held));
        }
        assert_eq!(ask::get(&c, &bucket, "k", None).await.expect("it gets on").1, bytes);
        drop(stalled);
    });
}
