//! Execution order where a file has none: layer number, then stage, then natural name order.

use std::cmp::Ordering;

/// The stages of a layer in the order they run, for names like `{layer}_{stage}`.
pub const STAGES: [&str; 13] = [
    "post_ln_pre_attn",
    "query",
    "query_final",
    "key",
    "key_final",
    "value",
    "value_final",
    "post_attn",
    "scaling",
    "sliding",
    "post_attn_pre_resid",
    "pre_mlp",
    "post_mlp",
];

/// `{layer}_{stage}`, or `None` for any other name.
pub fn layer_stage(name: &str) -> Option<(u64, &str)> {
    let last = name.rsplit(['/', '.']).next()?;
    let (layer, stage) = last.split_once('_')?;
    let digits = !layer.is_empty() && layer.bytes().all(|b| b.is_ascii_digit());
    if !digits || stage.is_empty() {
        return None;
    }
    Some((layer.parse().ok()?, stage))
}

/// Where a name stands in the order; compare with [`by_name`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Before the layers (embeddings), in them, after them.
    part: u8,
    layer: u64,
    stage: usize,
}

fn place(name: &str) -> Place {
    if let Some((layer, stage)) = layer_stage(name) {
        let stage = STAGES.iter().position(|known| *known == stage).unwrap_or(STAGES.len());
        return Place { part: 1, layer, stage };
    }
    // `model.layers.3.mlp`, `blk.3.attn_q`, `h.3.ln_1`: the first number that is a path segment of its own.
    let layer =
        name.split(['.', '/']).find(|part| part.bytes().next().is_some_and(|b| b.is_ascii_digit())).and_then(|part| part.parse().ok());
    if let Some(layer) = layer {
        return Place { part: 1, layer, stage: 0 };
    }
    let contains = |word: &str| name.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()));
    let first = ["embed", "embd", "wte", "wpe", "input", "token"].into_iter().any(contains);
    Place { part: if first { 0 } else { 2 }, layer: 0, stage: 0 }
}

/// Layer, stage, natural name.
pub fn by_name(a: &str, b: &str) -> Ordering {
    place(a).cmp(&place(b)).then_with(|| natural(a, b))
}

/// Sorts by [`by_name`], computing each place once. Equal names keep their order.
pub fn sort_by_name<T>(items: &mut Vec<T>, name: impl Fn(&T) -> &str) {
    let mut order: Vec<(Place, usize)> = items.iter().enumerate().map(|(at, item)| (place(name(item)), at)).collect();
    let before = |a: &(Place, usize), b: &(Place, usize)| {
        a.0.cmp(&b.0).then_with(|| natural(name(&items[a.1]), name(&items[b.1]))).then(a.1.cmp(&b.1))
    };
    // Most writers sort already; then looking once is all it costs.
    if order.is_sorted_by(|a, b| before(a, b).is_le()) {
        return;
    }
    order.sort_unstable_by(before);
    let mut taken: Vec<Option<T>> = std::mem::take(items).into_iter().map(Some).collect();
    items.extend(order.iter().map(|(_, at)| taken[*at].take().expect("each place once")));
}

/// Runs of digits compare as numbers: `a2` before `a10`. Equal numbers with other zeros fall back to the text.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    loop {
        match (x.first(), y.first()) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(p), Some(q)) if p.is_ascii_digit() && q.is_ascii_digit() => {
                let (m, n) = (digits(x), digits(y));
                let (s, t) = (trim(&x[..m]), trim(&y[..n]));
                let ordering = s.len().cmp(&t.len()).then_with(|| s.cmp(t));
                if ordering != Ordering::Equal {
                    return ordering;
                }
                (x, y) = (&x[m..], &y[n..]);
            }
            (Some(p), Some(q)) if p == q => (x, y) = (&x[1..], &y[1..]),
            (Some(p), Some(q)) => return p.cmp(q),
        }
    }
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_digit()).count()
}

fn trim(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|b| **b == b'0').count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_then_stages_then_names() {
        let mut names = vec![
            "10_query",
            "2_post_mlp",
            "2_query",
            "2_zeta",
            "2_alpha",
            "lm_head.weight",
            "model.embed_tokens.weight",
            "2_post_ln_pre_attn",
        ];
        sort_by_name(&mut names, |name| name);
        assert_eq!(
            names,
            ["model.embed_tokens.weight", "2_post_ln_pre_attn", "2_query", "2_post_mlp", "2_alpha", "2_zeta", "10_query", "lm_head.weight"]
        );
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        assert_eq!(natural("a2", "a10"), Ordering::Less);
        assert_eq!(natural("a02", "a2"), Ordering::Less);
        assert_eq!(natural("h.9.w", "h.10.b"), Ordering::Less);
    }

    #[test]
    fn malformed_layer_stage_names_are_plain_names() {
        for name in ["x_query", "_query", "12_", "3query", "query"] {
            assert_eq!(layer_stage(name), None, "{name}");
        }
        assert_eq!(layer_stage("dump/12_post_attn"), Some((12, "post_attn")));
    }
}
