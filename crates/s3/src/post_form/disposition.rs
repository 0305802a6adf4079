//! The few headers of multipart/form-data: `Content-Type: multipart/form-data; boundary=…` and `Content-Disposition`.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;

fn malformed(why: &'static str) -> S3Error {
    S3Error::with(S3Code::MalformedPOSTRequest, why)
}

/// The boundary that a request's content type names.
pub fn boundary(content_type: &str) -> S3Result<String> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(S3Error::with(S3Code::InvalidArgument, "A form must be sent as multipart/form-data"));
    }
    let boundary = parameters_of(parameters)?.into_iter().find(|(n, _)| n == "boundary").map(|(_, v)| v);
    boundary
        .filter(|b| !b.is_empty() && b.len() <= limits::FORM_BOUNDARY_MAX_BYTES && !b.contains(['\r', '\n']))
        .ok_or_else(|| malformed("The boundary is missing or not valid"))
}

/// Name and file name of a part, from its header block.
pub fn part_names(head: &[u8]) -> S3Result<(String, Option<String>)> {
    let head = std::str::from_utf8(head).map_err(|_| malformed("The head of a part is not UTF-8"))?;
    let (mut name, mut file_name) = (None, None);
    for line in head.split("\r\n").filter(|l| !l.is_empty()) {
        let (field, value) = line.split_once(':').ok_or_else(|| malformed("The head of a part is malformed"))?;
        if !field.trim().eq_ignore_ascii_case("content-disposition") {
            continue;
        }
        let (kind, parameters) = value.split_once(';').unwrap_or((value, ""));
        if name.is_some() || !kind.trim().eq_ignore_ascii_case("form-data") {
            return Err(malformed("The Content-Disposition of a part is malformed"));
        }
        for (n, v) in parameters_of(parameters)? {
            match n.as_str() {
                "name" => name = Some(v),
                "filename" => file_name = Some(v),
                _ => {}
            }
        }
    }
    Ok((name.ok_or_else(|| malformed("A part lacks its name"))?, file_name))
}

/// `a=b; c="d;\"e"`: names in lower case.
fn parameters_of(text: &str) -> S3Result<Vec<(String, String)>> {
    let bad = || malformed("The parameters of a header are malformed");
    let mut out = Vec::new();
    let mut rest = text.trim_matches([' ', '\t', ';']);
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=').ok_or_else(bad)?;
        let name = name.trim().to_ascii_lowercase();
        let (value, tail) = match value.strip_prefix('"') {
            Some(quoted) => unquote(quoted).ok_or_else(bad)?,
            None => {
                let (v, t) = value.split_once(';').unwrap_or((value, ""));
                (v.trim().to_owned(), t)
            }
        };
        out.push((name, value));
        rest = tail.trim_start_matches([' ', '\t', ';']);
    }
    Ok(out)
}

/// A quoted string after its first quote, and what follows it. Only `\"` and `\\` are escapes: browsers send `\` in paths bare.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[i + 1..])),
            '\\' => match chars.peek() {
                Some((_, e @ ('"' | '\\'))) => {
                    out.push(*e);
                    chars.next();
                }
                _ => out.push('\\'),
            },
            c => out.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_and_names_are_read() {
        assert_eq!(boundary("multipart/form-data; boundary=\"a b\"").expect("valid"), "a b");
        assert_eq!(boundary("Multipart/Form-Data;charset=x; boundary=--x").expect("valid"), "--x");
        for bad in
            ["text/plain", "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"a"]
        {
            assert!(boundary(bad).is_err(), "{bad}");
        }
        let head =
            b"Content-Type: text/plain\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\\\"b;c\\d\"\r\n";
        assert_eq!(part_names(head).expect("valid"), ("file".to_owned(), Some("a\"b;c\\d".to_owned())));
        for bad in [
            &b"X: y"[..],
            b"nonsense",
            b"Content-Disposition: attachment; name=a",
            b"Content-Disposition: form-data",
            b"\xff: x",
        ] {
            assert!(part_names(bad).is_err());
        }
    }
}
