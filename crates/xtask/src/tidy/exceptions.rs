//! The list of files that may break a rule of tidy, each with its reason.
//!
//! Promises: a line without a reason is refused; an exception that is not needed is a finding (see `sources`).
//! Refuses to know: the rules.

use std::collections::BTreeMap;

use super::Page;

/// The list: rule, path, reason.
pub(super) const FILE_NAME: &str = "tidy-exceptions.txt";

/// Path and line of each exception by rule.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    /// Files longer than the limit.
    pub long: BTreeMap<String, usize>,
    /// Files with `unsafe` code.
    pub has_unsafe: BTreeMap<String, usize>,
    /// Where the list lies.
    pub path: String,
}

pub(super) fn read(pages: &[Page]) -> Result<Exceptions, String> {
    let Some(page) = pages.iter().find(|page| page.path.ends_with(FILE_NAME)) else { return Ok(Exceptions::default()) };
    parse(&page.path, &page.text)
}

fn parse(path: &str, text: &str) -> Result<Exceptions, String> {
    let mut exceptions = Exceptions { path: path.to_owned(), ..Exceptions::default() };
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        let (rule, file, reason) =
            (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let list = match rule {
            "long" => &mut exceptions.long,
            "unsafe" => &mut exceptions.has_unsafe,
            _ => return Err(format!("{path}:{}: no rule is called {rule:?}", index + 1)),
        };
        if reason.trim().is_empty() {
            return Err(format!("{path}:{}: an exception needs a reason", index + 1));
        }
        list.insert(file.to_owned(), index + 1);
    }
    Ok(exceptions)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn an_exception_without_a_reason_or_for_no_rule_is_refused() {
        assert!(
            parse("x", "# comment\n\nlong a.rs because it is generated\n")
                .expect("a good list")
                .long
                .contains_key("a.rs")
        );
        assert!(parse("x", "long a.rs").is_err());
        assert!(parse("x", "wide a.rs because").is_err());
    }
}
