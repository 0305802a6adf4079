//! Rows of the security checklist that the operations answer for: who may do what, and what nobody can smuggle in.

mod case_support;

use case_support::{Server, Who, call, delete_document, delete_objects};

const EVERY_OPERATION: [(&str, &str); 40] = [
    ("GET", "/"),
    ("GET", "/bucket"),
    ("GET", "/bucket?list-type=2"),
    ("GET", "/bucket?versions"),
    ("GET", "/bucket?uploads"),
    ("HEAD", "/bucket"),
    ("PUT", "/new-bucket"),
    ("DELETE", "/bucket"),
    ("GET", "/bucket?location"),
    ("GET", "/bucket?versioning"),
    ("PUT", "/bucket?versioning"),
    ("GET", "/bucket?tagging"),
    ("PUT", "/bucket?tagging"),
    ("DELETE", "/bucket?tagging"),
    ("GET", "/bucket?cors"),
    ("PUT", "/bucket?cors"),
    ("DELETE", "/bucket?cors"),
    ("GET", "/bucket?policy"),
    ("PUT", "/bucket?policy"),
    ("DELETE", "/bucket?policy"),
    ("GET", "/bucket?acl"),
    ("PUT", "/bucket?acl"),
    ("PUT", "/bucket?publicAccessBlock"),
    ("DELETE", "/bucket?publicAccessBlock"),
    ("PUT", "/bucket?ownershipControls"),
    ("GET", "/bucket?replication"),
    ("GET", "/bucket/k"),
    ("HEAD", "/bucket/k"),
    ("PUT", "/bucket/k"),
    ("DELETE", "/bucket/k"),
    ("GET", "/bucket/k?tagging"),
    ("PUT", "/bucket/k?tagging"),
    ("DELETE", "/bucket/k?tagging"),
    ("GET", "/bucket/k?acl"),
    ("PUT", "/bucket/k?acl"),
    ("GET", "/bucket/k?attributes"),
    ("POST", "/bucket/k?uploads"),
    ("PUT", "/bucket/k?partNumber=1&uploadId=x"),
    ("POST", "/bucket/k?uploadId=x"),
    ("DELETE", "/bucket/k?uploadId=x"),
];

#[tokio::test]
async fn row_3_every_handler_that_takes_a_body_has_the_one_verifier() {
    let s = Server::start().await;
    let upload = s.send(call("POST", "/bucket/k?uploads")).await.ok().one("UploadId");
    for (method, target) in [
        ("PUT", "/bucket/k".to_owned()),
        ("PUT", format!("/bucket/k?partNumber=1&uploadId={upload}")),
        ("POST", format!("/bucket/k?uploadId={upload}")),
        ("POST", "/bucket?delete".into()),
        ("POST", "/bucket".into()),
        ("PUT", "/bucket?tagging".into()),
        ("PUT", "/bucket?policy".into()),
        ("PUT", "/bucket?cors".into()),
        ("PUT", "/bucket?versioning".into()),
        ("PUT", "/bucket/k?tagging".into()),
        ("PUT", "/another".into()),
    ] {
        let forged = s.send(call(method, &target).framed("x").by(Who::Forger)).await;
        assert_eq!(forged.failure(), (403, "SignatureDoesNotMatch".into()), "{method} {target}");
        let anonymous = s.send(call(method, &target).framed("x").by(Who::Nobody)).await;
        assert!((400..=403).contains(&anonymous.status), "{method} {target}: {}", anonymous.text());
    }
    assert_eq!(s.list("").await.0.len(), 0);
    assert_eq!(s.get(&format!("/bucket/k?uploadId={upload}")).await.ok().all("Part").len(), 0);
    assert_eq!(s.get("/").await.ok().all("Name"), ["bucket"]);
    s.send(call("PUT", "/bucket/k").framed("x")).await.ok();
    assert_eq!(s.get("/bucket/k").await.text(), "x", "the right secret is all that was missing");
}

#[tokio::test]
async fn row_15_every_operation_is_closed_to_strangers_and_other_accounts() {
    let s = Server::start().await;
    s.put("k", "kept").await;
    for (method, target) in EVERY_OPERATION {
        let nobody = s.send(call(method, target).by(Who::Nobody)).await;
        assert_eq!(nobody.status, 403, "{method} {target}");
        let own = target == "/" || target == "/new-bucket";
        let other = s.send(call(method, target).by(Who::Alt)).await;
        assert_eq!(other.status, if own { 200 } else { 403 }, "{method} {target} {}", other.text());
    }
    for who in [Who::Nobody, Who::Alt] {
        let batch = s.send(delete_objects(delete_document(&["k"], false)).by(who)).await;
        assert_eq!(batch.one("Code"), "AccessDenied");
    }
    assert_eq!(s.get("/bucket/k").await.text(), "kept");
    assert_eq!(s.send(call("GET", "/bucket/k").by(Who::Root)).await.text(), "kept");
}

#[tokio::test]
async fn row_16_a_wrong_key_never_falls_back_to_anonymous() {
    let s = Server::start().await;
    s.put("k", "x").await;
    s.policy(r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"}"#).await;
    assert_eq!(s.send(call("GET", "/bucket/k").by(Who::Nobody)).await.status, 200);
    let stranger = s.send(call("GET", "/bucket/k").by(Who::Stranger)).await;
    assert_eq!(stranger.failure(), (403, "InvalidAccessKeyId".into()));
}

#[tokio::test]
async fn rows_17_and_18_nothing_is_told_to_those_who_may_not_know() {
    let s = Server::start().await;
    let etag = s.put("k", "x").await.etag();
    for (name, value) in
        [("if-none-match", etag.as_str()), ("if-modified-since", "Sun, 06 Nov 2044 08:49:37 GMT"), ("if-match", "x")]
    {
        let probe = s.send(call("GET", "/bucket/k").header(name, value).by(Who::Nobody)).await;
        assert_eq!((probe.status, probe.header("etag")), (403, None), "{name}");
    }
    s.allow_alt(r#"["s3:GetObject","s3:GetObjectTagging"]"#, "bucket/*").await;
    for target in ["/bucket/missing", "/bucket/missing?tagging"] {
        assert_eq!(s.send(call("GET", target).by(Who::Alt)).await.status, 403, "{target}");
    }
    assert_eq!(s.send(call("HEAD", "/bucket/missing").by(Who::Alt)).await.status, 403);
    s.allow_alt(r#"["s3:GetObject","s3:ListBucket"]"#, "bucket*").await;
    assert_eq!(s.send(call("GET", "/bucket/missing").by(Who::Alt)).await.failure(), (404, "NoSuchKey".into()));
}

#[tokio::test]
async fn row_24_an_explicit_deny_holds_however_the_key_is_written() {
    let s = Server::start().await;
    s.puts(&["secret/x", "open/x"]).await;
    s.policy(
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"},
           {"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bucket/secret/*"}"#,
    )
    .await;
    assert_eq!(s.send(call("GET", "/bucket/open/x").by(Who::Nobody)).await.status, 200);
    for target in ["/bucket/secret/x", "/bucket/secret%2Fx", "/bucket/%73ecret/x", "/bucket/secret/x?x-id=GetObject"] {
        for who in [Who::Nobody, Who::Alt, Who::Main] {
            assert_eq!(s.send(call("GET", target).by(who)).await.status, 403, "case 169: {target} {who:?}");
        }
    }
    assert_eq!(s.send(call("DELETE", "/bucket?policy")).await.status, 204, "the owner is not locked out");
    assert_eq!(s.get("/bucket/secret/x").await.status, 200);
}

#[tokio::test]
async fn row_25_names_of_the_system_are_nobodys_bucket() {
    let s = Server::start().await;
    for target in ["/.sys/x", "/.sys", "/.metadata/x"] {
        let answer = s.get(target).await;
        assert!((400..=404).contains(&answer.status), "{target} {}", answer.status);
    }
}

#[tokio::test]
async fn rows_26_and_28_copies_read_only_what_their_caller_may_read() {
    let s = Server::start().await;
    s.put("k", "secret").await;
    s.send(call("PUT", "/alts-bucket").by(Who::Alt)).await.ok();
    let steal = call("PUT", "/alts-bucket/k").header("x-amz-copy-source", "bucket/k").by(Who::Alt);
    assert_eq!(s.send(steal.clone()).await.failure(), (403, "AccessDenied".into()));
    let upload = s.send(call("POST", "/alts-bucket/k?uploads").by(Who::Alt)).await.ok().one("UploadId");
    let part = call("PUT", format!("/alts-bucket/k?partNumber=1&uploadId={upload}"));
    let part = part.header("x-amz-copy-source", "bucket/k").header("x-amz-copy-source-range", "bytes=0-1").by(Who::Alt);
    assert_eq!(s.send(part).await.failure(), (403, "AccessDenied".into()));
    let probe = call("PUT", "/alts-bucket/k").header("x-amz-copy-source", "bucket/missing").by(Who::Alt);
    assert_eq!(s.send(probe).await.failure(), (403, "AccessDenied".into()));
    for empty in ["", "/", "bucket", "bucket/"] {
        let copy = call("PUT", "/bucket/c").header("x-amz-copy-source", empty);
        assert_eq!(s.send(copy).await.failure(), (400, "InvalidArgument".into()), "{empty:?}");
    }
    s.send(call("PUT", "/bucket/tagged").header("x-amz-tagging", "a=b").body("x")).await.ok();
    s.allow_alt(r#"["s3:GetObject"]"#, "bucket/*").await;
    assert_eq!(s.send(steal).await.status, 200);
    let tagged = call("PUT", "/alts-bucket/t").header("x-amz-copy-source", "bucket/tagged").by(Who::Alt);
    assert_eq!(s.send(tagged.clone()).await.status, 403, "copying tags reads tags");
    assert_eq!(s.send(tagged.header("x-amz-tagging-directive", "REPLACE")).await.status, 200);
}

#[tokio::test]
async fn row_32_each_action_needs_its_own_permission() {
    let s = Server::versioned().await;
    let v = s.put("k", "x").await.version();
    s.allow_alt(r#"["s3:PutObject"]"#, "bucket/*").await;
    for (method, target, status) in [
        ("PUT", "/bucket/new".to_owned(), 200),
        ("DELETE", "/bucket/k".to_owned(), 403),
        ("DELETE", format!("/bucket/k?versionId={v}"), 403),
        ("GET", "/bucket/k".to_owned(), 403),
        ("PUT", "/bucket/k?tagging".to_owned(), 403),
    ] {
        assert_eq!(s.send(call(method, target.clone()).by(Who::Alt)).await.status, status, "{method} {target}");
    }
    let tagged = call("PUT", "/bucket/new").header("x-amz-tagging", "a=b").by(Who::Alt);
    assert_eq!(s.send(tagged).await.status, 403, "case 184: tags need PutObjectTagging");
}

#[tokio::test]
async fn row_33_headers_of_the_inside_are_never_stored() {
    let s = Server::start().await;
    let put = call("PUT", "/bucket/k").header("x-internal-owner", "alt").header("x-amz-replication-status", "REPLICA");
    s.send(put.header("x-ashlar-size", "1").body("x")).await.ok();
    let read = s.get("/bucket/k").await;
    for name in ["x-internal-owner", "x-amz-replication-status", "x-ashlar-size"] {
        assert_eq!(read.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn rows_58_and_59_overrides_need_a_signature_and_cannot_split_the_answer() {
    let s = Server::start().await;
    s.put("k", "x").await;
    s.policy(r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"}"#).await;
    let target = "/bucket/k?response-content-type=text/html&response-content-disposition=attachment";
    let signed = s.get(target).await.ok();
    assert_eq!(signed.header("content-type").as_deref(), Some("text/html"));
    assert_eq!(signed.header("content-disposition").as_deref(), Some("attachment"));
    assert_eq!(s.send(call("GET", target).by(Who::Nobody)).await.failure(), (400, "InvalidRequest".into()));
    let split = s.get("/bucket/k?response-content-type=a%0D%0ASet-Cookie:%20x").await;
    assert_eq!((split.status, split.header("set-cookie")), (400, None));
    let exposed = "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod><ExposeHeader>a&#13;&#10;b: c</ExposeHeader></CORSRule></CORSConfiguration>";
    assert_eq!(s.send(call("PUT", "/bucket?cors").body(exposed)).await.status, 400);
}

#[tokio::test]
async fn row_70_what_was_handed_out_for_a_bucket_does_not_open_the_next_one_of_its_name() {
    let s = Server::start().await;
    s.puts(&["a", "b"]).await;
    let token = s.get("/bucket?list-type=2&max-keys=1").await.one("NextContinuationToken");
    let upload = s.send(call("POST", "/bucket/k?uploads")).await.one("UploadId");
    s.policy(r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"}"#).await;
    s.send(delete_objects(delete_document(&["a", "b"], true))).await.ok();
    s.send(call("DELETE", "/bucket")).await.ok();
    s.send(call("PUT", "/bucket").by(Who::Alt)).await.ok();
    s.send(call("PUT", "/bucket/b").by(Who::Alt).body("x")).await.ok();
    assert_eq!(s.send(call("GET", "/bucket/b").by(Who::Nobody)).await.status, 403, "the old policy is gone");
    let old = call("GET", format!("/bucket?list-type=2&continuation-token={token}")).by(Who::Alt);
    assert_eq!(s.send(old).await.failure(), (400, "InvalidArgument".into()));
    let part = call("PUT", format!("/bucket/k?partNumber=1&uploadId={upload}")).by(Who::Alt);
    assert_eq!(s.send(part).await.failure(), (404, "NoSuchUpload".into()));
    for (method, target) in [("GET", "/bucket/b"), ("PUT", "/bucket/b"), ("DELETE", "/bucket/b"), ("GET", "/bucket")] {
        assert_eq!(s.send(call(method, target)).await.status, 403, "what the former owner signed: {method} {target}");
    }
}

#[tokio::test]
async fn row_71_policies_that_are_not_enforced_as_a_whole_are_not_stored() {
    let s = Server::start().await;
    let statement = r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*""#;
    let put = |statement: String| call("PUT", "/bucket?policy").body(format!(r#"{{"Statement":[{{{statement}}}]}}"#));
    let condition = format!(r#"{statement},"Condition":{{"Bool":{{"aws:SecureTransport":"true"}}}}"#);
    assert_eq!(s.send(put(condition)).await.failure(), (501, "NotImplemented".into()));
    assert_eq!(s.send(put(statement.replace("Action", "NotAction"))).await.status, 501);
    assert_eq!(s.send(put(statement.replace("Allow", "Maybe"))).await.failure(), (400, "MalformedPolicy".into()));
    let large = format!(r#"{statement},"Sid":"{}""#, "x".repeat(1 << 20));
    assert_eq!(s.send(put(large)).await.status, 400);
    assert_eq!(s.get("/bucket?policy").await.failure(), (404, "NoSuchBucketPolicy".into()));
}

#[tokio::test]
async fn row_74_numbers_are_refused_or_clamped_never_wrapped() {
    let s = Server::start().await;
    for name in ["max-keys", "list-type=2&max-keys", "versions&max-keys", "uploads&max-uploads"] {
        for bad in ["-1", "2147483648", "4294967297", "x"] {
            let answer = s.get(&format!("/bucket?{name}={bad}")).await;
            assert_eq!(answer.failure(), (400, "InvalidArgument".into()), "{name}={bad}");
        }
        assert_eq!(s.get(&format!("/bucket?{name}=100000")).await.status, 200);
    }
}

#[tokio::test]
async fn the_expected_owner_is_enforced_before_anything_is_done() {
    let s = Server::start().await;
    let put = |owner: &str| call("PUT", "/bucket/k").header("x-amz-expected-bucket-owner", owner).body("x");
    assert_eq!(s.send(put(&s.alt_id)).await.failure(), (403, "AccessDenied".into()));
    assert_eq!(s.get("/bucket/k").await.status, 404);
    assert_eq!(s.send(put(&s.main_id)).await.status, 200);
}

#[tokio::test]
async fn acls_are_disabled_and_what_would_change_one_is_refused() {
    let s = Server::start().await;
    s.send(call("PUT", "/bucket/k").header("x-amz-acl", "bucket-owner-full-control").body("x")).await.ok();
    for target in ["/bucket/k", "/bucket/k?acl", "/bucket?acl"] {
        let public = s.send(call("PUT", target).header("x-amz-acl", "public-read")).await;
        assert_eq!(public.failure(), (400, "AccessControlListNotSupported".into()), "{target}");
        let grant = s.send(call("PUT", target).header("x-amz-grant-read", "id=\"x\"")).await;
        assert_eq!(grant.failure(), (400, "AccessControlListNotSupported".into()), "{target}");
    }
    let acl = s.get("/bucket/k?acl").await.ok();
    assert_eq!((acl.all("Permission"), acl.one("ID")), (vec!["FULL_CONTROL".to_owned()], s.main_id.clone()));
    s.send(call("PUT", "/bucket/k?acl").header("x-amz-acl", "private")).await.ok();
    s.send(call("PUT", "/bucket/k?acl").body(acl.body)).await.ok();
}

#[tokio::test]
async fn a_public_access_block_is_stored_because_it_is_enforced() {
    let s = Server::start().await;
    s.put("k", "x").await;
    let public = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"}]}"#;
    s.send(call("PUT", "/bucket?policy").body(public)).await.ok();
    assert_eq!(s.get("/bucket?policyStatus").await.ok().one("IsPublic"), "TRUE");
    assert_eq!(s.send(call("GET", "/bucket/k").by(Who::Alt)).await.status, 200);
    let block = |name: &str| {
        let body = format!("<PublicAccessBlockConfiguration><{name}>true</{name}></PublicAccessBlockConfiguration>");
        call("PUT", "/bucket?publicAccessBlock").body(body)
    };
    s.send(block("RestrictPublicBuckets")).await.ok();
    assert_eq!(s.send(call("GET", "/bucket/k").by(Who::Alt)).await.status, 403);
    assert_eq!(s.get("/bucket?publicAccessBlock").await.ok().one("RestrictPublicBuckets"), "true");
    s.send(block("BlockPublicPolicy")).await.ok();
    assert_eq!(s.send(call("PUT", "/bucket?policy").body(public)).await.failure(), (403, "AccessDenied".into()));
    assert_eq!(s.send(call("DELETE", "/bucket?publicAccessBlock")).await.status, 204);
    assert_eq!(s.send(call("GET", "/bucket/k").by(Who::Alt)).await.status, 200);
}
