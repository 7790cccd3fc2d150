//! `--map FILE` and `--save-map FILE`: pairs by name, as JSON or CSV. Text in, text out; who opens files is not our business.
//!
//! JSON is `{"pairs": [{"reference": "a", "candidate": "b"}]}`, with lists for several parts, or just `{"a": "b"}`. CSV has two columns, a
//! header `reference,candidate` or none, and quotes as everywhere. Several parts are several lines with the same name on the other side.

use crate::{
    pairing::Pairing,
    settings::{MapEntry, Names},
    side::Side,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use std::{collections::HashMap, fmt};

/// Why a map cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    #[error("the map is not the JSON expected: {0}")]
    Json(#[from] serde_json::Error),
    #[error("line {line} of the map has {columns} columns, not 2")]
    Columns { line: usize, columns: usize },
    #[error("line {line} of the map has an empty name")]
    Empty { line: usize },
    #[error("line {line} of the map opens a quote that never closes")]
    Quote { line: usize },
    #[error("line {line} of the map has text after a closing quote")]
    AfterQuote { line: usize },
    #[error("the map gives `{name}` different partners that are not parts of one tensor")]
    Tangled { name: String },
}

/// How a map is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapFormat {
    Json,
    Csv,
}

impl MapFormat {
    /// By a file's extension; JSON unless it is `csv`.
    pub fn of_extension(extension: Option<&str>) -> Self {
        if extension.is_some_and(|extension| extension.eq_ignore_ascii_case("csv")) {
            Self::Csv
        } else {
            Self::Json
        }
    }
}

/// What was paired, to be saved, edited and given back.
pub fn entries(pairing: &Pairing, reference: &Side<'_>, candidate: &Side<'_>) -> Vec<MapEntry> {
    let names = |side: &Side<'_>, items: &[usize]| match items {
        [item] => Names::One(side.items()[*item].name.clone()),
        items => Names::Many(
            items
                .iter()
                .map(|item| side.items()[*item].name.clone())
                .collect(),
        ),
    };
    let entry = |pair: &crate::pairing::Pair| MapEntry {
        reference: names(reference, &pair.reference),
        candidate: names(candidate, &pair.candidate),
    };
    pairing.pairs.iter().map(entry).collect()
}

/// JSON when it begins with a brace, else CSV.
pub fn parse(text: &str) -> Result<Vec<MapEntry>, MapError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) {
        json(text)
    } else {
        csv(text)
    }
}

pub fn write(entries: &[MapEntry], format: MapFormat) -> String {
    match format {
        MapFormat::Json => {
            let mut text = serde_json::to_string_pretty(&Document {
                pairs: entries.to_vec(),
            })
            .expect("names are strings");
            text.push('\n');
            text
        }
        MapFormat::Csv => {
            let mut text = String::from("reference,candidate\n");
            for entry in entries {
                for reference in entry.reference.all() {
                    for candidate in entry.candidate.all() {
                        text += &format!("{},{}\n", quoted(reference), quoted(candidate));
                    }
                }
            }
            text
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    pairs: Vec<MapEntry>,
}

fn json(text: &str) -> Result<Vec<MapEntry>, MapError> {
    // A tensor may be called `pairs`; a list of pairs it is not.
    let value: serde_json::Value = serde_json::from_str(text)?;
    if value.get("pairs").is_none_or(|pairs| pairs.is_string()) && value.is_object() {
        return Ok(serde_json::from_str::<Flat>(text)?.0);
    }
    Ok(serde_json::from_str::<Document>(text)?.pairs)
}

/// `{"a": "b"}`. A map type would keep only the last of two equal keys in silence.
struct Flat(Vec<MapEntry>);

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Flat;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of reference names and candidate names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Flat, A::Error> {
                let mut entries = Vec::new();
                while let Some((reference, candidate)) = map.next_entry::<String, Names>()? {
                    entries.push(MapEntry {
                        reference: Names::One(reference),
                        candidate,
                    });
                }
                Ok(Flat(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

fn quoted(name: &str) -> String {
    let plain = !name.contains([',', '"', '\n', '\r']) && name.trim() == name;
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

fn csv(text: &str) -> Result<Vec<MapEntry>, MapError> {
    let mut rows = Vec::new();
    for (line, fields) in records(text)? {
        let [reference, candidate] =
            <[String; 2]>::try_from(fields).map_err(|fields| MapError::Columns {
                line,
                columns: fields.len(),
            })?;
        if reference.is_empty() || candidate.is_empty() {
            return Err(MapError::Empty { line });
        }
        rows.push((reference, candidate));
    }
    if rows.first().is_some_and(|(reference, candidate)| {
        reference.eq_ignore_ascii_case("reference") && candidate.eq_ignore_ascii_case("candidate")
    }) {
        rows.remove(0);
    }
    joined(rows)
}

/// Lines with a name in common become one entry; the parts of one side must all be parts of the same other names.
fn joined(rows: Vec<(String, String)>) -> Result<Vec<MapEntry>, MapError> {
    let mut partners: [HashMap<&str, Vec<&str>>; 2] = Default::default();
    for (reference, candidate) in &rows {
        partners[0].entry(reference).or_default().push(candidate);
        partners[1].entry(candidate).or_default().push(reference);
    }
    let mut entries = Vec::new();
    let mut done: std::collections::HashSet<&str> = Default::default();
    for (reference, _) in &rows {
        if done.contains(reference.as_str()) {
            continue;
        }
        let candidates = &partners[0][reference.as_str()];
        let references = &partners[1][candidates[0]];
        let tangled = references
            .iter()
            .find(|name| partners[0][**name] != *candidates)
            .or_else(|| {
                candidates
                    .iter()
                    .find(|name| partners[1][**name] != *references)
            });
        let repeated = |names: &[&str]| (1..names.len()).any(|at| names[..at].contains(&names[at]));
        if tangled.is_some() || repeated(candidates) || repeated(references) {
            return Err(MapError::Tangled {
                name: tangled.map_or(reference.clone(), |name| (*name).to_owned()),
            });
        }
        done.extend(references);
        let names = |names: &[&str]| match names {
            [name] => Names::One((*name).to_owned()),
            names => Names::Many(names.iter().map(|name| (*name).to_owned()).collect()),
        };
        entries.push(MapEntry {
            reference: names(references),
            candidate: names(candidates),
        });
    }
    Ok(entries)
}

/// Fields of each line that is not empty, with the number of the line it begins in.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, MapError> {
    let mut records = Vec::new();
    let (mut line, mut letters) = (1, text.chars().peekable());
    while letters.peek().is_some() {
        let (start, mut fields) = (line, Vec::new());
        loop {
            let (field, end) = field(&mut letters, &mut line)?;
            fields.push(field);
            if end != Some(',') {
                break;
            }
        }
        line += 1;
        if fields.len() > 1 || !fields[0].is_empty() {
            records.push((start, fields));
        }
    }
    Ok(records)
}

type Letters<'t> = std::iter::Peekable<std::str::Chars<'t>>;

/// One field and what ended it: a comma, the line's end, or the text's.
fn field(letters: &mut Letters<'_>, line: &mut usize) -> Result<(String, Option<char>), MapError> {
    while letters
        .next_if(|letter| matches!(letter, ' ' | '\t'))
        .is_some()
    {}
    let mut field = String::new();
    let quoted = letters.next_if_eq(&'"').is_some();
    if quoted {
        quote(letters, line, &mut field)?;
    }
    loop {
        match letters.next() {
            Some('\r') if letters.peek().is_none_or(|next| *next == '\n') => {}
            end @ (None | Some(',' | '\n')) => {
                return Ok((
                    if quoted {
                        field
                    } else {
                        field.trim_end().to_owned()
                    },
                    end,
                ));
            }
            Some(' ' | '\t') if quoted => {}
            Some(_) if quoted => return Err(MapError::AfterQuote { line: *line }),
            Some(letter) => field.push(letter),
        }
    }
}

/// What stands up to the closing quote; two quotes are one.
fn quote(letters: &mut Letters<'_>, line: &mut usize, field: &mut String) -> Result<(), MapError> {
    let start = *line;
    loop {
        match letters.next().ok_or(MapError::Quote { line: start })? {
            '"' if letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => return Ok(()),
            letter => {
                *line += usize::from(letter == '\n');
                field.push(letter);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(names: &[&str]) -> Names {
        match names {
            [name] => Names::One((*name).to_owned()),
            names => Names::Many(names.iter().map(|name| (*name).to_owned()).collect()),
        }
    }

    fn entry(reference: &[&str], candidate: &[&str]) -> MapEntry {
        MapEntry {
            reference: names(reference),
            candidate: names(candidate),
        }
    }

    #[test]
    fn json_comes_in_two_forms() {
        let long = parse(r#" {"pairs": [{"reference": ["q", "k"], "candidate": "qk"}, {"reference": "a", "candidate": "b"}]}"#).unwrap();
        assert_eq!(long, [entry(&["q", "k"], &["qk"]), entry(&["a"], &["b"])]);
        assert_eq!(
            parse(r#"{"a": "b", "c": ["d", "e"]}"#).unwrap(),
            [entry(&["a"], &["b"]), entry(&["c"], &["d", "e"])]
        );
        assert_eq!(
            parse(r#"{"pairs": "b"}"#).unwrap(),
            [entry(&["pairs"], &["b"])]
        );
        assert_eq!(
            parse(r#"{"a": "b", "a": "c"}"#).unwrap().len(),
            2,
            "the second is not lost; pairing refuses it"
        );
    }

    #[test]
    fn csv_has_a_header_or_none_and_quotes() {
        let expected = [entry(&["a,1"], &["b \"x\""]), entry(&["c"], &["d"])];
        assert_eq!(
            parse("\"a,1\", \"b \"\"x\"\"\"\r\nc,d\r\n").unwrap(),
            expected
        );
        assert_eq!(
            parse("\u{feff}Reference,Candidate\n\"a,1\",\"b \"\"x\"\"\"\n\n c , d").unwrap(),
            expected
        );
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn lines_with_a_name_in_common_are_parts() {
        assert_eq!(
            parse("q,qkv\nk,qkv\nv,qkv\na,b\n").unwrap(),
            [entry(&["q", "k", "v"], &["qkv"]), entry(&["a"], &["b"])]
        );
        assert!(matches!(
            parse("a,x\nb,x\nb,y\n"),
            Err(MapError::Tangled { .. })
        ));
        assert!(matches!(parse("a,x\na,x\n"), Err(MapError::Tangled { .. })));
    }

    #[test]
    fn mistakes_name_their_line() {
        assert_eq!(
            parse("a,b\nc\n").unwrap_err().to_string(),
            "line 2 of the map has 1 columns, not 2"
        );
        assert_eq!(
            parse("a,b\n\n\"c,d\n").unwrap_err().to_string(),
            "line 3 of the map opens a quote that never closes"
        );
        assert_eq!(
            parse("a,\n").unwrap_err().to_string(),
            "line 1 of the map has an empty name"
        );
        assert_eq!(
            parse("\"a\"b,c\n").unwrap_err().to_string(),
            "line 1 of the map has text after a closing quote"
        );
        let error = parse("{\"a\": 1}").unwrap_err().to_string();
        assert_eq!(
            error,
            "the map is not the JSON expected: names are a string or a list of strings at line 1 column 8"
        );
        assert!(matches!(
            parse("{\"pairs\": [{\"reference\": \"a\", \"candidat\": \"b\"}]}"),
            Err(MapError::Json(_))
        ));
        assert!(matches!(parse("[1]"), Err(MapError::Json(_))));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(parts in proptest::collection::vec((1usize..4, 1usize..4), 0..5), odd in "[a ,\"\n\r'é]{0,4}") {
            let mut count = 0;
            let mut some = |many: usize| -> Vec<String> { (0..many).map(|_| { count += 1; format!("n{count}{odd}") }).collect() };
            let side = |names: Vec<String>| if names.len() == 1 { Names::One(names[0].clone()) } else { Names::Many(names) };
            let entries: Vec<MapEntry> = parts.into_iter().map(|(r, c)| MapEntry { reference: side(some(r)), candidate: side(some(c)) }).collect();
            for format in [MapFormat::Json, MapFormat::Csv] {
                prop_assert_eq!(&parse(&write(&entries, format)).unwrap(), &entries, "{:?}", format);
            }
        }
    }
}
