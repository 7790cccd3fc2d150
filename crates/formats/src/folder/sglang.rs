//! Files of SGLang's dumper: `step=0___rank=1___dump_index=3___name=layer_0_attn_out___layer_id=0.pt`, each a pickled
//! `{"value": ..., "meta": {...}}`; and the folders of its forward hook, `TP0_PP0_Rank0_pid123/Pass00000.pt`.
//!
//! A tensor is called by its `name`; its step, rank and the rest go to its metadata. Where a dump holds several steps or
//! ranks they come before the name, so that two runs of the same model get the same names.

use crate::contents::Contents;
use serde_json::{Map, Value};
use twinscope_tensor::Plain;

/// What a file's name says.
#[derive(Debug)]
pub(crate) struct Dump {
    name: String,
    pub(crate) step: u64,
    rank: Option<u64>,
    pub(crate) index: Option<u64>,
    facts: Map<String, Value>,
}

impl Dump {
    /// `None` for a file that the dumper did not write.
    pub(crate) fn parse(file: &str) -> Option<Self> {
        let stem = file.strip_suffix(".pt")?;
        let mut facts = Map::new();
        for part in stem.split("___") {
            let (key, value) = part.split_once('=')?;
            let value = value
                .parse::<u64>()
                .map_or_else(|_| Value::from(value), Value::from);
            facts.insert(key.to_owned(), value);
        }
        let number = |key: &str| facts.get(key).and_then(Value::as_u64);
        let index = number("dump_index");
        let (step, rank) = (
            number("step").or_else(|| number("forward_pass_id")),
            number("rank"),
        );
        let name = match facts.get("name")? {
            Value::String(name) => name.clone(),
            other => other.to_string(),
        };
        index?;
        facts.remove("name");
        Some(Self {
            name,
            step: step.unwrap_or(0),
            rank,
            index,
            facts,
        })
    }

    /// Takes `value` out of its dict, and what lies under `meta` and in the file's name into each tensor's metadata.
    pub(crate) fn lift(&self, contents: &mut Contents) {
        let dumped = contents
            .entries
            .iter()
            .map(|entry| &entry.name)
            .chain(contents.values.iter().map(|value| &value.name));
        if !dumped
            .into_iter()
            .any(|name| below(name, "value").is_some())
        {
            return;
        }
        let mut facts = self.facts.clone();
        contents.values.retain(|value| {
            match below(&value.name, "meta").filter(|key| !key.is_empty()) {
                Some(key) => {
                    facts.entry(key).or_insert_with(|| plain(&value.value));
                    false
                }
                None => true,
            }
        });
        for entry in &mut contents.entries {
            if let Some(rest) = below(&entry.name, "value") {
                entry.name = rest.to_owned();
            }
            let meta = entry.meta.get_or_insert_default();
            for (key, value) in &facts {
                meta.entry(key).or_insert_with(|| value.clone());
            }
        }
        for value in &mut contents.values {
            if let Some(rest) = below(&value.name, "value") {
                value.name = rest.to_owned();
            }
        }
    }
}

/// What follows `key` in a joined name: `value.0` has `0` below `value`.
fn below<'a>(name: &'a str, key: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(key)?;
    if rest.is_empty() {
        Some(rest)
    } else {
        rest.strip_prefix('.')
    }
}

fn plain(value: &Plain) -> Value {
    match value {
        Plain::None => Value::Null,
        Plain::Bool(yes) => Value::from(*yes),
        Plain::Int(digits) => digits
            .parse::<i64>()
            .map_or_else(|_| Value::from(digits.as_str()), Value::from),
        Plain::Float(number) => Value::from(*number),
        Plain::Complex(re, im) => Value::from(vec![*re, *im]),
        Plain::Str(text) => Value::from(text.as_str()),
        Plain::Bytes(len) => Value::from(format!("{len} bytes")),
        Plain::Other { text, .. } => Value::from(text.as_str()),
    }
}

/// Which of step and rank tell the dumps of one bundle apart.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    steps: bool,
    ranks: bool,
}

impl Layout {
    pub(crate) fn of<'a>(dumps: impl Iterator<Item = &'a Dump>) -> Self {
        let mut layout = Self::default();
        let mut first: Option<&Dump> = None;
        for dump in dumps {
            let known = first.get_or_insert(dump);
            layout.steps |= known.step != dump.step;
            layout.ranks |= known.rank != dump.rank;
        }
        layout
    }

    pub(crate) fn name(&self, dir: &str, dump: &Dump) -> String {
        let mut parts = Vec::new();
        if !dir.is_empty() {
            parts.push(dir.to_owned());
        }
        if self.steps {
            parts.push(format!("step{}", dump.step));
        }
        if let (true, Some(rank)) = (self.ranks, dump.rank) {
            parts.push(format!("rank{rank}"));
        }
        parts.push(dump.name.clone());
        parts.join("/")
    }
}

/// `TP0_PP0_Rank0_pid123/x` without the process id, which is another in every run.
pub(crate) fn without_pid(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('/')
        .map(|part| match part.rsplit_once("_pid") {
            Some((rest, pid))
                if rest.starts_with("TP")
                    && !pid.is_empty()
                    && pid.bytes().all(|b| b.is_ascii_digit()) =>
            {
                rest
            }
            _ => part,
        })
        .collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_described_by_its_file_name() {
        let dump =
            Dump::parse("step=2___rank=1___dump_index=3___name=layer_0_attn_out___layer_id=0.pt")
                .unwrap();
        assert_eq!(
            (dump.name.as_str(), dump.step, dump.rank, dump.index),
            ("layer_0_attn_out", 2, Some(1), Some(3))
        );
        assert_eq!(dump.facts["layer_id"], 0);
        for other in [
            "model.pt",
            "step=1.pt",
            "name=x.pt",
            "step=0___rank=0___dump_index=1___name=x.npy",
        ] {
            assert!(Dump::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn steps_and_ranks_are_named_only_where_there_are_several() {
        let dump = |step, rank| {
            Dump::parse(&format!(
                "step={step}___rank={rank}___dump_index=0___name=x.pt"
            ))
            .unwrap()
        };
        let all = [dump(0, 0), dump(0, 1)];
        assert_eq!(Layout::of(all.iter()).name("", &all[1]), "rank1/x");
        assert_eq!(Layout::of(all[..1].iter()).name("exp", &all[0]), "exp/x");
    }

    #[test]
    fn process_ids_are_not_part_of_a_name() {
        assert_eq!(
            without_pid("TP0_PP0_Rank0_pid123/Pass00000"),
            "TP0_PP0_Rank0/Pass00000"
        );
        assert_eq!(without_pid("my_pid7/x"), "my_pid7/x");
    }
}
