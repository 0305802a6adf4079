//! Patterns with `*` (any text, slashes too) and `?` (any one character).

/// Whether `text` fits `pattern`. Takes at most `pattern * text` steps.
pub fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: the last star, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks_match_as_in_policies() {
        for (pattern, text) in [
            ("*", ""),
            ("b/*", "b/a/b"),
            ("b/*.txt", "b/x.txt.txt"),
            ("b/?", "b/é"),
            ("get*", "getobject"),
            ("a*b*c", "a-b-b-c"),
            ("b", "b"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("b/*", "b"), ("b/?", "b/ab"), ("a*b", "ac"), ("b", "bb"), ("?", "")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
