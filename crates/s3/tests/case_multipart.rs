//! Section 5 of the S3 cases: multipart uploads, over the wire.

mod case_support;

use case_support::{Answer, Server, call};

const MIB: usize = 1 << 20;

async fn create(s: &Server, headers: &[(&str, &str)]) -> String {
    let mut request = call("POST", "/bucket/k?uploads");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    s.send(request).await.ok().one("UploadId")
}

async fn part(s: &Server, upload: &str, number: u32, body: Vec<u8>) -> Answer {
    s.send(call("PUT", format!("/bucket/k?partNumber={number}&uploadId={upload}")).body(body)).await
}

fn document(parts: &[(u32, &str)]) -> String {
    let parts: String =
        parts.iter().map(|(n, e)| format!("<Part><PartNumber>{n}</PartNumber><ETag>{e}</ETag></Part>")).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

/// As [`document`], of what the parts were answered; with their checksums if `algorithm` is given.
fn with_checksums(parts: &[(u32, Answer)], algorithm: Option<&str>) -> String {
    let checksum = |answer: &Answer| match algorithm {
        None => String::new(),
        Some(name) => {
            let value = answer.header(&format!("x-amz-checksum-{}", name.to_lowercase())).expect("a checksum");
            format!("<Checksum{name}>{value}</Checksum{name}>")
        }
    };
    let part = |(n, answer): &(u32, Answer)| {
        let (etag, checksum) = (answer.etag(), checksum(answer));
        format!("<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag>{checksum}</Part>")
    };
    format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.iter().map(part).collect::<String>())
}

async fn complete(s: &Server, upload: &str, parts: &[(u32, &str)]) -> Answer {
    s.send(call("POST", format!("/bucket/k?uploadId={upload}")).body(document(parts))).await
}

/// An upload of two parts, not completed: id and ETags.
async fn two_parts(s: &Server) -> (String, String, String) {
    let upload = create(s, &[]).await;
    let first = part(s, &upload, 1, vec![b'a'; 5 * MIB]).await.ok().etag();
    let second = part(s, &upload, 2, b"bc".to_vec()).await.ok().etag();
    (upload, first, second)
}

#[tokio::test]
async fn cases_73_78_and_96_complete_repeats_its_answer_and_the_etag_is_one_everywhere() {
    let s = Server::start().await;
    let (upload, first, second) = two_parts(&s).await;
    let parts = [(1, first.as_str()), (2, second.as_str())];
    let once = complete(&s, &upload, &parts).await.ok();
    let twice = complete(&s, &upload, &parts).await.ok();
    let etag = once.one("ETag");
    assert_eq!(etag, twice.one("ETag"));
    assert!(etag.ends_with("-2\""), "{etag}");
    let bare = etag.trim_matches('"').to_owned();
    assert_eq!(s.send(call("HEAD", "/bucket/k")).await.etag(), bare);
    assert_eq!(s.get("/bucket").await.one("ETag"), etag);
    let attributes =
        call("GET", "/bucket/k?attributes").header("x-amz-object-attributes", "ETag,ObjectParts,ObjectSize");
    let attributes = s.send(attributes).await.ok();
    assert_eq!((attributes.one("ETag"), attributes.one("PartsCount")), (bare.clone(), "2".into()));
    let whole = s.get("/bucket/k").await.ok();
    assert_eq!((whole.etag(), whole.body.len()), (bare.clone(), 5 * MIB + 2));
    let tail = s.get("/bucket/k?partNumber=2").await;
    assert_eq!((tail.status, tail.text(), tail.etag()), (206, "bc".into(), bare));
    assert_eq!(tail.header("x-amz-mp-parts-count").as_deref(), Some("2"));
    assert_eq!(tail.header("content-range").as_deref(), Some("bytes 5242880-5242881/5242882"));
}

#[tokio::test]
async fn cases_80_83_84_and_row_52_wrong_lists_of_parts_are_refused_each_with_its_code() {
    let s = Server::start().await;
    let (upload, first, second) = two_parts(&s).await;
    for (body, want) in [
        (String::new(), "MalformedXML"),
        (document(&[]), "MalformedXML"),
        (document(&[(2, &second), (1, &first)]), "InvalidPartOrder"),
        (document(&[(1, &first), (1, &first)]), "InvalidPartOrder"),
        (document(&[(1, "0123")]), "InvalidPart"),
        (document(&[(1, &first), (3, &second)]), "InvalidPart"),
        (document(&[(0, &first)]), "InvalidArgument"),
        (document(&(1..=10_001).map(|n| (n, "x")).collect::<Vec<_>>()), "InvalidArgument"),
    ] {
        let answer = s.send(call("POST", format!("/bucket/k?uploadId={upload}")).body(body)).await;
        assert_eq!(answer.failure(), (400, want.to_owned()));
    }
    let tiny = part(&s, &upload, 1, b"tiny".to_vec()).await.ok().etag();
    let small = complete(&s, &upload, &[(1, &tiny), (2, &second)]).await;
    assert_eq!(small.failure(), (400, "EntityTooSmall".into()));
    part(&s, &upload, 1, vec![b'a'; 5 * MIB]).await.ok();
    let quoted = format!("\"{first}\"");
    let escaped = format!("&quot;{second}&quot;");
    complete(&s, &upload, &[(1, &quoted), (2, &escaped)]).await.ok();
}

#[tokio::test]
async fn case_81_a_thousand_and_two_parts_are_listed_by_pages_and_any_of_them_complete() {
    let s = Server::start().await;
    // Parts but the last must be 5 MiB: copies of one slice of memory in the model.
    s.send(call("PUT", "/bucket/source").body(vec![b's'; 5 * MIB])).await.ok();
    let upload = create(&s, &[]).await;
    for number in [1, 500, 1001u32] {
        let copy = call("PUT", format!("/bucket/k?partNumber={number}&uploadId={upload}"));
        s.send(copy.header("x-amz-copy-source", "bucket/source")).await.ok();
    }
    for number in 2..=1002u32 {
        if ![500, 1001].contains(&number) {
            part(&s, &upload, number, b"end".to_vec()).await.ok();
        }
    }
    let page = s.get(&format!("/bucket/k?uploadId={upload}")).await.ok();
    assert_eq!((page.all("Part").len(), page.one("IsTruncated")), (1000, "true".into()));
    let marker = page.one("NextPartNumberMarker");
    let rest = s.get(&format!("/bucket/k?uploadId={upload}&part-number-marker={marker}")).await.ok();
    assert_eq!(
        (rest.all("PartNumber"), rest.one("IsTruncated")),
        (vec!["1001".to_owned(), "1002".into()], "false".into())
    );
    let large = page.all("ETag")[0].trim_matches('"').to_owned();
    let end = rest.all("ETag")[1].trim_matches('"').to_owned();
    let parts = [(1, large.as_str()), (500, large.as_str()), (1001, large.as_str()), (1002, end.as_str())];
    assert!(complete(&s, &upload, &parts).await.ok().one("ETag").ends_with("-4\""));
    let last = s.get("/bucket/k?partNumber=1002").await;
    assert_eq!((last.text(), last.header("x-amz-mp-parts-count")), ("end".into(), Some("4".into())));
}

#[tokio::test]
async fn cases_86_and_88_aborted_uploads_and_bad_part_numbers_are_refused() {
    let s = Server::start().await;
    let upload = create(&s, &[]).await;
    for bad in ["0", "-1", "10001", "abc", "", "4294967297"] {
        let put = call("PUT", format!("/bucket/k?partNumber={bad}&uploadId={upload}")).body("x");
        assert_eq!(s.send(put).await.failure(), (400, "InvalidArgument".into()), "{bad}");
    }
    assert_eq!(s.send(call("DELETE", format!("/bucket/k?uploadId={upload}"))).await.status, 204);
    assert_eq!(part(&s, &upload, 1, b"x".to_vec()).await.failure(), (404, "NoSuchUpload".into()));
    assert_eq!(s.get(&format!("/bucket/k?uploadId={upload}")).await.failure(), (404, "NoSuchUpload".into()));
    assert_eq!(s.get("/bucket/k?uploadId=nonsense").await.failure(), (404, "NoSuchUpload".into()));
}

#[tokio::test]
async fn case_89_an_upload_without_parts_lists_none() {
    let s = Server::start().await;
    let upload = create(&s, &[]).await;
    let page = s.get(&format!("/bucket/k?uploadId={upload}")).await.ok();
    assert_eq!((page.all("Part").len(), page.one("IsTruncated")), (0, "false".into()));
    let uploads = s.get("/bucket?uploads").await.ok();
    assert_eq!((uploads.all("Key"), uploads.one("UploadId")), (vec!["k".to_owned()], upload));
}

#[tokio::test]
async fn case_94_what_create_said_of_the_object_is_on_the_object() {
    let s = Server::start().await;
    let given = [
        ("content-type", "text/x"),
        ("cache-control", "no-cache"),
        ("content-encoding", "gzip"),
        ("expires", "Wed, 21 Oct 2026 07:28:00 GMT"),
        ("x-amz-meta-a", "b"),
        ("x-amz-storage-class", "STANDARD_IA"),
    ];
    let mut headers = given.to_vec();
    headers.push(("x-amz-tagging", "t=1"));
    let upload = create(&s, &headers).await;
    let etag = part(&s, &upload, 1, b"x".to_vec()).await.ok().etag();
    complete(&s, &upload, &[(1, &etag)]).await.ok();
    let head = s.send(call("HEAD", "/bucket/k")).await;
    for (name, value) in given {
        assert_eq!(head.header(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(head.header("x-amz-tagging-count").as_deref(), Some("1"));
}

#[tokio::test]
async fn case_95_an_object_put_whole_has_a_plain_etag() {
    let s = Server::start().await;
    let etag = s.send(call("PUT", "/bucket/k").body(vec![0; 20 * MIB])).await.ok().etag();
    assert_eq!(etag.len(), 32);
}

#[tokio::test]
async fn cases_97_and_98_checksums_of_parts_become_that_of_the_object() {
    let s = Server::start().await;
    for (algorithm, kind, composite) in
        [("SHA256", "COMPOSITE", true), ("CRC64NVME", "FULL_OBJECT", false), ("CRC32", "FULL_OBJECT", false)]
    {
        let upload = create(&s, &[("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)]).await;
        let first = part(&s, &upload, 1, vec![b'a'; 5 * MIB]).await.ok();
        let second = part(&s, &upload, 2, b"b".to_vec()).await.ok();
        let parts = [(1, first), (2, second)];
        let name = composite.then_some(algorithm);
        s.send(call("POST", format!("/bucket/k?uploadId={upload}")).body(with_checksums(&parts, name))).await.ok();
        let head = s.send(call("HEAD", "/bucket/k").header("x-amz-checksum-mode", "ENABLED")).await;
        let name = format!("x-amz-checksum-{}", algorithm.to_lowercase());
        let value = head.header(&name).expect("a checksum");
        assert_eq!(value.ends_with("-2"), composite, "{value}");
        assert_eq!(head.header("x-amz-checksum-type").as_deref(), Some(kind));
        assert_eq!(s.send(call("HEAD", "/bucket/k")).await.header(&name), None, "only when asked for");
    }
    let mut whole = vec![b'a'; 5 * MIB];
    whole.push(b'b');
    let same =
        s.send(call("PUT", "/bucket/same").header("x-amz-sdk-checksum-algorithm", "CRC32").body(whole)).await.ok();
    let head = s.send(call("HEAD", "/bucket/k").header("x-amz-checksum-mode", "ENABLED")).await;
    assert_eq!(head.header("x-amz-checksum-crc32"), same.header("x-amz-checksum-crc32"));
    for (algorithm, kind) in [("SHA256", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE"), ("MD4", "COMPOSITE")] {
        let bad = call("POST", "/bucket/k?uploads");
        let bad = bad.header("x-amz-checksum-algorithm", algorithm).header("x-amz-checksum-type", kind);
        assert_eq!(s.send(bad).await.failure(), (400, "InvalidRequest".into()), "{algorithm} {kind}");
    }
}

#[tokio::test]
async fn checksums_of_the_parts_of_a_composite_upload_are_repeated_for_each_or_for_none() {
    let s = Server::start().await;
    let upload = create(&s, &[("x-amz-checksum-algorithm", "SHA256")]).await;
    let parts = [
        (1, part(&s, &upload, 1, vec![b'a'; 5 * MIB]).await.ok()),
        (2, part(&s, &upload, 2, b"b".to_vec()).await.ok()),
    ];
    let ask = |body: String| call("POST", format!("/bucket/k?uploadId={upload}")).body(body);
    let whole = with_checksums(&parts, Some("SHA256"));
    let end = whole.rfind("<ChecksumSHA256>").expect("of the second part");
    let missing = format!("{}</Part></CompleteMultipartUpload>", &whole[..end]);
    let refused = s.send(ask(missing)).await;
    assert_eq!(refused.failure(), (400, "InvalidRequest".into()));
    assert!(refused.one("Message").contains("missing for part 2 "), "{}", refused.text());
    let sums: Vec<_> = parts.iter().filter_map(|(_, answer)| answer.header("x-amz-checksum-sha256")).collect();
    let wrong = whole.replace(&sums[0], &sums[1]);
    assert_eq!(s.send(ask(wrong)).await.failure(), (400, "InvalidPart".into()));
    assert_eq!(s.get("/bucket/k").await.status, 404);
    let made = s.send(ask(whole.clone())).await.ok();
    assert!(made.one("ChecksumSHA256").ends_with("-2"));
    let again = s.send(ask(with_checksums(&parts, None))).await.ok();
    assert_eq!(again.one("ETag"), made.one("ETag"), "the same list again");
}

#[tokio::test]
async fn a_complete_that_names_another_size_checksum_or_condition_makes_nothing() {
    let s = Server::start().await;
    let (upload, first, second) = two_parts(&s).await;
    let body = document(&[(1, &first), (2, &second)]);
    let ask = |name: &str, value: &str| {
        call("POST", format!("/bucket/k?uploadId={upload}")).header(name, value).body(body.clone())
    };
    assert_eq!(s.send(ask("x-amz-mp-object-size", "7")).await.status, 400);
    assert_eq!(s.send(ask("x-amz-checksum-crc32", "AAAAAA==")).await.failure(), (400, "BadDigest".into()));
    assert_eq!(s.send(ask("if-match", "\"x\"")).await.status, 404);
    assert_eq!(s.get("/bucket/k").await.status, 404);
    s.send(ask("if-none-match", "*")).await.ok();
}
