//! Sections 2 to 4 of the S3 cases: versions, conditions, ranges and part reads, over the wire.

mod case_support;

use case_support::{Server, Who, call, parse};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn case_31_versions_and_markers_are_interleaved_newest_first() {
    let s = Server::versioned().await;
    let v1 = s.put("k", "1").await.version();
    let d1 = s.send(call("DELETE", "/bucket/k")).await.ok().version();
    let v2 = s.put("k", "2").await.version();
    let d2 = s.send(call("DELETE", "/bucket/k")).await.ok().version();
    let page = s.get("/bucket?versions").await.ok();
    assert_eq!(page.all("VersionId"), [d2, v2, d1, v1]);
    assert_eq!(page.all("IsLatest"), ["true", "false", "false", "false"]);
    let text = page.text();
    let kinds: Vec<_> = text.match_indices("<DeleteMarker>").chain(text.match_indices("<Version>")).collect();
    assert_eq!(kinds.len(), 4);
    assert!(text.find("<DeleteMarker>") < text.find("<Version>"));
}

#[tokio::test]
async fn cases_32_and_33_version_markers_neither_repeat_nor_skip() {
    let s = Server::start().await;
    s.put("k", "null").await;
    s.versioning("Enabled").await;
    s.put("k", "new").await;
    s.put("z", "z").await;
    let first = s.get("/bucket?versions&max-keys=1").await.ok();
    let marker =
        format!("key-marker={}&version-id-marker={}", first.one("NextKeyMarker"), first.one("NextVersionIdMarker"));
    let second = s.get(&format!("/bucket?versions&max-keys=1&{marker}")).await.ok();
    assert_eq!((second.all("VersionId"), second.one("NextVersionIdMarker")), (vec!["null".to_owned()], "null".into()));
    let third = s.get("/bucket?versions&max-keys=1&key-marker=k&version-id-marker=null").await.ok();
    assert_eq!(third.all("Key"), ["z"]);
    assert_eq!(s.get("/bucket?versions&key-marker=k").await.ok().all("Key"), ["z"]);
    assert_eq!(s.get("/bucket?versions&version-id-marker=null").await.status, 400);
}

#[tokio::test]
async fn cases_35_and_36_versions_are_grouped_and_filtered_like_objects() {
    let s = Server::versioned().await;
    s.puts(&["dir/test", "dir/subdir/test2", "a", "a/b"]).await;
    let page = s.get("/bucket?versions&delimiter=/&prefix=dir/").await.ok();
    assert_eq!((page.all("Key"), page.all("CommonPrefixes").len()), (vec!["dir/test".to_owned()], 1));
    assert!(page.one("CommonPrefixes").contains("dir/subdir/"));
    assert_eq!(s.get("/bucket?versions&prefix=a/").await.ok().all("Key"), ["a/b"]);
}

#[tokio::test]
async fn cases_37_38_and_46_readers_are_told_what_hides_a_key() {
    let s = Server::versioned().await;
    let foreign = s.put("other", "x").await.version();
    s.put("k", "x").await;
    let marker = s.send(call("DELETE", "/bucket/k")).await.ok();
    assert_eq!(marker.header("x-amz-delete-marker").as_deref(), Some("true"));
    for method in ["GET", "HEAD"] {
        let unknown = s.send(call(method, format!("/bucket/k?versionId={foreign}"))).await;
        assert_eq!(unknown.status, 404, "{method}");
        let hidden = s.send(call(method, "/bucket/k")).await;
        assert_eq!(hidden.status, 404);
        assert_eq!(hidden.header("x-amz-delete-marker").as_deref(), Some("true"));
        assert_eq!(hidden.version(), marker.version());
        let itself = s.send(call(method, format!("/bucket/k?versionId={}", marker.version()))).await;
        assert_eq!((itself.status, itself.header("x-amz-delete-marker").as_deref()), (405, Some("true")));
    }
    assert_eq!(s.get(&format!("/bucket/k?versionId={foreign}")).await.code(), "NoSuchVersion");
    assert_eq!(s.get("/bucket/k").await.code(), "NoSuchKey");
    for bad in ["not-a-version", ""] {
        assert_eq!(s.get(&format!("/bucket/k?versionId={bad}")).await.failure(), (400, "InvalidArgument".into()));
    }
}

#[tokio::test]
async fn case_44_copying_an_old_version_onto_its_key_restores_it() {
    let s = Server::versioned().await;
    let old = s.put("k", "old").await.version();
    s.put("k", "new").await;
    let restore = call("PUT", "/bucket/k").header("x-amz-copy-source", format!("bucket/k?versionId={old}"));
    let made = s.send(restore).await.ok();
    assert_eq!(made.header("x-amz-copy-source-version-id").as_deref(), Some(old.as_str()));
    assert_eq!(s.get("/bucket/k").await.text(), "old");
    s.send(call("DELETE", format!("/bucket/k?versionId={old}"))).await.ok();
    assert_eq!(s.get("/bucket/k").await.text(), "old", "case 43: the copy does not need its source");
    let idle = call("PUT", "/bucket/k").header("x-amz-copy-source", "bucket/k");
    assert_eq!(s.send(idle).await.failure(), (400, "InvalidRequest".into()));
}

#[tokio::test]
async fn case_45_tags_of_a_delete_marker_are_not_allowed() {
    let s = Server::versioned().await;
    s.put("k", "x").await;
    let marker = s.send(call("DELETE", "/bucket/k")).await.version();
    let target = format!("/bucket/k?tagging&versionId={marker}");
    assert_eq!(s.get(&target).await.failure(), (405, "MethodNotAllowed".into()));
    let put = call("PUT", target).body("<Tagging><TagSet/></Tagging>");
    assert_eq!(s.send(put).await.failure(), (405, "MethodNotAllowed".into()));
}

#[tokio::test]
async fn case_50_a_write_into_a_suspended_bucket_names_no_version_and_a_read_names_null() {
    let s = Server::versioned().await;
    s.versioning("Suspended").await;
    assert_eq!(s.put("k", "x").await.header("x-amz-version-id"), None);
    assert_eq!(s.get("/bucket/k").await.version(), "null");
    let gone = s.send(call("DELETE", "/bucket/k")).await;
    assert_eq!((gone.version(), gone.header("x-amz-delete-marker").as_deref()), ("null".into(), Some("true")));
}

#[tokio::test]
async fn case_51_old_versions_need_a_permission_of_their_own() {
    let s = Server::versioned().await;
    let v = s.put("k", "x").await.version();
    s.allow_alt(r#"["s3:GetObject","s3:PutObject"]"#, "bucket/*").await;
    assert_eq!(s.send(call("GET", "/bucket/k").by(Who::Alt)).await.status, 200);
    let old = format!("/bucket/k?versionId={v}");
    for method in ["GET", "HEAD"] {
        assert_eq!(s.send(call(method, old.clone()).by(Who::Alt)).await.status, 403, "row 27: {method}");
    }
    let copy = call("PUT", "/bucket/c").header("x-amz-copy-source", format!("bucket/k?versionId={v}")).by(Who::Alt);
    assert_eq!(s.send(copy).await.status, 403);
    s.allow_alt(r#"["s3:GetObjectVersion"]"#, "bucket/*").await;
    assert_eq!(s.send(call("GET", old).by(Who::Alt)).await.status, 200);
}

#[tokio::test]
async fn cases_54_56_and_62_conditional_writes_are_judged_on_the_current_version() {
    let s = Server::versioned().await;
    let first = s.put("k", "A").await.etag();
    let put = |name: &str, value: &str| call("PUT", "/bucket/k").header(name, value).body("B");
    assert_eq!(s.send(put("if-none-match", "*")).await.failure(), (412, "PreconditionFailed".into()));
    assert_eq!(s.get("/bucket/k").await.text(), "A");
    s.send(put("if-match", &format!("\"{first}\""))).await.ok();
    assert_eq!(s.send(put("if-match", &first)).await.status, 412);
    assert_eq!(s.send(put("if-none-match", "\"abc\"")).await.failure(), (501, "NotImplemented".into()));
    assert_eq!(s.send(put("if-none-match", "*").header("if-match", "\"x\"")).await.status, 501);
    let missing = call("PUT", "/bucket/none").header("if-match", "\"x\"").body("B");
    assert_eq!(s.send(missing).await.failure(), (404, "NoSuchKey".into()));
}

#[tokio::test]
async fn case_61_of_many_writers_that_want_a_new_key_exactly_one_wins() {
    let s = Arc::new(Server::start().await);
    let mut writers = Vec::new();
    for n in 0..50 {
        let s = Arc::clone(&s);
        writers.push(tokio::spawn(async move {
            let put = call("PUT", "/bucket/k").header("if-none-match", "*").body(format!("writer {n}"));
            (n, s.send(put).await.status)
        }));
    }
    let mut winners = Vec::new();
    for writer in writers {
        match writer.await.expect("a writer") {
            (n, 200) => winners.push(n),
            (_, status) => assert!([409, 412].contains(&status)),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(s.get("/bucket/k").await.text(), format!("writer {}", winners[0]));
}

#[tokio::test]
async fn case_59_not_modified_has_no_body_and_leaves_the_connection_usable() {
    let s = Server::start().await;
    let etag = s.put("k", "body").await.etag();
    let conditional = call("GET", "/bucket/k").header("if-none-match", format!("\"{etag}\""));
    let mut stream = TcpStream::connect(s.address).await.expect("connected");
    stream.write_all(&s.bytes_of(conditional, false)).await.expect("sent");
    let mut received = Vec::new();
    while !received.windows(4).any(|w| w == b"\r\n\r\n") {
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).await.expect("an answer");
        assert!(n > 0, "the connection stays open");
        received.extend_from_slice(&piece[..n]);
    }
    let (first, used) = parse(&received, false);
    assert_eq!((first.status, used), (304, received.len()));
    assert_eq!(first.etag(), etag);
    assert!(first.header("last-modified").expect("a date").ends_with(" GMT"));
    stream.write_all(&s.bytes_of(call("GET", "/bucket/k"), true)).await.expect("sent");
    received.clear();
    stream.read_to_end(&mut received).await.expect("an answer");
    assert_eq!(parse(&received, false).0.text(), "body");
}

#[tokio::test]
async fn cases_64_and_65_empty_conditions_are_ignored_and_dates_count_in_seconds() {
    let s = Server::start().await;
    s.put("k", "x").await;
    assert_eq!(s.send(call("GET", "/bucket/k").header("if-none-match", "")).await.status, 200);
    let modified = s.get("/bucket/k").await.header("last-modified").expect("a date");
    let long_before = "Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(s.send(call("GET", "/bucket/k").header("if-modified-since", &modified)).await.status, 304);
    assert_eq!(s.send(call("GET", "/bucket/k").header("if-modified-since", long_before)).await.status, 200);
    assert_eq!(s.send(call("GET", "/bucket/k").header("if-unmodified-since", &modified)).await.status, 200);
    assert_eq!(s.send(call("GET", "/bucket/k").header("if-unmodified-since", long_before)).await.status, 412);
}

#[tokio::test]
async fn cases_66_to_70_and_row_62_ranges_are_answered_as_on_aws() {
    let s = Server::start().await;
    s.put("empty", "").await;
    s.put("ten", "0123456789").await;
    let many = format!("bytes={}", vec!["0-0"; 1000].join(","));
    for (key, range, status, body, content_range) in [
        ("empty", "bytes=-1", 200, "", None),
        ("empty", "bytes=-524288", 200, "", None),
        ("empty", "bytes=0-0", 416, "", Some("bytes */0")),
        ("empty", "bytes=0-", 416, "", Some("bytes */0")),
        ("ten", "bytes=-0", 416, "", Some("bytes */10")),
        ("ten", "bytes=5-100", 206, "56789", Some("bytes 5-9/10")),
        ("ten", "bytes=10-", 416, "", Some("bytes */10")),
        ("ten", "bytes=-100", 206, "0123456789", Some("bytes 0-9/10")),
        ("ten", "bytes=2-4", 206, "234", Some("bytes 2-4/10")),
        ("ten", "bytes=4-2", 200, "0123456789", None),
        ("ten", many.as_str(), 200, "0123456789", None),
    ] {
        let answer = s.send(call("GET", format!("/bucket/{key}")).header("range", range)).await;
        assert_eq!(answer.status, status, "{key} {range}");
        assert_eq!(answer.header("content-range").as_deref(), content_range, "{key} {range}");
        match status {
            416 => assert_eq!(answer.code(), "InvalidRange"),
            _ => assert_eq!(answer.text(), body),
        }
        let head = s.send(call("HEAD", format!("/bucket/{key}")).header("range", range)).await;
        assert_eq!(head.status, status, "HEAD {key} {range}");
    }
}

#[tokio::test]
async fn case_72_an_object_put_whole_is_its_own_only_part() {
    let s = Server::start().await;
    s.put("k", "0123456789").await;
    let first = s.get("/bucket/k?partNumber=1").await;
    assert_eq!((first.status, first.text()), (206, "0123456789".into()));
    assert_eq!(first.header("content-range").as_deref(), Some("bytes 0-9/10"));
    assert_eq!(s.get("/bucket/k?partNumber=2").await.failure(), (416, "InvalidPartNumber".into()));
    assert_eq!(s.get("/bucket/k?partNumber=0").await.failure(), (400, "InvalidArgument".into()));
    let both = call("GET", "/bucket/k?partNumber=1").header("range", "bytes=0-1");
    assert_eq!(s.send(both).await.status, 400);
}

#[tokio::test]
async fn conditional_deletes_are_judged_on_what_they_delete() {
    let s = Server::start().await;
    let etag = s.put("k", "x").await.etag();
    assert_eq!(s.send(call("DELETE", "/bucket/k").header("if-match", "\"other\"")).await.status, 412);
    assert_eq!(s.send(call("DELETE", "/bucket/k").header("x-amz-if-match-size", "2")).await.status, 412);
    assert_eq!(s.get("/bucket/k").await.status, 200);
    assert_eq!(s.send(call("DELETE", "/bucket/k").header("if-match", etag)).await.status, 204);
    assert_eq!(s.get("/bucket/k").await.status, 404);
}
