//! Listings against a naive lister over a sorted map, and what they cost in rows and seeks.
#![allow(clippy::panic)]

mod model_support;

use bytes::Bytes;
use metadata::command::{KeyOp, Outcome};
use metadata::format::value::RowValue;
use metadata::format::{family, key};
use metadata::list::{self, ListObjects, ListUploads, ListVersions, ObjectPage, UploadPage, VersionPage};
use metadata::rows::{DataRef, ObjectRow, VersionRow};
use model_support::{BUCKET, Rows, Store, made};
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::bucket::Versioning;
use types::object::ObjectMeta;
use types::{AttemptId, ETag, ObjectKey, VersionId};

/// Versions of a key, newest first; the flag says live.
type Known = BTreeMap<String, Vec<(VersionId, bool)>>;

/// An item of a naive listing: key and what it is (`None`: a common prefix).
type Item<T> = (String, Option<T>);

fn group<'a>(key: &'a str, prefix: &str, delimiter: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(prefix)?;
    let at = if delimiter.is_empty() { None } else { rest.find(delimiter) };
    Some(&key[..prefix.len() + at? + delimiter.len()])
}

/// The whole listing: filtered, grouped, in order.
fn naive<T: Clone>(entries: &[(String, T)], prefix: &str, delimiter: &str) -> Vec<Item<T>> {
    let mut items: Vec<Item<T>> = Vec::new();
    for (key, entry) in entries.iter().filter(|(key, _)| key.starts_with(prefix)) {
        match group(key, prefix, delimiter) {
            Some(g) if items.last().is_some_and(|(last, item)| last == g && item.is_none()) => {}
            Some(g) => items.push((g.to_owned(), None)),
            None => items.push((key.clone(), Some(entry.clone()))),
        }
    }
    items
}

/// One naive page after a marker.
fn naive_after(keys: &[(String, ())], prefix: &str, delimiter: &str, after: &str, max: usize) -> (Vec<Item<()>>, bool) {
    let is_group = group(after, prefix, delimiter) == Some(after);
    let rest: Vec<_> = keys
        .iter()
        .filter(|(key, ())| key.as_str() > after && !(is_group && key.starts_with(after)))
        .cloned()
        .collect();
    let mut items = naive(&rest, prefix, delimiter);
    let truncated = items.len() > max && max > 0;
    items.truncate(max);
    (items, truncated)
}

fn object_items(page: &ObjectPage) -> Vec<Item<()>> {
    let mut items: Vec<Item<()>> = page.objects.iter().map(|o| (o.key.clone(), Some(()))).collect();
    items.extend(page.prefixes.iter().map(|p| (p.clone(), None)));
    items.sort();
    items
}

fn objects(store: &Store, request: &ListObjects<'_>) -> ObjectPage {
    list::objects(&store.rows, BUCKET, request).expect("lists")
}

fn versions(store: &Store, request: &ListVersions<'_>) -> VersionPage {
    list::versions(&store.rows, BUCKET, request).expect("lists")
}

fn uploads(store: &Store, request: &ListUploads<'_>) -> UploadPage {
    list::uploads(&store.rows, BUCKET, request).expect("lists")
}

/// Puts (and sometimes deletes) the keys in a bucket with versioning.
fn fill(keys: &[(String, bool)]) -> (Store, Known) {
    let mut store = Store::new();
    store.set_versioning(Versioning::Enabled);
    let mut known = Known::new();
    for (key, live) in keys {
        let id = match live {
            true => store.put(key).1.version,
            false => match store.delete(key, None) {
                Outcome::Deleted { version, .. } => version,
                other => panic!("{other:?}"),
            },
        };
        known.entry(key.clone()).or_default().insert(0, (id.expect("versioned"), *live));
    }
    (store, known)
}

fn live(known: &Known) -> Vec<(String, ())> {
    known.iter().filter(|(_, versions)| versions[0].1).map(|(key, _)| (key.clone(), ())).collect()
}

fn keys() -> impl Strategy<Value = Vec<(String, bool)>> {
    prop::collection::vec(("[ab/é]{1,5}", prop::bool::weighted(0.75)), 0..24)
}

fn prefixes() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[ab/é]{1,2}".prop_map(|s| s)]
}

fn delimiters() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("/".to_owned()),
        Just("a/".to_owned()),
        Just("é".to_owned()),
        Just("b".to_owned())
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn objects_page_as_a_naive_lister_would(
        keys in keys(), prefix in prefixes(), delimiter in delimiters(), after in "[ab/é]{0,3}", max in 1u32..5,
    ) {
        let (store, known) = fill(&keys);
        let entries = live(&known);
        let delimiter_asked = Some(delimiter.as_str());
        let request = ListObjects { prefix: &prefix, delimiter: delimiter_asked, max, ..ListObjects::default() };

        let page = objects(&store, &ListObjects { after: Some(&after), ..request });
        let (items, truncated) = naive_after(&entries, &prefix, &delimiter, &after, max as usize);
        prop_assert_eq!(object_items(&page), items, "after {:?}", after);
        prop_assert_eq!(page.truncated, truncated);

        let (mut all, mut next) = (Vec::new(), None::<(String, bool)>);
        loop {
            let (after, after_is_prefix) = next.as_ref().map_or((None, false), |(n, p)| (Some(n.as_str()), *p));
            let page = objects(&store, &ListObjects { after, after_is_prefix, ..request });
            let items = object_items(&page);
            prop_assert!(items.len() <= max as usize && (!page.truncated || items.len() == max as usize));
            prop_assert_eq!(page.next.as_ref(), items.last().filter(|_| page.truncated).map(|(last, _)| last));
            all.extend(items);
            prop_assert!(all.len() < 1000, "pages advance");
            if !page.truncated { break; }
            next = Some((page.next.expect("truncated"), page.next_is_prefix));
        }
        prop_assert_eq!(all, naive(&entries, &prefix, &delimiter));
    }

    #[test]
    fn versions_page_as_a_naive_lister_would(
        keys in keys(), prefix in prefixes(), delimiter in delimiters(), max in 1u32..5,
    ) {
        let (store, known) = fill(&keys);
        let entry = |(key, versions): (&String, &Vec<(VersionId, bool)>)| -> Vec<(String, (VersionId, bool, bool))> {
            let numbered = versions.iter().enumerate();
            numbered.map(|(i, (id, live))| (key.clone(), (*id, *live, i == 0))).collect()
        };
        let entries: Vec<_> = known.iter().flat_map(entry).collect();
        let request = ListVersions { prefix: &prefix, delimiter: Some(&delimiter), max, ..ListVersions::default() };
        let (mut all, mut next) = (Vec::new(), None::<(String, Option<VersionId>)>);
        loop {
            let key_marker = next.as_ref().map(|(k, _)| k.as_str());
            let version_marker = next.as_ref().and_then(|(_, v)| *v);
            let page = versions(&store, &ListVersions { key_marker, version_marker, ..request });
            let mut items: Vec<_> = page
                .versions
                .iter()
                .map(|v| (v.key.clone(), Some((v.version, v.object.is_some(), v.is_latest))))
                .collect();
            items.extend(page.prefixes.iter().map(|p| (p.clone(), None)));
            // Stable: versions of one key keep their order.
            items.sort_by(|a, b| a.0.cmp(&b.0));
            prop_assert!(items.len() <= max as usize);
            all.extend(items);
            prop_assert!(all.len() < 1000, "pages advance");
            if !page.truncated {
                prop_assert_eq!(page.next_key, None);
                break;
            }
            next = Some((page.next_key.expect("truncated"), page.next_version));
        }
        prop_assert_eq!(all, naive(&entries, &prefix, &delimiter));
    }

    #[test]
    fn uploads_page_as_a_naive_lister_would(
        keys in prop::collection::vec("[ab/é]{1,5}", 0..16), prefix in prefixes(), delimiter in delimiters(), max in 1u32..5,
    ) {
        let mut store = Store::new();
        let mut entries = Vec::new();
        for key in &keys {
            let upload = store.attempt();
            let op = KeyOp::CreateUpload { meta: ObjectMeta::default(), tags: vec![], checksum: None };
            assert_eq!(store.key_as(upload, key, op), Outcome::Done);
            entries.push((key.clone(), upload));
        }
        entries.sort();
        let request = ListUploads { prefix: &prefix, delimiter: Some(&delimiter), max, ..ListUploads::default() };
        let (mut all, mut next) = (Vec::new(), None::<(String, Option<AttemptId>)>);
        loop {
            let key_marker = next.as_ref().map(|(k, _)| k.as_str());
            let upload_marker = next.as_ref().and_then(|(_, u)| *u);
            let page = uploads(&store, &ListUploads { key_marker, upload_marker, ..request });
            let mut items: Vec<_> = page.uploads.iter().map(|u| (u.key.clone(), Some(u.upload))).collect();
            items.extend(page.prefixes.iter().map(|p| (p.clone(), None)));
            items.sort_by(|a, b| a.0.cmp(&b.0));
            all.extend(items);
            prop_assert!(all.len() < 1000, "pages advance");
            if !page.truncated { break; }
            next = Some((page.next_key.expect("truncated"), page.next_upload));
        }
        prop_assert_eq!(all, naive(&entries, &prefix, &delimiter));
    }
}

fn store_of(keys: &[&str]) -> Store {
    let mut store = Store::new();
    for key in keys {
        store.put(key);
    }
    store
}

fn names(page: &ObjectPage) -> (Vec<&str>, Vec<&str>) {
    (page.objects.iter().map(|o| o.key.as_str()).collect(), page.prefixes.iter().map(String::as_str).collect())
}

/// s3-cases 2, 3, 4, 7, 10, 13, 21: keys, prefix, delimiter, after, max; contents, prefixes, truncated.
#[test]
fn pages_of_the_cases_that_servers_get_wrong() {
    type Case<'a> = (&'a [&'a str], &'a str, Option<&'a str>, Option<&'a str>, u32, &'a [&'a str], &'a [&'a str], bool);
    let listing = ["asdf", "boo/bar", "boo/baz/xyzzy", "cquux/bla", "cquux/thud"];
    let cases: &[Case<'_>] = &[
        (&["foo/x", "foo1000/y"], "foo/", None, None, 9, &["foo/x"], &[], false),
        (&["foo/x", "foo1000/y"], "foo/", Some("/"), None, 9, &["foo/x"], &[], false),
        (
            &["prefix1/object", "prefix2/object"],
            "prefix",
            Some("/"),
            Some("prefix1"),
            9,
            &[],
            &["prefix1/", "prefix2/"],
            false,
        ),
        (&listing, "", Some("/"), Some("boo/"), 1, &[], &["cquux/"], false),
        (&["a", "a/b"], "", Some("/"), None, 9, &["a"], &["a/"], false),
        (&["d/", "d/x"], "d/", Some("/"), None, 9, &["d/", "d/x"], &[], false),
        (&["dir1/a/x", "dir1/a.b/x", "dir1/a-b/x"], "", None, None, 2, &["dir1/a-b/x", "dir1/a.b/x"], &[], true),
        (&["a::b::c", "a::d"], "", Some("::"), None, 9, &[], &["a::"], false),
        (&["a::b::c", "a::d"], "a::", Some("::"), None, 9, &["a::d"], &["a::b::"], false),
        (&["a", "b"], "", None, None, 0, &[], &[], false),
    ];
    for (keys, prefix, delimiter, after, max, contents, common, truncated) in cases {
        let store = store_of(keys);
        let request = ListObjects { prefix, delimiter: *delimiter, after: *after, max: *max, ..ListObjects::default() };
        let page = objects(&store, &request);
        assert_eq!(names(&page), (contents.to_vec(), common.to_vec()), "{request:?}");
        assert_eq!(page.truncated, *truncated, "{request:?}");
    }
}

/// s3-case 31, 11.
#[test]
fn versions_and_markers_interleave_newest_first_and_a_marker_hides_its_prefix() {
    let (store, known) =
        fill(&[("p/k", true), ("p/k", false), ("p/k", true), ("p/k", false)].map(|(k, l)| (k.to_owned(), l)));
    let page = versions(&store, &ListVersions { max: 100, ..ListVersions::default() });
    let shown: Vec<_> = page.versions.iter().map(|v| (v.version, v.object.is_some())).collect();
    assert_eq!(shown, known["p/k"]);
    assert_eq!(page.versions.iter().map(|v| v.is_latest).collect::<Vec<_>>(), [true, false, false, false]);
    let page = objects(&store, &ListObjects { delimiter: Some("/"), max: 9, ..ListObjects::default() });
    assert_eq!(names(&page), (vec![], vec![]));
}

/// s3-cases 32, 33.
#[test]
fn a_null_version_is_a_marker_and_a_key_marker_alone_passes_all_versions() {
    let mut store = Store::new();
    store.put("k");
    store.set_versioning(Versioning::Enabled);
    let newest = store.put("k").1.version.expect("versioned");
    store.put("z");
    let request = ListVersions { max: 1, ..ListVersions::default() };
    let first = versions(&store, &request);
    assert_eq!((first.versions[0].version, first.next_version), (newest, Some(newest)));
    let second = versions(&store, &ListVersions { key_marker: Some("k"), version_marker: Some(newest), ..request });
    assert_eq!(second.versions[0].version, VersionId::Null);
    assert!(!second.versions[0].is_latest);
    let third =
        versions(&store, &ListVersions { key_marker: Some("k"), version_marker: Some(VersionId::Null), ..request });
    assert_eq!((third.versions[0].key.as_str(), third.truncated), ("z", false));
    let alone = versions(&store, &ListVersions { key_marker: Some("k"), max: 9, ..request });
    assert_eq!(alone.versions.len(), 1);
    assert_eq!(alone.versions[0].key, "z");
}

/// A page whose marker was deleted meanwhile goes on with what came after it, and knows the latest.
#[test]
fn a_version_marker_that_is_gone_still_names_its_place() {
    let (mut store, known) = fill(&[("k", true), ("k", false), ("k", true)].map(|(k, l)| (k.to_owned(), l)));
    let (newest, marker) = (known["k"][0].0, known["k"][1].0);
    store.delete("k", Some(newest));
    let request =
        ListVersions { key_marker: Some("k"), version_marker: Some(newest), max: 9, ..ListVersions::default() };
    let page = versions(&store, &request);
    let shown: Vec<_> = page.versions.iter().map(|v| (v.version, v.is_latest)).collect();
    assert_eq!(shown, [(marker, true), (known["k"][2].0, false)]);
    store.delete("k", Some(marker));
    let page = versions(&store, &request);
    let shown: Vec<_> = page.versions.iter().map(|v| (v.version, v.is_latest)).collect();
    assert_eq!(shown, [(known["k"][2].0, true)], "promoted to current, and still after the marker");
}

fn row(sequence: u64, live: bool) -> Bytes {
    let id = AttemptId { node: 1, session: 1, sequence };
    let object = ObjectRow {
        size: 1,
        etag: ETag::Md5([7; 16]),
        checksum: None,
        meta: ObjectMeta::default(),
        tags: vec![],
        data: DataRef::Body(id),
    };
    let row = VersionRow { sequence, attempt: id, null: false, modified_ms: 5, object: live.then_some(object) };
    row.encode()
}

fn put_current(rows: &mut Rows, text: &str, value: &Bytes) {
    rows.map.insert(key::from_key(family::CURRENT, BUCKET, text.as_bytes()), value.clone());
}

#[test]
fn a_page_of_1000_keys_costs_the_same_rows_among_10_000_and_1_000_000_keys() {
    let value = row(1, true);
    let mut costs = Vec::new();
    for count in [10_000, 1_000_000] {
        let mut rows = Rows::default();
        for n in 0..count {
            put_current(&mut rows, &format!("key-{n:08}"), &value);
        }
        let request = ListObjects { after: Some("key-00005000"), max: 1000, ..ListObjects::default() };
        let page = list::objects(&rows, BUCKET, &request).expect("lists");
        assert_eq!(page.objects.len(), 1000);
        costs.push(rows.counts());
    }
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0], (0, 1, 1001), "no point reads, one seek, one row more than shown");
}

#[test]
fn a_common_prefix_costs_at_most_three_seeks_whatever_lies_below_it() {
    let value = row(1, true);
    for below in [20, 400] {
        let mut rows = Rows::default();
        for n in 0..100 * below {
            put_current(&mut rows, &format!("dir-{:03}/sub/{:06}", n / below, n % below), &value);
        }
        let request = ListObjects { delimiter: Some("/"), max: 1000, ..ListObjects::default() };
        let page = list::objects(&rows, BUCKET, &request).expect("lists");
        assert_eq!((page.prefixes.len(), page.truncated), (100, false));
        let (gets, seeks, read) = rows.counts();
        assert!(gets == 0 && seeks <= 101 && read <= 100 * 10, "{gets} {seeks} {read}");
    }
}

#[test]
fn a_million_delete_markers_and_old_versions_cost_a_listing_of_objects_nothing() {
    let mut rows = Rows::default();
    let (marker, old) = (row(1, false), row(2, true));
    for n in 0..1_000_000u64 {
        let name = ObjectKey::new(&format!("k{}", n % 5000)).expect("valid");
        rows.map.insert(key::version(BUCKET, &name, n), if n % 2 == 0 { marker.clone() } else { old.clone() });
    }
    put_current(&mut rows, "k77", &row(100_000, true));
    let page = list::objects(&rows, BUCKET, &ListObjects { max: 1000, ..ListObjects::default() }).expect("lists");
    assert_eq!(page.objects.len(), 1);
    assert_eq!(rows.counts(), (0, 1, 1));
}

#[test]
fn completed_uploads_are_not_listed_and_not_even_read() {
    let mut store = Store::new();
    let upload = store.attempt();
    let op = KeyOp::CreateUpload { meta: ObjectMeta::default(), tags: vec![], checksum: None };
    store.key_as(upload, "k", op);
    let part = store.attempt();
    store.key_as(part, "k", model_support::part_op(upload, 1, part));
    let parts = vec![(1, model_support::etag_text(part), None)];
    let op = KeyOp::CompleteUpload { upload, parts, conditions: Default::default(), checksum: None, size: None };
    made(store.key("k", op));
    store.rows.counts();
    assert_eq!(uploads(&store, &ListUploads { max: 9, ..ListUploads::default() }), UploadPage::default());
    assert_eq!(store.rows.counts(), (0, 1, 0));
}
