//! Which tensor a user means: `NAME[SLICE]` where names may hold brackets themselves, and who else it could have been.

/// A name that exists and the slice behind it, if any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub(crate) name: &'a str,
    /// With its brackets.
    pub(crate) slice: Option<&'a str>,
}

/// Every way to read the text as a name and a slice, the longest name first.
pub(crate) fn readings(text: &str) -> impl Iterator<Item = Target<'_>> {
    let cuts = if text.ends_with(']') {
        text.rmatch_indices('[').map(|(at, _)| at).collect()
    } else {
        Vec::new()
    };
    let whole = Target {
        name: text,
        slice: None,
    };
    std::iter::once(whole).chain(cuts.into_iter().map(|at| Target {
        name: text[..at].trim_end(),
        slice: Some(&text[at..]),
    }))
}

/// The text without what looks like a slice: what to search for when no reading is a name.
pub(crate) fn without_slice(text: &str) -> &str {
    match text.rfind('[') {
        Some(at) if text.ends_with(']') && at > 0 => text[..at].trim_end(),
        _ => text,
    }
}

/// At most this many suggestions: more is a listing.
const NEAREST: usize = 3;

/// Names close to a wrong one, the closest first: those it is a part of, then those a few letters away.
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let folded = wrong.to_lowercase();
    let mut close: Vec<(u8, f64, &str)> = names
        .filter_map(|name| closeness(&folded, name).map(|(rank, far)| (rank, far, name)))
        .collect();
    close.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    close
        .into_iter()
        .take(NEAREST)
        .map(|(_, _, name)| name)
        .collect()
}

/// How a name relates to the wrong one (smaller is closer), and how far it is within that relation.
fn closeness(wrong: &str, name: &str) -> Option<(u8, f64)> {
    // A hostile name can be a megabyte; comparing letters is quadratic.
    if name.len() > 4096 || wrong.len() > 4096 {
        return None;
    }
    let folded = name.to_lowercase();
    let far = 1.0 - strsim::normalized_damerau_levenshtein(wrong, &folded);
    if folded == wrong {
        return Some((0, far));
    }
    if wrong.len() >= 2
        && folded.len() >= 2
        && (folded.ends_with(wrong) || wrong.ends_with(folded.as_str()))
    {
        return Some((1, far));
    }
    if far < 0.25 {
        return Some((2, far));
    }
    if wrong.len() >= 2 && folded.contains(wrong) {
        return Some((3, far));
    }
    (far < 0.4).then_some((4, far))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_is_tried_first() {
        let all: Vec<_> = readings("a[0][1:2]").map(|t| (t.name, t.slice)).collect();
        assert_eq!(
            all,
            [
                ("a[0][1:2]", None),
                ("a[0]", Some("[1:2]")),
                ("a", Some("[0][1:2]"))
            ]
        );
        assert_eq!(readings("a[0").count(), 1);
        assert_eq!(
            readings("[0]").last(),
            Some(Target {
                name: "",
                slice: Some("[0]")
            })
        );
    }

    #[test]
    fn a_slip_finds_the_name_meant() {
        let names = [
            "0_query",
            "0_key",
            "1_query",
            "model.layers.0.mlp.up_proj.weight",
            "lm_head",
        ];
        assert_eq!(
            nearest("0_qurey", names.into_iter()),
            ["0_query", "1_query"]
        );
        assert_eq!(
            nearest("up_proj.weight", names.into_iter()),
            ["model.layers.0.mlp.up_proj.weight"]
        );
        assert_eq!(nearest("LM_HEAD", names.into_iter()), ["lm_head"]);
        assert!(nearest("zzzzzzzzzzzz", names.into_iter()).is_empty());
        assert!(
            nearest("nosuch", ["h", "w"].into_iter()).is_empty(),
            "a last letter is no likeness"
        );
    }
}
