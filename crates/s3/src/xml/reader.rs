//! Reads a small XML document into a tree.
//!
//! Promises: no DTD, no entities but the predefined and numeric ones, bounded depth, nodes and attributes; anything else is
//! `MalformedXML`. Namespaces are tolerated and dropped: `<ns:Key>` is `Key`. Never panics on any input.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// An element.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct XmlNode {
    /// Name without prefix.
    pub name: String,
    /// Attributes without prefix and without namespace declarations (`xsi:type` is `type`).
    pub attributes: Vec<(String, String)>,
    /// All its text, exactly as sent.
    pub text: String,
    /// Elements within.
    pub children: Vec<XmlNode>,
}

impl XmlNode {
    /// The first child of that name.
    pub fn child(&self, name: &str) -> Option<&XmlNode> {
        self.children.iter().find(|c| c.name == name)
    }

    /// All children of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a XmlNode> + 'a {
        self.children.iter().filter(move |c| c.name == name)
    }

    /// The text of the first child of that name.
    pub fn child_text(&self, name: &str) -> Option<&str> {
        self.child(name).map(|c| c.text.as_str())
    }

    /// The text of that child, `MalformedXML` if it is missing or there more than once.
    pub fn required_text(&self, name: &str) -> S3Result<&str> {
        let mut found = self.children.iter().filter(|c| c.name == name);
        match (found.next(), found.next()) {
            (Some(c), None) => Ok(c.text.as_str()),
            _ => Err(S3Error::new(S3Code::MalformedXML)),
        }
    }

    /// The attribute of that name (without prefix).
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

fn malformed() -> S3Error {
    S3Error::new(S3Code::MalformedXML)
}

/// Reads a document of at most `max_bytes` whose root is named `root`.
pub fn parse(bytes: &[u8], root: &str, max_bytes: usize) -> S3Result<XmlNode> {
    if bytes.len() > max_bytes {
        return Err(S3Error::new(S3Code::MaxMessageLengthExceeded));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let node = Tree::default().read(text)?;
    if node.name == root { Ok(node) } else { Err(malformed()) }
}

#[derive(Default)]
struct Tree {
    open: Vec<XmlNode>,
    nodes: usize,
    root: Option<XmlNode>,
}

impl Tree {
    fn read(mut self, text: &str) -> S3Result<XmlNode> {
        let mut reader = Reader::from_str(text);
        reader.config_mut().check_comments = true;
        loop {
            match reader.read_event().map_err(|_| malformed())? {
                Event::Start(e) => self.start(&e)?,
                Event::Empty(e) => {
                    self.start(&e)?;
                    self.end();
                }
                Event::End(_) => self.end(),
                Event::Text(t) => self.text(&t.xml10_content())?,
                Event::CData(t) => self.text(&t.xml10_content())?,
                Event::GeneralRef(r) => {
                    let c = resolve(&r)?;
                    self.text(c.encode_utf8(&mut [0; 4]))?;
                }
                Event::DocType(_) => return Err(malformed()),
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
                Event::Eof => break,
            }
        }
        if !self.open.is_empty() {
            return Err(malformed());
        }
        self.root.ok_or_else(malformed)
    }

    fn start(&mut self, e: &BytesStart<'_>) -> S3Result<()> {
        self.nodes += 1;
        let second_root = self.open.is_empty() && self.root.is_some();
        if second_root || self.nodes > limits::XML_NODES_MAX || self.open.len() >= limits::XML_DEPTH_MAX {
            return Err(malformed());
        }
        let name = e.local_name().as_ref().to_owned();
        let attributes = attributes_of(e)?;
        self.open.push(XmlNode { name, attributes, ..XmlNode::default() });
        Ok(())
    }

    /// The reader itself refuses an end that does not fit its start.
    fn end(&mut self) {
        let Some(mut node) = self.open.pop() else { return };
        if !node.children.is_empty() && node.text.trim().is_empty() {
            node.text = String::new();
        }
        match self.open.last_mut() {
            Some(parent) => parent.children.push(node),
            None => self.root = Some(node),
        }
    }

    fn text(&mut self, text: &str) -> S3Result<()> {
        match self.open.last_mut() {
            Some(node) => node.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(malformed()),
        }
        Ok(())
    }
}

fn attributes_of(e: &BytesStart<'_>) -> S3Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    // Without its duplicate check, which is quadratic; ours below is bounded.
    for (i, attribute) in e.attributes().with_checks(false).enumerate() {
        if i >= limits::XML_ATTRIBUTES_MAX {
            return Err(malformed());
        }
        let attribute = attribute.map_err(|_| malformed())?;
        if attribute.key.as_namespace_binding().is_some() {
            continue;
        }
        let name = attribute.key.local_name().as_ref().to_owned();
        let value = quick_xml::escape::unescape(&attribute.value).map_err(|_| malformed())?.into_owned();
        if found.iter().any(|(n, _)| *n == name) {
            return Err(malformed());
        }
        found.push((name, value));
    }
    Ok(found)
}

fn resolve(r: &BytesRef<'_>) -> S3Result<char> {
    if let Some(c) = r.resolve_char_ref().map_err(|_| malformed())? {
        return Ok(c);
    }
    match r.as_ref() as &str {
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "amp" => Ok('&'),
        "apos" => Ok('\''),
        "quot" => Ok('"'),
        _ => Err(malformed()),
    }
}
