//! Writes XML documents.
//!
//! Promises: every text is escaped, control characters become numeric references, elements close in the order they opened.
//! A key with a control character is thereby not XML 1.0, but it is what AWS answers, and the rest of the listing stays readable.

use bytes::Bytes;
use std::io::Write;
use types::ETag;

/// The namespace of S3's documents.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// A document being written.
pub struct XmlWriter {
    /// UTF-8: whatever is appended is a text, or markup of ours.
    buf: Vec<u8>,
    open: Vec<&'static str>,
}

impl XmlWriter {
    /// A document whose root is `root` in S3's namespace.
    pub fn document(root: &'static str) -> Self {
        let mut w = Self::with_capacity(512);
        w.open_with(root, &[("xmlns", NAMESPACE)]);
        w
    }

    /// A document whose root is `root` without a namespace (errors).
    pub fn plain(root: &'static str) -> Self {
        let mut w = Self::with_capacity(512);
        w.open(root);
        w
    }

    fn with_capacity(bytes: usize) -> Self {
        let mut buf = Vec::with_capacity(bytes);
        buf.extend_from_slice(DECLARATION.as_bytes());
        XmlWriter { buf, open: Vec::with_capacity(4) }
    }

    /// Makes room for a large document.
    pub fn reserve(&mut self, bytes: usize) {
        self.buf.reserve(bytes);
    }

    /// Opens an element.
    pub fn open(&mut self, name: &'static str) {
        self.buf.push(b'<');
        self.buf.extend_from_slice(name.as_bytes());
        self.buf.push(b'>');
        self.open.push(name);
    }

    /// Opens an element with attributes.
    pub fn open_with(&mut self, name: &'static str, attributes: &[(&str, &str)]) {
        self.buf.push(b'<');
        self.buf.extend_from_slice(name.as_bytes());
        for (k, v) in attributes {
            self.buf.push(b' ');
            self.buf.extend_from_slice(k.as_bytes());
            self.buf.extend_from_slice(b"=\"");
            escape_into(&mut self.buf, v);
            self.buf.push(b'"');
        }
        self.buf.push(b'>');
        self.open.push(name);
    }

    /// Closes the element opened last.
    pub fn close(&mut self) {
        debug_assert!(!self.open.is_empty(), "close without open");
        if let Some(name) = self.open.pop() {
            self.end_tag(name);
        }
    }

    /// An element with what `inner` writes.
    pub fn nest(&mut self, name: &'static str, inner: impl FnOnce(&mut Self)) {
        self.open(name);
        inner(self);
        self.close();
    }

    /// Markup of ours, as it stands: whole elements, or tags that are closed by more of it. For what is written a thousand times.
    pub fn raw(&mut self, markup: &'static str) {
        self.buf.extend_from_slice(markup.as_bytes());
    }

    /// The same, made of names of ours.
    pub fn markup(&mut self, markup: &str) {
        self.buf.extend_from_slice(markup.as_bytes());
    }

    /// A text within such markup.
    pub fn escaped(&mut self, value: &str) {
        escape_into(&mut self.buf, value);
    }

    /// ASCII digits and marks that need no escaping, within such markup.
    pub fn harmless(&mut self, value: &[u8]) {
        debug_assert!(!value.iter().any(|c| SUSPECT[usize::from(*c)]), "harmless() is for digits and dates");
        self.buf.extend_from_slice(value);
    }

    /// An element with a text.
    pub fn text(&mut self, name: &str, value: &str) {
        self.start_tag(name);
        escape_into(&mut self.buf, value);
        self.end_tag(name);
    }

    /// An element with a text, if there is one.
    pub fn text_opt(&mut self, name: &str, value: Option<&str>) {
        if let Some(v) = value {
            self.text(name, v);
        }
    }

    /// An element with a value that needs no escaping, such as a number.
    pub fn display(&mut self, name: &str, value: impl std::fmt::Display) {
        self.start_tag(name);
        let at = self.buf.len();
        let _ = write!(self.buf, "{value}");
        debug_assert!(!self.buf[at..].iter().any(|c| SUSPECT[usize::from(*c)]), "display() is for harmless values");
        self.end_tag(name);
    }

    /// An element with a number.
    pub fn number(&mut self, name: &str, value: u64) {
        self.start_tag(name);
        self.buf.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.end_tag(name);
    }

    /// An entity tag, in the (escaped) quotes that S3 puts around it.
    pub fn etag(&mut self, name: &str, value: &ETag) {
        self.start_tag(name);
        self.quoted(value);
        self.end_tag(name);
    }

    /// An entity tag in its quotes, within markup of [`XmlWriter::raw`].
    pub fn quoted(&mut self, value: &ETag) {
        self.buf.extend_from_slice(b"&quot;");
        value.text(|text| self.buf.extend_from_slice(text));
        self.buf.extend_from_slice(b"&quot;");
    }

    /// Milliseconds since the epoch as `2026-01-31T00:00:00.000Z`.
    pub fn time_ms(&mut self, name: &str, ms: u64) {
        self.start_tag(name);
        self.buf.extend_from_slice(crate::response::IsoDate::of(ms).as_bytes());
        self.end_tag(name);
    }

    /// The document. Closes what is open.
    pub fn finish(mut self) -> Bytes {
        while !self.open.is_empty() {
            self.close();
        }
        Bytes::from(self.buf)
    }

    fn start_tag(&mut self, name: &str) {
        self.buf.push(b'<');
        self.buf.extend_from_slice(name.as_bytes());
        self.buf.push(b'>');
    }

    fn end_tag(&mut self, name: &str) {
        self.buf.extend_from_slice(b"</");
        self.buf.extend_from_slice(name.as_bytes());
        self.buf.push(b'>');
    }
}

/// Bytes that are escaped, or begin something that may be.
const SUSPECT: [bool; 256] = {
    let mut table = [false; 256];
    let mut c = 0;
    while c < 0x20 {
        table[c] = c as u8 != b'\n' && c as u8 != b'\t';
        c += 1;
    }
    table[0x7f] = true;
    table[0xef] = true;
    table[b'&' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'"' as usize] = true;
    table
};

/// Appends `text`, escaped for content and attributes. Runs of harmless bytes are copied whole; nothing that was written
/// before is looked at again.
fn escape_into(buf: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|c| SUSPECT[usize::from(*c)]) {
        return buf.extend_from_slice(text.as_bytes());
    }
    let mut from = 0;
    for (i, c) in bytes.iter().enumerate() {
        let (taken, named) = match c {
            b'&' => (1, "&amp;"),
            b'<' => (1, "&lt;"),
            b'>' => (1, "&gt;"),
            b'"' => (1, "&quot;"),
            0..=0x1f | 0x7f if *c != b'\n' && *c != b'\t' => (1, ""),
            // U+FFFE and U+FFFF are no XML characters either.
            0xef if bytes[i..].starts_with(b"\xef\xbf\xbe") => (3, "&#65534;"),
            0xef if bytes[i..].starts_with(b"\xef\xbf\xbf") => (3, "&#65535;"),
            _ => continue,
        };
        // All that is taken is whole characters, so both ends are character boundaries.
        buf.extend_from_slice(&bytes[from..i]);
        from = i + taken;
        if named.is_empty() {
            let _ = write!(buf, "&#{c};");
        } else {
            buf.extend_from_slice(named.as_bytes());
        }
    }
    buf.extend_from_slice(&bytes[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let mut w = XmlWriter::plain("K");
        w.text("V", text);
        String::from_utf8(w.finish().to_vec()).expect("UTF-8")
    }

    #[test]
    fn texts_are_escaped() {
        assert!(written("Net & Works<\">'").contains("<V>Net &amp; Works&lt;&quot;&gt;'</V>"));
        assert!(written("a\rb").contains("<V>a&#13;b</V>"));
        assert!(written("bad\u{1}key").contains("<V>bad&#1;key</V>"));
        assert!(written("é\n\t\u{ffff}").contains("<V>é\n\t&#65535;</V>"));
        assert!(written("\u{fffd}\u{fffe}<\u{ffff}z").contains("<V>\u{fffd}&#65534;&lt;&#65535;z</V>"));
    }

    #[test]
    fn elements_close_in_order() {
        let mut w = XmlWriter::document("A");
        w.open("B");
        w.nest("C", |w| w.display("D", 7));
        let text = String::from_utf8(w.finish().to_vec()).expect("UTF-8");
        assert!(
            text.ends_with("<A xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><B><C><D>7</D></C></B></A>"),
            "{text}"
        );
    }
}
