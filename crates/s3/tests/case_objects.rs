//! Sections 6 to 11 of the S3 cases that the operations answer for: copy, delete, metadata, tags, buckets, forms.

mod case_support;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use case_support::{
    Answer, Call, DATE, SCOPE, Server, Who, call, delete_document, delete_objects, hmac, md5_base64, signing_key,
};

fn copy(source: &str) -> Call {
    call("PUT", "/bucket/copy").header("x-amz-copy-source", source)
}

#[tokio::test]
async fn cases_107_and_113_checksums_are_kept_and_serve_as_digest_of_a_batch() {
    let s = Server::start().await;
    let put = call("PUT", "/bucket/k").header("x-amz-checksum-crc32c", "4waSgw==").body("123456789");
    s.send(put).await.ok();
    let head = s.send(call("HEAD", "/bucket/k").header("x-amz-checksum-mode", "ENABLED")).await;
    assert_eq!(head.header("x-amz-checksum-crc32c").as_deref(), Some("4waSgw=="));
    let document = delete_document(&["k"], false);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, document.as_bytes()) as u32;
    let batch = call("POST", "/bucket?delete").body(document.clone());
    let with_crc = batch.clone().header("x-amz-checksum-crc32", STANDARD.encode(crc.to_be_bytes()));
    assert_eq!(s.send(batch).await.failure(), (400, "InvalidRequest".into()));
    assert_eq!(s.send(with_crc).await.ok().all("Key"), ["k"]);
}

#[tokio::test]
async fn cases_124_125_and_rows_22_and_53_keys_are_literal() {
    let s = Server::start().await;
    let long = "k".repeat(1024);
    let deep = "s/".repeat(512);
    let wide = "%E2%82%AC".repeat(341) + "k";
    let keys = [
        "/lead",
        "a//b",
        "a/./b",
        "a/../b",
        "trail/",
        "/",
        "../other/x",
        "%2e%2e%2fy",
        "..%5Cz",
        "x.",
        long.as_str(),
        deep.as_str(),
        wide.as_str(),
    ];
    for key in keys {
        s.put(key, key).await;
    }
    for key in keys {
        assert_eq!(s.get(&format!("/bucket/{key}")).await.ok().text(), key);
    }
    assert_eq!(s.list("").await.0.len(), keys.len());
    let too_long = s.send(call("PUT", format!("/bucket/{}", "k".repeat(1025))).body("x")).await;
    assert_eq!(too_long.failure(), (400, "KeyTooLongError".into()));
    for bad in ["a%00b", "%ff", "%zz"] {
        assert_eq!(s.send(call("PUT", format!("/bucket/{bad}")).by(Who::Nobody).body("x")).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn cases_126_and_127_copy_sources_are_decoded_exactly_once() {
    let s = Server::versioned().await;
    let v = s.put("a%20b%2Bc%7B%7D/%C3%A9%3F.txt", "it").await.version();
    let name = "a%20b%2Bc%7B%7D/%C3%A9%3F.txt";
    for source in [
        format!("bucket/{name}"),
        format!("/bucket/{name}"),
        format!("bucket%2F{name}"),
        format!("/bucket/{name}?versionId={v}"),
    ] {
        s.send(copy(&source)).await.ok();
        assert_eq!(s.get("/bucket/copy").await.ok().text(), "it", "{source}");
    }
}

#[tokio::test]
async fn case_128_copy_keeps_all_and_replace_drops_all() {
    let s = Server::start().await;
    let put = call("PUT", "/bucket/k").header("content-type", "text/a").header("cache-control", "a");
    s.send(put.header("x-amz-meta-a", "1").body("x")).await.ok();
    let with = |request: Call| request.header("content-type", "text/b").header("x-amz-meta-b", "2");
    s.send(with(copy("bucket/k"))).await.ok();
    let kept = s.send(call("HEAD", "/bucket/copy")).await;
    assert_eq!(kept.header("content-type").as_deref(), Some("text/a"));
    assert_eq!(
        (kept.header("cache-control").as_deref(), kept.header("x-amz-meta-a").as_deref()),
        (Some("a"), Some("1"))
    );
    assert_eq!(kept.header("x-amz-meta-b"), None);
    s.send(with(copy("bucket/k")).header("x-amz-metadata-directive", "REPLACE")).await.ok();
    let replaced = s.send(call("HEAD", "/bucket/copy")).await;
    assert_eq!(replaced.header("content-type").as_deref(), Some("text/b"));
    assert_eq!((replaced.header("cache-control"), replaced.header("x-amz-meta-a")), (None, None));
    assert_eq!(replaced.header("x-amz-meta-b").as_deref(), Some("2"));
    let unknown = copy("bucket/k").header("x-amz-metadata-directive", "MERGE");
    assert_eq!(s.send(unknown).await.failure(), (400, "InvalidArgument".into()));
}

#[tokio::test]
async fn case_129_tags_are_copied_or_replaced_as_asked() {
    let s = Server::start().await;
    s.send(call("PUT", "/bucket/k").header("x-amz-tagging", "a=1").body("x")).await.ok();
    s.send(copy("bucket/k")).await.ok();
    assert_eq!(s.get("/bucket/copy?tagging").await.ok().all("Value"), ["1"]);
    let replace =
        |tags: &str| copy("bucket/k").header("x-amz-tagging-directive", "REPLACE").header("x-amz-tagging", tags);
    s.send(replace("a=2")).await.ok();
    assert_eq!(s.get("/bucket/copy?tagging").await.ok().all("Value"), ["2"]);
    assert_eq!(s.send(replace(&format!("{}=x", "k".repeat(129)))).await.failure(), (400, "InvalidTag".into()));
}

#[tokio::test]
async fn cases_134_and_136_a_copy_onto_itself_keeps_the_bytes_and_is_newer() {
    let s = Server::start().await;
    s.put("k", "body").await;
    let before = s.get("/bucket/k").await.header("last-modified");
    let onto =
        call("PUT", "/bucket/k").header("x-amz-copy-source", "bucket/k").header("x-amz-metadata-directive", "REPLACE");
    s.send(onto.header("x-amz-meta-new", "1")).await.ok();
    let after = s.get("/bucket/k").await;
    assert_eq!((after.text(), after.header("x-amz-meta-new").as_deref()), ("body".into(), Some("1")));
    assert_ne!(after.header("last-modified"), before);
    let idle = call("PUT", "/bucket/k").header("x-amz-copy-source", "bucket/k");
    assert_eq!(s.send(idle).await.failure(), (400, "InvalidRequest".into()));
}

#[tokio::test]
async fn case_138_deleting_what_is_missing_succeeds_and_quiet_says_nothing() {
    let s = Server::start().await;
    s.put("exists", "x").await;
    let loud = s.send(delete_objects(delete_document(&["exists", "missing", "missing"], false))).await.ok();
    assert_eq!((loud.all("Deleted").len(), loud.all("Error").len()), (3, 0));
    let quiet = s.send(delete_objects(delete_document(&["missing"], true))).await.ok();
    assert_eq!(quiet.all("Key").len(), 0);
}

#[tokio::test]
async fn case_139_a_batch_is_authorised_key_by_key() {
    let s = Server::start().await;
    s.puts(&["ok/1", "no/1"]).await;
    s.allow_alt(r#"["s3:DeleteObject"]"#, "bucket/ok/*").await;
    let batch = delete_objects(delete_document(&["ok/1", "no/1"], false)).by(Who::Alt);
    let answer = s.send(batch).await;
    assert_eq!((answer.status, answer.one("Code")), (200, "AccessDenied".into()));
    assert!(answer.one("Deleted").contains("ok/1") && answer.one("Error").contains("no/1"));
    assert_eq!(s.list("").await.0, ["no/1"]);
}

#[tokio::test]
async fn row_51_batches_are_bounded_and_a_huge_key_is_its_own_error() {
    let s = Server::start().await;
    let keys: Vec<String> = (0..1001).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert_eq!(s.send(delete_objects(delete_document(&keys, true))).await.failure(), (400, "MalformedXML".into()));
    assert_eq!(s.send(delete_objects(delete_document(&keys[..1000], true))).await.status, 200);
    let large = "k".repeat(10 << 20);
    let refused = s.try_send(delete_objects(delete_document(&[&large], true))).await;
    assert!(refused.is_none_or(|answer| answer.status == 400));
    let answer = s.send(delete_objects(delete_document(&[&large[..2000], "a", "a"], false))).await.ok();
    assert_eq!((answer.one("Code"), answer.all("Deleted").len()), ("KeyTooLongError".into(), 2));
}

#[tokio::test]
async fn cases_140_and_141_tags_of_objects_and_buckets() {
    let s = Server::versioned().await;
    s.put("k", "x").await;
    assert_eq!(s.get("/bucket/k?tagging").await.ok().all("Tag").len(), 0);
    let tags =
        "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag><Tag><Key>b</Key><Value/></Tag></TagSet></Tagging>";
    let put = s.send(call("PUT", "/bucket/k?tagging").body(tags)).await.ok();
    let read = s.get("/bucket/k?tagging").await.ok();
    assert_eq!((read.all("Key"), read.version()), (vec!["a".to_owned(), "b".into()], put.version()));
    assert_eq!(s.get("/bucket/k").await.header("x-amz-tagging-count").as_deref(), Some("2"));
    let gone = s.send(call("DELETE", "/bucket/k?tagging")).await;
    assert_eq!((gone.status, gone.version()), (204, put.version()));
    assert_eq!(s.get("/bucket/k").await.header("x-amz-tagging-count"), None);
    let twice = tags.replace("<Key>b<", "<Key>a<");
    assert_eq!(s.send(call("PUT", "/bucket/k?tagging").body(twice)).await.failure(), (400, "InvalidTag".into()));
    assert_eq!(s.send(call("PUT", "/bucket?tagging").body(tags)).await.status, 204);
    assert_eq!(s.get("/bucket?tagging").await.ok().all("Key"), ["a", "b"]);
    s.send(call("DELETE", "/bucket?tagging")).await.ok();
    assert_eq!(s.get("/bucket?tagging").await.failure(), (404, "NoSuchTagSet".into()));
}

#[tokio::test]
async fn cases_108_142_145_and_146_headers_come_back_as_they_were_given() {
    let s = Server::start().await;
    let given = [
        ("content-encoding", "deflate, gzip"),
        ("content-language", "de"),
        ("cache-control", "max-age=1"),
        ("content-disposition", "attachment; filename=\"x\""),
        ("expires", "tomorrow"),
    ];
    let put = given.iter().fold(call("PUT", "/bucket/k"), |c, (n, v)| c.header(n, v)).body("x");
    s.send(put).await.ok();
    for method in ["GET", "HEAD"] {
        let read = s.send(call(method, "/bucket/k")).await;
        for (name, value) in given {
            assert_eq!(read.header(name).as_deref(), Some(value), "{method} {name}");
        }
        assert_eq!(read.header("content-type").as_deref(), Some("binary/octet-stream"));
    }
    assert!(!s.get("/bucket").await.text().contains("tomorrow"), "case 153");
    s.send(call("PUT", "/bucket/k").header("x-amz-meta-x", "é").header("content-encoding", "aws-chunked").body("x"))
        .await
        .ok();
    let read = s.send(call("HEAD", "/bucket/k")).await;
    assert_eq!(read.header("x-amz-meta-x").as_deref(), Some("=?UTF-8?B?w6k=?="));
    assert_eq!(read.header("content-encoding"), None);
    for (given, kept) in [(Some("aws-chunked,gzip"), Some("gzip")), (None, None)] {
        let put = given.iter().fold(call("PUT", "/bucket/k").framed("bytes"), |c, v| c.header("content-encoding", v));
        s.send(put).await.ok();
        let read = s.get("/bucket/k").await;
        assert_eq!((read.text().as_str(), read.header("content-encoding").as_deref()), ("bytes", kept), "case 108");
    }
    let large = call("PUT", "/bucket/k").header("x-amz-meta-x", "v".repeat(2048)).body("x");
    assert_eq!(s.send(large).await.failure(), (400, "MetadataTooLarge".into()));
    let class = call("PUT", "/bucket/k").header("x-amz-storage-class", "GOLD").body("x");
    assert_eq!(s.send(class).await.failure(), (400, "InvalidStorageClass".into()));
}

#[tokio::test]
async fn cases_148_151_and_152_folder_markers_are_objects() {
    let s = Server::start().await;
    assert_eq!(s.put("d/", "").await.etag(), "d41d8cd98f00b204e9800998ecf8427e");
    s.put("d/", "0123456789").await;
    assert_eq!(s.get("/bucket/d/").await.text(), "0123456789");
    let page = s.get("/bucket?list-type=2&prefix=d/&delimiter=/&max-keys=2").await.ok();
    assert_eq!((page.all("Key"), page.one("KeyCount")), (vec!["d/".to_owned()], "1".into()));
    let missing = s.send(call("HEAD", "/bucket/missing")).await;
    assert_eq!((missing.status, missing.body.len()), (404, 0));
    assert!(missing.header("x-amz-request-id").is_some());
}

#[tokio::test]
async fn case_159_only_an_empty_bucket_can_be_deleted() {
    let s = Server::start().await;
    let v = s.put("k", "x").await;
    assert_eq!(v.header("x-amz-version-id"), None);
    let gone = || call("DELETE", "/bucket");
    assert_eq!(s.send(gone()).await.failure(), (409, "BucketNotEmpty".into()));
    s.versioning("Enabled").await;
    let marker = s.send(call("DELETE", "/bucket/k")).await.version();
    assert_eq!(s.send(gone()).await.failure(), (409, "BucketNotEmpty".into()), "old versions");
    s.send(call("DELETE", "/bucket/k?versionId=null")).await.ok();
    assert_eq!(s.send(gone()).await.failure(), (409, "BucketNotEmpty".into()), "a delete marker");
    s.send(call("DELETE", format!("/bucket/k?versionId={marker}"))).await.ok();
    s.send(call("POST", "/bucket/k?uploads")).await.ok();
    assert_eq!(s.send(gone()).await.status, 204, "an upload in progress is aborted");
    assert_eq!(s.get("/bucket").await.failure(), (404, "NoSuchBucket".into()));
}

#[tokio::test]
async fn case_161_browsers_are_answered_by_the_rules_and_caches_are_told() {
    let s = Server::start().await;
    let rules = "<CORSConfiguration><CORSRule><AllowedOrigin>http://x</AllowedOrigin><AllowedMethod>GET</AllowedMethod><AllowedHeader>range</AllowedHeader><ExposeHeader>ETag</ExposeHeader></CORSRule></CORSConfiguration>";
    s.send(call("PUT", "/bucket?cors").body(rules)).await.ok();
    s.put("k", "x").await;
    let named = s.send(call("GET", "/bucket/k").header("origin", "http://x")).await.ok();
    assert_eq!(named.header("access-control-allow-origin").as_deref(), Some("http://x"));
    assert_eq!(named.header("access-control-expose-headers").as_deref(), Some("ETag"));
    let other = s.send(call("GET", "/bucket/k").header("origin", "http://y")).await.ok();
    assert_eq!(other.header("access-control-allow-origin"), None, "row 61");
    for answer in [&named, &other, &s.get("/bucket/k").await] {
        assert!(answer.header("vary").expect("case 161").starts_with("Origin"));
    }
    let ask = |origin: &str, headers: &str| {
        call("OPTIONS", "/bucket/k")
            .by(Who::Nobody)
            .header("origin", origin)
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", headers)
    };
    let allowed = s.send(ask("http://x", "Range")).await;
    assert_eq!((allowed.status, allowed.header("access-control-allow-headers").as_deref()), (200, Some("range")));
    assert!(allowed.header("vary").expect("a header").contains("Access-Control-Request-Method"));
    assert_eq!(s.send(ask("http://y", "range")).await.failure(), (403, "AccessForbidden".into()));
    assert_eq!(s.send(ask("http://x", "x-other")).await.status, 403);
}

#[tokio::test]
async fn buckets_are_recreated_by_their_owner_only_and_named_by_the_rules() {
    let s = Server::start().await;
    s.put("k", "kept").await;
    assert_eq!(s.send(call("PUT", "/bucket")).await.status, 200);
    assert_eq!(s.get("/bucket/k").await.text(), "kept");
    assert_eq!(s.send(call("PUT", "/bucket").by(Who::Alt)).await.failure(), (409, "BucketAlreadyExists".into()));
    for bad in ["a_b", "ab", "Abc", "192.168.5.4", "a..b"] {
        assert_eq!(s.send(call("PUT", format!("/{bad}"))).await.failure(), (400, "InvalidBucketName".into()), "{bad}");
    }
    let elsewhere =
        "<CreateBucketConfiguration><LocationConstraint>mars-1</LocationConstraint></CreateBucketConfiguration>";
    assert_eq!(
        s.send(call("PUT", "/other").body(elsewhere)).await.failure(),
        (400, "InvalidLocationConstraint".into())
    );
    let buckets = s.get("/").await.ok();
    assert_eq!(buckets.all("Name"), ["bucket"]);
    assert_eq!(s.send(call("GET", "/").by(Who::Alt)).await.ok().all("Name").len(), 0, "row 69");
}

/// A form upload with a policy signed by main over `conditions` (JSON) and these fields.
async fn post(s: &Server, conditions: &str, fields: &[(&str, &str)], file: &str) -> Answer {
    let (access, secret) = Who::Main.keys().expect("an account");
    let credential = format!("{access}/{SCOPE}");
    let policy = format!(
        r#"{{"expiration":"2013-05-25T00:00:00.000Z","conditions":[{{"bucket":"bucket"}},{{"x-amz-algorithm":"AWS4-HMAC-SHA256"}},{{"x-amz-credential":"{credential}"}},{{"x-amz-date":"{DATE}"}},{conditions}]}}"#
    );
    let policy = STANDARD.encode(policy);
    let signature = hex::encode(hmac(&signing_key(secret), policy.as_bytes()));
    let signed = [
        ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
        ("x-amz-credential", credential.as_str()),
        ("x-amz-date", DATE),
        ("policy", policy.as_str()),
        ("x-amz-signature", signature.as_str()),
    ];
    let mut body = String::new();
    for (name, value) in fields.iter().chain(&signed) {
        body += &format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    body += &format!("--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n{file}\r\n--B--\r\n");
    let request = call("POST", "/bucket").by(Who::Nobody).header("content-type", "multipart/form-data; boundary=B");
    s.send(request.body(body)).await
}

#[tokio::test]
async fn cases_171_174_and_176_forms_store_the_object_they_name() {
    let s = Server::start().await;
    let key = r#"["eq","$key","filename"]"#;
    assert_eq!(post(&s, key, &[("key", "filename")], "content").await.status, 204);
    assert_eq!(s.get("/bucket/filename").await.text(), "content");
    assert_eq!(s.list("").await.0, ["filename"]);
    let created = r#"["eq","$key","filename"],{"success_action_status":"201"}"#;
    let answer = post(&s, created, &[("key", "filename"), ("success_action_status", "201")], "").await;
    assert_eq!((answer.status, answer.one("Key"), answer.one("Bucket")), (201, "filename".into(), "bucket".into()));
    assert_eq!(s.get("/bucket/filename").await.ok().body.len(), 0);
    let sum = |value: &'static str| [("key", "filename"), ("x-amz-checksum-sha256", value)];
    let right = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
    assert_eq!(post(&s, key, &sum(right), "abc").await.status, 204);
    assert_eq!(post(&s, key, &sum(right), "abd").await.failure(), (400, "BadDigest".into()));
    assert_eq!(s.get("/bucket/filename").await.text(), "abc");
}

#[tokio::test]
async fn rows_19_to_21_a_form_is_bound_to_its_policy_its_bucket_and_its_signer() {
    let s = Server::start().await;
    let key = r#"["starts-with","$key","user/"]"#;
    for (conditions, fields, file, status) in [
        (key, vec![("key", "other/x")], "x", 403),
        (key, vec![("key", "user/x"), ("bucket", "elsewhere")], "x", 403),
        (key, vec![("key", "user/x"), ("x-amz-meta-extra", "1")], "x", 403),
        (r#"["starts-with","$key","user/"],["content-length-range",0,3]"#, vec![("key", "user/x")], "four", 400),
        (r#"["starts-with","$key","user/"],["content-length-range",2,3]"#, vec![("key", "user/x")], "1", 400),
    ] {
        assert_eq!(post(&s, conditions, &fields, file).await.status, status, "{fields:?}");
    }
    assert_eq!(s.list("").await.0.len(), 0);
    let deny = r#"{"Effect":"Deny","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*"}"#;
    s.policy(deny).await;
    assert_eq!(post(&s, key, &[("key", "user/x")], "x").await.failure(), (403, "AccessDenied".into()));
    let digest = md5_base64(b"x");
    assert_eq!(s.send(call("PUT", "/bucket/user/x").header("content-md5", digest).body("x")).await.status, 403);
}
