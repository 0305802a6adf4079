//! The little that is read from S3's XML answers: the text of named elements.
//!
//! Promises: never panics, whatever the text. Refuses to know: nesting, attributes, namespaces; S3's lists do not need
//! them, and a server that sends anything else is found out by the comparison with the model.

/// The text of the first element `name`, entities resolved.
pub fn first(xml: &str, name: &str) -> Option<String> {
    blocks(xml, name).next().map(unescape)
}

/// The inner text of each element `name`, entities left as they are.
pub fn blocks<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let start = rest.find(&open)? + open.len();
        let end = start + rest[start..].find(&close)?;
        let inner = &rest[start..end];
        rest = &rest[end + close.len()..];
        Some(inner)
    })
}

/// Resolves the five named entities and numeric ones.
pub fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(end) = rest.find(';') else { break };
        match entity(&rest[1..end]) {
            Some(c) => out.push(c),
            None => out.push_str(&rest[..=end]),
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{blocks, first, unescape};

    #[test]
    fn elements_are_found_in_order() {
        let xml = "<L><Key>a</Key><X/><Key>b&amp;c</Key></L>";
        assert_eq!(blocks(xml, "Key").collect::<Vec<_>>(), ["a", "b&amp;c"]);
        assert_eq!(first(xml, "Key").as_deref(), Some("a"));
        assert_eq!(first(xml, "None"), None);
    }

    #[test]
    fn entities_are_resolved_and_broken_ones_kept() {
        assert_eq!(unescape("&lt;&#34;&#x41;&quot;&nope;&"), "<\"A\"&nope;&");
    }
}
