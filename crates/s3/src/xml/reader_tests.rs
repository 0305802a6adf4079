//! Attacks on the XML reader, and what it must read.

use super::XmlWriter;
use super::{XmlNode, parse};
use crate::error::S3Code;
use proptest::prelude::*;

fn read(text: &str) -> Result<XmlNode, S3Code> {
    parse(text.as_bytes(), "Delete", 1 << 26).map_err(|e| e.code)
}

#[test]
fn namespaces_entities_and_spaces_in_keys_are_read() {
    let xml = "<?xml version='1.0'?>\n<d:Delete xmlns:d='http://x/'><!-- c --><d:Object><d:Key>  a&amp;b&#13;&lt;<![CDATA[<]]> </d:Key></d:Object>\n<d:Quiet/></d:Delete>\n";
    let node = read(xml).expect("well-formed");
    let object = node.child("Object").expect("there");
    assert_eq!(object.required_text("Key").expect("once"), "  a&b\r<< ");
    assert_eq!(node.child_text("Quiet"), Some(""));
    assert_eq!(node.text, "");
}

#[test]
fn row_50_an_entity_bomb_is_malformed() {
    let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><Delete>&b;</Delete>";
    assert_eq!(read(bomb), Err(S3Code::MalformedXML));
    assert_eq!(read("<Delete>&b;</Delete>"), Err(S3Code::MalformedXML));
}

#[test]
fn row_50_an_external_entity_is_malformed() {
    let xml = "<!DOCTYPE d SYSTEM 'file:///etc/passwd'><Delete/>";
    assert_eq!(read(xml), Err(S3Code::MalformedXML));
}

#[test]
fn row_50_a_hundred_thousand_nested_tags_are_malformed() {
    let xml = format!("<Delete>{}{}</Delete>", "<a>".repeat(100_000), "</a>".repeat(100_000));
    assert_eq!(read(&xml), Err(S3Code::MalformedXML));
}

#[test]
fn row_50_a_million_attributes_are_malformed() {
    let attributes: String = (0..1_000_000).map(|i| format!(" a{i}=''")).collect();
    assert_eq!(read(&format!("<Delete{attributes}/>")), Err(S3Code::MalformedXML));
}

#[test]
fn row_50_a_million_namespaces_are_malformed() {
    let attributes: String = (0..1_000_000).map(|i| format!(" xmlns:a{i}='u'")).collect();
    assert_eq!(read(&format!("<Delete{attributes}/>")), Err(S3Code::MalformedXML));
}

#[test]
fn row_50_too_many_nodes_are_malformed() {
    let xml = format!("<Delete>{}</Delete>", "<a/>".repeat(crate::limits::XML_NODES_MAX));
    assert_eq!(read(&xml), Err(S3Code::MalformedXML));
}

#[test]
fn documents_above_their_size_are_refused() {
    let e = parse(b"<Delete></Delete>", "Delete", 10).expect_err("too long");
    assert_eq!(e.code, S3Code::MaxMessageLengthExceeded);
}

#[test]
fn what_is_not_one_closed_document_is_malformed() {
    for bad in [
        "",
        "  ",
        "text",
        "<Delete>",
        "<Delete></Other>",
        "<Delete/><Delete/>",
        "<Delete/>x",
        "</Delete>",
        "<Other/>",
        "<Delete>&nope;</Delete>",
        "<Delete>& </Delete>",
        "<Delete",
        "<Delete>&#0;</Delete>",
    ] {
        assert_eq!(read(bad), Err(S3Code::MalformedXML), "{bad}");
    }
    assert_eq!(parse(b"<Delete>\xff</Delete>", "Delete", 100).map_err(|e| e.code), Err(S3Code::MalformedXML));
}

#[test]
fn a_required_text_that_is_there_twice_is_malformed() {
    let node = read("<Delete><Key>a</Key><Key>b</Key></Delete>").expect("well-formed");
    assert!(node.required_text("Key").is_err());
}

proptest! {
    #[test]
    fn no_document_panics(parts in proptest::collection::vec(prop_oneof![
        Just("<Delete>".to_owned()), Just("</Delete>".to_owned()), Just("<a b='c'>".to_owned()), Just("</a>".to_owned()),
        Just("&amp;".to_owned()), Just("&#x41;".to_owned()), Just("<![CDATA[".to_owned()), Just("]]>".to_owned()),
        Just("<!--".to_owned()), Just("-->".to_owned()), Just("<!DOCTYPE a [".to_owned()), Just("<?x".to_owned()), "\\PC{0,5}",
    ], 0..12)) {
        let _ = read(&parts.concat());
    }

    /// What the writer escapes, the reader gives back, as long as it is XML at all.
    #[test]
    fn texts_survive_writing_and_reading(text in "[\t\n\r -~é\u{85}\u{2028}😀&<>\"']{0,30}") {
        let mut w = XmlWriter::plain("Delete");
        w.text("Key", &text);
        let node = parse(&w.finish(), "Delete", 1 << 20).expect("well-formed");
        prop_assert_eq!(node.child_text("Key").expect("there"), text);
    }
}
